// On which days tables were compared with the server: a square for each day of the last thirteen weeks.

import { el } from "./elements.js";
import { byRows, counted, number } from "./words.js";

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

// A column for each week, from Monday on.
export function calendar(days, now_us, said) {
  const known = new Map(days.map((day) => [day.day, day]));
  const today = Math.floor(now_us / 1000 / DAY);
  const monday = today - ((today + 3) % 7) - 12 * 7;  // the first day of 1970 was a Thursday
  const dates = Array.from({ length: today - monday + 1 }, (_, passed) => new Date((monday + passed) * DAY).toISOString().slice(0, 10));
  const square = (date) => {
    const [look, words] = said(known.get(date));
    return el("li", { class: look, title: `${date}: ${words}` }, el("span", { class: "unseen" }, `${date}: ${words}`));
  };
  return el("ol", { class: "calendar", "aria-label": "Comparisons with the server by day" }, dates.map(square));
}
