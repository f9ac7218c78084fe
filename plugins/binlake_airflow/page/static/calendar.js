// On which days tables were compared with the server: a square for each day of the last thirteen weeks.

import { el } from "./elements.js";
import { readable } from "./reading.js";
import { byRows, counted, number } from "./words.js";
import { date } from "./zone.js";

const DAY = 86_400_000;

const read = ({ chunks, rows, seconds }) =>
  `${counted(chunks, "chunk")}, ${counted(rows, "row")} read${seconds ? `, ${number(Math.round(rows / seconds))} rows/s` : ""}`;

// Look and words of a day, of one table.
export function ofTable(day) {
  if (!day) return ["none", "not compared"];
  if (day.equal === null) return ["warn", "it couldn't be compared"];
  return day.equal ? ["good", `equal: ${read(day)}`] : ["bad", `${counted(day.differing, "chunk")} differed: ${read(day)}`];
}

// And of all tables of a source.
export function ofSource(day) {
  if (!day) return ["none", "none compared"];
  const words = [[day.equal, "equal"], [day.differing, "differed"], [day.not_compared, "couldn't be compared"]]
    .filter(([count]) => count).map(([count, word]) => `${counted(count, "table")} ${word}`).join(", ");
  const found = day.found.map((table) => `${table.table}${byRows(table)}`).join(", ");
  const more = day.differing > day.found.length ? ` and ${number(day.differing - day.found.length)} more` : "";
  return [day.differing ? "bad" : day.not_compared ? "warn" : "good", `${words}${found ? ` (${found}${more})` : ""}: ${read(day)}`];
}

const WEEKS = 13;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const month = (date) => MONTHS[Number(date.slice(5, 7)) - 1];
const said = (date) => `${month(date)} ${Number(date.slice(8))}`;

// What the squares show, for those who don't see them.
function sentence(dates, looks) {
  const on = (look) => dates.filter((_, at) => looks[at] === look);
  const [good, bad, warn] = ["good", "bad", "warn"].map(on);
  const compared = good.length + bad.length + warn.length;
  if (!compared) return `Not compared with the server in the last ${WEEKS} weeks.`;
  const results = [
    good.length ? `equal on ${counted(good.length, "day")}` : null,
    bad.length ? `differing on ${counted(bad.length, "day")}, last on ${said(bad.at(-1))}` : null,
    warn.length ? `not comparable on ${counted(warn.length, "day")}, last on ${said(warn.at(-1))}` : null,
  ].filter(Boolean);
  return `Compared with the server on ${compared} of the last ${counted(dates.length, "day")}: ${results.join("; ")}.`;
}

// A column for each week, from Monday on, below its month. words(day): look and words of one. name: of this calendar.
export function calendar(days, now_us, words, name) {
  const known = new Map(days.map((day) => [day.day, day]));
  const today = Date.parse(date(now_us)) / DAY;
  const monday = today - ((today + 3) % 7) - (WEEKS - 1) * 7; // the first day of 1970 was a Thursday
  const dates = Array.from({ length: today - monday + 1 }, (_, passed) => new Date((monday + passed) * DAY).toISOString().slice(0, 10));
  const looks = dates.map((day) => words(known.get(day)));
  const squares = dates.map((day, at) => el("span", { class: looks[at][0], title: `${said(day)}: ${looks[at][1]}` }));
  const begins = dates.filter((_, at) => at % 7 === 0);
  const isFirst = (day, at) => (at ? month(day) !== month(begins[at - 1]) : begins.length < 2 || month(day) === month(begins[1]));
  const months = begins.map((day, at) => el("span", { class: "month" }, isFirst(day, at) ? month(day) : ""));
  const rows = ["Mon", "", "Wed", "", "Fri", "", ""].map((weekday, row) => {
    const ofDay = squares.filter((_, at) => at % 7 === row);
    return [el("span", { class: "weekday" }, weekday), ofDay, ofDay.length < WEEKS ? el("span") : null];
  });
  const picture = el("div", { class: "calendar", role: "img", "aria-label": sentence(dates, looks.map(([look]) => look)) }, el("span"), months, rows);
  return [picture, readable(picture, name, squares, "Green: equal, red: differed, yellow: couldn't be compared.", (square) => square.title, 7)];
}
