// What the page is made of. All that comes from data goes in as text; nothing is parsed as HTML.

import { compare, duration, moment, number, short } from "./words.js";
import { zoned } from "./zone.js";

const ROWS_AT_ONCE = 200;
export const STATUS_HEALTH = {
  following: "good", stopped: "bad", missing: "bad", paused: "warn", resnapshot: "warn", "catching up": "new", bootstrapping: "new", excluded: "none", disabled: "none", dropped: "none", new: "new",
};

// Elements: el("td", {class: "number"}, "text", otherElement). Attributes that are null aren't set.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (/^on[a-z]+$/.test(key)) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

// How long ago (or how soon), with the moment itself in the tooltip. The server's clock counts, not the browser's.
export function time(us, now_us) {
  if (!us) return el("span", { class: "quiet" }, "–");
  const seconds = Math.round((now_us - us) / 1e6);
  const said = seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
  return el("time", { datetime: new Date(us / 1000).toISOString(), title: moment(us) }, said);
}

// The same with the moment itself beside it, where there is space.
export const moments = (us, now_us) => (us ? [time(us, now_us), el("span", { class: "moment" }, moment(us))] : time(us, now_us));

export const where = (position) => el("span", { class: "mono", title: position }, short(position));
export const badge = (kind, words, title) => el("span", { class: `badge ${kind}`, title }, words);
export const status = (word) => badge(STATUS_HEALTH[word] ?? "none", word);
export const link = (to, ...words) => el("a", { href: `?${new URLSearchParams(to)}` }, ...words);
export const toSource = (source) => link({ source }, source);
export const toTable = (source, table) => link({ source, table }, table);
export const toBatch = (source, batch) => link({ source, batch }, `batch ${number(batch)}`);

export const facts = (...pairs) =>
  el("dl", {}, pairs.filter(Boolean).map(([name, value, title, kind]) =>
    el("div", { title, class: kind }, el("dt", {}, name), el("dd", {}, value))));

export function advice(lines, button = () => null) {
  if (!lines?.length) return null;
  const said = (line) =>
    el("li", { class: line.health }, el("div", {}, zoned(line.what), line.remedy ? el("span", { class: "todo" }, zoned(line.remedy)) : null), button(line));
  return el("ul", { class: "advice" }, lines.map(said));
}

export function reason(row) {
  if (!row.reason) return null;
  return el("span", { class: "why" }, zoned(row.reason), row.remedy ? el("span", { class: "todo why" }, zoned(row.remedy)) : null);
}

// Why Spark did a part of what a batch did to a table.
export function bySpark(row) {
  return row.why_spark ? el("span", { class: "why" }, `by Spark: ${row.why_spark}`) : null;
}

const NULL = () => el("span", { class: "quiet" }, "NULL");
export const value = (content) => (content === null ? NULL() : content);

// A row's key, as far as it may be seen.
export const keyOf = ({ key }) =>
  el("span", { class: "mono" }, Object.entries(key ?? {}).map(([name, part], at) => [at ? ", " : "", `${name} = `, value(part)]).flat(), key ? null : "–");

const orders = new Map(); // by the table's caption: how it was sorted, and how much of it was shown

// columns: {name, short, plain, key, number, cell(row), sort(row)}; those with sort have a button. short: the name on a
// telephone; plain: none is needed there. Rows are drawn as they are asked for.
// picked: a set, of which each row has a box; onpick is called when it changed.
export function table(caption, columns, rows, { empty = "Nothing here.", picked = null, onpick = null } = {}) {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  const order = orders.get(caption) ?? { by: null, descending: false, shown: ROWS_AT_ONCE };
  orders.set(caption, order);
  const body = el("tbody");
  const more = el("button", { type: "button", onclick: () => draw(order.shown + ROWS_AT_ONCE * 5) });
  const heads = columns.map((column) => {
    const sort = () => {
      order.descending = order.by === column.key ? !order.descending : Boolean(column.number);
      order.by = column.key;
      draw(ROWS_AT_ONCE);
    };
    const id = `sort ${caption} ${column.key}`;
    const words = column.sort ? el("button", { type: "button", id, onclick: sort }, column.name) : column.name;
    return el("th", { scope: "col", class: column.number ? "number" : null, title: column.title }, words);
  });

  function draw(count) {
    const value = columns.find((column) => column.key && column.key === order.by)?.sort;
    const ordered = value ? rows.toSorted((a, b) => compare(value(a), value(b)) * (order.descending ? -1 : 1)) : rows;
    columns.forEach((column, at) => {
      if (!column.sort) return;
      const way = order.descending ? "descending" : "ascending";
      heads[at + (picked ? 1 : 0)].setAttribute("aria-sort", column.key === order.by ? way : "none");
    });
    body.replaceChildren(...ordered.slice(0, count).map(line));
    order.shown = count;
    more.textContent = `Show more (${number(rows.length - count)} left)`;
    more.hidden = count >= rows.length;
  }

  const line = (row) =>
    el("tr", {}, picked ? el("td", {}, pickBox(row)) : null, columns.map((column, at) => {
      const attributes = { class: column.number ? "number" : column.plain ? null : "named", "data-name": column.name, "data-short": column.short ?? column.name };
      return at ? el("td", attributes, column.cell(row)) : el("th", { scope: "row", ...attributes }, column.cell(row));
    }));

  function pickBox(row) {
    const toggle = (event) => {
      picked[event.target.checked ? "add" : "delete"](row.table);
      onpick();
    };
    const checked = picked.has(row.table) ? "" : null;
    return el("input", { type: "checkbox", id: `pick ${row.table}`, "aria-label": `pick ${row.table}`, checked, onchange: toggle });
  }

  function pickAll(event) {
    for (const row of rows) picked[event.target.checked ? "add" : "delete"](row.table);
    draw(order.shown);
    onpick();
  }

  if (picked) {
    const checked = rows.every((row) => picked.has(row.table)) ? "" : null;
    const box = el("input", { type: "checkbox", id: `pick all ${caption}`, "aria-label": "pick all of these", checked, onchange: pickAll });
    heads.unshift(el("th", { scope: "col" }, box));
  }

  draw(order.shown);
  const drawn = el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body);
  return el("div", {}, el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, drawn), more);
}

// What a batch did to a table, in either's list.
export const counts = [
  { name: "Inserted", number: true, key: "inserted", sort: (row) => row.inserted, cell: (row) => number(row.inserted) },
  { name: "Updated", number: true, key: "updated", sort: (row) => row.updated, cell: (row) => number(row.updated) },
  { name: "Deleted", number: true, key: "deleted", sort: (row) => row.deleted, cell: (row) => number(row.deleted) },
  { name: "Delta version", number: true, cell: (row) => number(row.delta_version) },
  { name: "Took", number: true, key: "seconds", sort: (row) => row.seconds, cell: (row) => duration(row.seconds) },
];
