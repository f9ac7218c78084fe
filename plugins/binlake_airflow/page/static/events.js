// All that happened to a source, as one list: runs, what failed, comparisons, DDL, stops, decisions.

import { ofAirflow } from "./actions.js";
import { ask, pathOf } from "./api.js";
import { badge, bySpark, el, link, time, toBatch, toTable } from "./elements.js";
import { bytes, counted, duration, moment, number } from "./words.js";
import { clock, date, zoned } from "./zone.js";

const KINDS = { run: "runs", batch: "single batches", failed: "failed runs", verify: "comparisons", ddl: "DDL", stop: "stops", decision: "decisions" };
const LOOKS = { run: "none", failed: "bad", verify: "good", ddl: "new", stop: "bad", decision: "warn" };
const ENDS = { success: "good", failed: "bad", running: "new", queued: "new" }; // of a run that was asked for
const COUNT = 50;

function about(source, { tables, place }) {
  const named = tables.slice(0, 5).map((name) => [toTable(source, name), " "]);
  const more = tables.length > 5 ? ` and ${number(tables.length - 5)} more` : null;
  return tables.length || place ? el("span", {}, named, more, place ? el("span", { class: "mono quiet" }, place) : null) : null;
}

// Events that are one line, from the first of them on; each batch is in a list of its own.
function spanned(source, { since_us, at_us, title }) {
  const each = link({ source, events: "all", kind: "batch", before_us: at_us + 1 }, "each of them");
  return [`${moment(since_us)} to ${date(since_us) === date(at_us) ? clock(at_us) : moment(at_us)}`, title.endsWith("batches") ? [" · ", each] : null];
}

// Of a decision who made it, why, what came of it, and how the run ended that was asked for.
function said(event) {
  if (event.kind === "ddl") return el("pre", {}, el("code", {}, event.what));
  if (event.kind !== "decision") return zoned(event.what);
  const run = event.run ? el("div", {}, event.ended ? [badge(ENDS[event.ended] ?? "none", event.ended), " "] : null, ofAirflow(event.run)) : null;
  return [`by ${event.who}${event.why ? `: ${event.why}` : ""}`, event.what ? el("div", { class: "quiet" }, event.what) : null, run];
}

// What a run changed, read and took.
function figures({ rows, bytes: read, seconds, phases, kind }) {
  const told = [rows ? counted(rows, "row") : null, read ? bytes(read) : null, seconds === null ? null : duration(seconds)];
  const named = kind === "failed" ? [] : Object.entries(phases ?? {});
  const each = named.length > 1 ? el("span", { class: "under" }, named.map(([name, took]) => `${name} ${duration(took)}`).join(", ")) : null;
  return el("span", { class: "figures" }, told.filter(Boolean).join(" · "), each);
}

function entry(source, event, now_us) {
  const batch = event.batch === null ? null : [" · ", toBatch(source, event.batch)];
  return el("li", { class: event.kind },
    el("span", {}, badge(event.look ?? LOOKS[event.kind], event.title)),
    el("span", { class: "when" }, time(event.at_us, now_us), el("span", { class: "under" }, event.since_us ? spanned(source, event) : moment(event.at_us), batch)),
    el("div", { class: "told" }, about(source, event), el("div", { class: "why" }, said(event)),
      event.remedy ? el("div", { class: "todo why" }, zoned(event.remedy)) : null, bySpark(event), event.kind === "failed" ? ofAirflow(event.run) : null),
    figures(event));
}

export function list({ source, events, now_us }) {
  if (!events.length) return el("p", { class: "quiet" }, "Nothing yet.");
  return el("ol", { class: "events", "aria-label": "What happened" }, events.map((event) => entry(source, event, now_us)));
}

// A field for one of the tables' names, with those that fit below it; an empty one is for all.
function ofTable(names, { kind, table = "" }, source) {
  const choose = ({ target: { value } }) => {
    if (value && !names.includes(value)) return;
    location.search = new URLSearchParams({ source, events: "all", ...(kind ? { kind } : {}), ...(value ? { table: value } : {}) });
  };
  const field = el("input", { type: "search", id: "of-table", list: "tables-known", placeholder: "All tables", value: table, onchange: choose });
  return el("div", { class: "tools" }, el("label", { for: "of-table" }, "Table"), field, el("datalist", { id: "tables-known" }, names.map((value) => el("option", { value }))));
}

export async function allEvents(place) {
  const { source, kind, before, table } = place;
  const filters = { ...(kind ? { kind } : {}), ...(table ? { table } : {}) };
  const asked = new URLSearchParams({ count: COUNT, ...filters, ...(before ? { before_us: before } : {}) });
  const [page, { tables }] = await Promise.all([ask(`${pathOf(source)}/events?${asked}`), ask(`${pathOf(source)}/tables`)]);
  const to = { source, events: "all", ...(table ? { table } : {}) };
  const kinds = Object.entries(KINDS).map(([key, words]) =>
    key === kind ? el("span", { "aria-current": "page" }, words) : link({ ...to, kind: key }, words));
  const older = page.earlier_us ? link({ ...to, ...filters, before_us: page.earlier_us }, "Earlier") : null;
  return [
    el("h2", {}, before ? "What happened earlier" : "What happened"),
    el("nav", { class: "jumps", "aria-label": "Kinds" }, kind ? link(to, "all") : el("span", { "aria-current": "page" }, "all"), kinds),
    ofTable(tables.map((row) => row.table).sort(), filters, source),
    list(page),
    older ? el("p", {}, older) : null,
  ];
}
