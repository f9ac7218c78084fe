// The page: which view the address asks for, drawn again as things change.

import { advice, el } from "./elements.js";
import { editSource } from "./edit_source.js";
import { allEvents } from "./events.js";
import { oneRun } from "./run.js";
import { oneSource, overview } from "./source.js";
import { newSource } from "./source_form.js";
import { oneTable } from "./table.js";
import { clock, ZONE } from "./zone.js";

const REFRESH_MS = 30_000;
const SOON_MS = 2_000;

const main = document.getElementById("main");
const asked = new URLSearchParams(location.search);
const place = { source: asked.get("source"), table: asked.get("table"), batch: asked.get("batch") ?? asked.get("run"), before: asked.get("before_us"), state: asked.get("state"), at: asked.get("at"), events: asked.get("events"), create: asked.get("create"), edit: asked.get("edit"), file: asked.get("file"), kind: asked.get("kind") };

function refusal(error) {
  const remedies = { 401: "log in to Airflow again", 403: "ask for the right to read this source's DAGs", 404: "go back to the overview" };
  const remedy = error.remedy || remedies[error.status] || "it is asked again by itself; the API server's log says more";
  return el("div", { class: "card", role: "alert" }, advice([{ health: "bad", what: error.message, remedy }]));
}

function trail() {
  const steps = [["Binlake", {}]];
  if (place.source) steps.push([place.source, { source: place.source }]);
  if (place.create) steps.push(["a new source", null]);
  if (place.edit) steps.push([place.file ? `edit ${place.file}` : "edit", null]);
  if (place.events) steps.push([place.table ? `what happened to ${place.table}` : "what happened", null]);
  else if (place.table) steps.push([place.table, null]);
  if (place.batch) steps.push([`batch ${place.batch}`, null]);
  const shown = steps.map(([words, to], at) =>
    el("li", {}, at === steps.length - 1 ? el("span", { "aria-current": "page" }, words) : el("a", { href: `?${new URLSearchParams(to)}` }, words)));
  document.getElementById("trail").replaceChildren(el("ol", {}, shown));
  document.title = steps.map(([words]) => words).toReversed().join(" – ");
  document.getElementById("title").textContent = document.title;
}

const view = place.create ? newSource : place.edit ? editSource : place.events ? allEvents : place.table ? oneTable : place.batch ? oneRun : place.source ? oneSource : overview;
let drawn = "";
let refreshed = 0;

// Who reads or types isn't disturbed: focus and place stay, and nothing is drawn again where nothing changed.
async function refresh() {
  if ((place.create || place.edit) && drawn) return; // what was filled in stays
  const said = document.getElementById("refreshed");
  refreshed = performance.now();
  try {
    const parts = (await view(place)).flat().filter(Boolean);
    const { id: focused, selectionStart: caret } = document.activeElement ?? {};
    const next = parts.map((part) => part.outerHTML).join("");
    // A dialog gives the focus back to the button that opened it, so that button stays meanwhile.
    if (next !== drawn && !document.querySelector("dialog[open]")) {
      const [x, y] = [scrollX, scrollY];
      main.replaceChildren(...parts);
      drawn = next;
      const again = focused ? document.getElementById(focused) : null;
      again?.focus();
      if (typeof caret === "number") again?.setSelectionRange?.(caret, caret);
      scrollTo(x, y);
    }
    said.textContent = `as of ${clock(Date.now() * 1000)}, times in ${ZONE}`;
  } catch (error) {
    console.error(error);
    if (!drawn || error.status) {
      main.replaceChildren(refusal(error));
      drawn = "";
    }
    said.textContent = "the last refresh failed";
  }
}

trail();
await refresh();
let looking = false;
setInterval(async () => {
  const isDue = performance.now() - refreshed >= REFRESH_MS || main.querySelector("[data-soon]"); // the first snapshot
  if (document.hidden || looking || !isDue) return;
  looking = true;
  await refresh();
  looking = false;
}, SOON_MS);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
addEventListener("changed", refresh);
