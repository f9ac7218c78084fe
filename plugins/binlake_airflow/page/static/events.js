// All that happened to a source, as one list: runs, what failed, comparisons, DDL, stops, decisions.

import { ofAirflow } from "./actions.js";
import { ask, pathOf } from "./api.js";
import { badge, el, link, moments, toBatch, toTable } from "./elements.js";
import { duration } from "./words.js";

const KINDS = { run: "runs", failed: "failed runs", verify: "comparisons", ddl: "DDL", stop: "stops", decision: "decisions" };
const LOOKS = { run: "none", failed: "bad", verify: "good", ddl: "new", stop: "bad", decision: "warn" };
const COUNT = 50;

function about(source, { tables, place, batch }) {
  const named = tables.slice(0, 5).map((name) => [" ", toTable(source, name)]);
  const more = tables.length > 5 ? ` and ${tables.length - 5} more` : null;
  return [named, more, place ? el("span", { class: "mono quiet" }, ` ${place}`) : null, batch === null ? null : [" · ", toBatch(source, batch)]];
}

function said(one) {
  if (one.kind === "ddl") return el("pre", {}, el("code", {}, one.what));
  const words = one.kind === "decision" ? `by ${one.who}: ${one.why}` : one.what;
  return el("span", { class: "why" }, words);
}

function entry(source, one, now_us) {
  const took = one.seconds === null ? null : ` · ${duration(one.seconds)}`;
  return el("li", { class: one.kind },
    badge(LOOKS[one.kind], one.title), " ", moments(one.at_us, now_us), took, about(source, one),
    said(one), one.remedy ? el("span", { class: "todo why" }, one.remedy) : null, one.kind === "failed" ? ofAirflow(one.run) : null);
}

export function list({ source, events, now_us }) {
  if (!events.length) return el("p", { class: "quiet" }, "Nothing is known of.");
  return el("ol", { class: "line events", "aria-label": "What happened" }, events.map((one) => entry(source, one, now_us)));
}

export async function allEvents(place) {
  const { source, kind, before } = place;
  const asked = new URLSearchParams({ count: COUNT, ...(kind ? { kind } : {}), ...(before ? { before_us: before } : {}) });
  const told = await ask(`${pathOf(source)}/events?${asked}`);
  const to = { source, events: "all" };
  const kinds = Object.entries(KINDS).map(([key, words]) =>
    key === kind ? el("span", { "aria-current": "page" }, words) : link({ ...to, kind: key }, words));
  const last = told.events.at(-1);
  const older = told.events.length >= COUNT ? link({ ...to, ...(kind ? { kind } : {}), before_us: last.at_us }, "Earlier") : null;
  return [
    el("h2", {}, before ? "What happened earlier" : "What happened"),
    el("nav", { class: "jumps", "aria-label": "Kinds" }, kind ? link(to, "all") : el("span", { "aria-current": "page" }, "all"), kinds),
    list(told),
    older ? el("p", {}, older) : null,
  ];
}
