// How numbers, times and places are said.

export const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US"));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  return `${value} B`;
}

export function duration(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * size) return `${number(Math.floor(seconds / size))} ${unit}`;
  return `${seconds < 10 ? Math.round(seconds * 100) / 100 : Math.round(seconds)} s`;
}

export { moment } from "./zone.js";

// server/file:offset@created is file:offset for people.
export const short = (position) => (position ? position.replace(/^.*\//, "").replace(/@\d+$/, "") : "–");

export function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b) : a - b;
}

// 1 row, 2 rows.
export const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

// By how many rows a table differs, as far as it is known: a comparison names a hundred of each table.
export function byRows({ differing_rows: rows }) {
  return rows ? ` by ${rows >= 100 ? "at least " : ""}${counted(rows, "row")}` : "";
}
