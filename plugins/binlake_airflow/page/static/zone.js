// The page's one time zone: Airflow's own choice, which its UI keeps under "timezone"; without one it takes the browser's.

function chosen() {
  try {
    const kept = localStorage.getItem("timezone")?.replace(/^"|"$/g, "");
    if (kept && new Intl.DateTimeFormat("en", { timeZone: kept })) return kept;
  } catch {
    // Storage is forbidden, or it names no zone: the browser's own is taken.
  }
  return Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
}

export const ZONE = chosen();
const PARTS = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const format = new Intl.DateTimeFormat("en-US", { timeZone: ZONE, ...PARTS });

const parts = (us) => Object.fromEntries(format.formatToParts(new Date(us / 1000)).map(({ type, value }) => [type, value]));

// 2026-03-01
export function date(us) {
  const { year, month, day } = parts(us);
  return `${year}-${month}-${day}`;
}

// 12:09:24
export function clock(us) {
  const { hour, minute, second } = parts(us);
  return `${hour}:${minute}:${second}`;
}

export const moment = (us) => `${date(us)} ${clock(us)}`;

// Times in a text of the server's, which are in UTC, in the page's zone.
export function zoned(text, now_us) {
  return text?.replace(/(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d:\d\d:\d\d)(?:\.\d+)?(?: UTC|\+00:00|Z)/g, (_, day, time) => {
    const us = Date.parse(`${day ?? new Date((now_us ?? Date.now() * 1000) / 1000).toISOString().slice(0, 10)}T${time}Z`) * 1000;
    return day ? moment(us) : clock(us);
  });
}

// A time that was typed without a zone, with the one that it is in, for the server.
export function withZone(text) {
  const typed = /^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?$/.exec(text.trim());
  if (!typed) return text;
  const wanted = Date.parse(`${text.trim().replace(" ", "T")}Z`);
  const offset = (ms) => Date.parse(`${moment(ms * 1000).replace(" ", "T")}Z`) - ms;
  const guess = wanted - offset(wanted);
  return new Date(wanted - offset(guess)).toISOString().replace(".000Z", "+00:00");
}
