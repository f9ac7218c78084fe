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

function said(event) {
  if (event.kind === "ddl") return el("pre", {}, el("code", {}, event.what));
  const words = event.kind === "decision" ? `by ${event.who}: ${event.why}` : event.what;
  return el("span", { class: "why" }, words);
}

function entry(source, event, now_us) {
  const took = event.seconds === null ? null : ` · ${duration(event.seconds)}`;
  return el("li", { class: event.kind },
    badge(LOOKS[event.kind], event.title), " ", moments(event.at_us, now_us), took, about(source, event),
    said(event), event.remedy ? el("span", { class: "todo why" }, event.remedy) : null, event.kind === "failed" ? ofAirflow(event.run) : null);
}

export function list({ source, events, now_us }) {
  if (!events.length) return el("p", { class: "quiet" }, "Nothing is known of.");
  return el("ol", { class: "line events", "aria-label": "What happened" }, events.map((event) => entry(source, event, now_us)));
}

export async function allEvents(place) {
  const { source, kind, before } = place;
  const asked = new URLSearchParams({ count: COUNT, ...(kind ? { kind } : {}), ...(before ? { before_us: before } : {}) });
  const page = await ask(`${pathOf(source)}/events?${asked}`);
  const to = { source, events: "all" };
  const kinds = Object.entries(KINDS).map(([key, words]) =>
    key === kind ? el("span", { "aria-current": "page" }, words) : link({ ...to, kind: key }, words));
  const last = page.events.at(-1);
  const older = page.events.length >= COUNT ? link({ ...to, ...(kind ? { kind } : {}), before_us: last.at_us }, "Earlier") : null;
  return [
    el("h2", {}, before ? "What happened earlier" : "What happened"),
    el("nav", { class: "jumps", "aria-label": "Kinds" }, kind ? link(to, "all") : el("span", { "aria-current": "page" }, "all"), kinds),
    list(page),
    older ? el("p", {}, older) : null,
  ];
}
