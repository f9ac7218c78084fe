// Buttons that do something: each asks first, in a dialog that says what will happen, and shows what came of it.

import { pathOf, post } from "./api.js";
import { el } from "./elements.js";
import { differences } from "./differences.js";
import { number } from "./words.js";
import { withZone, ZONE } from "./zone.js";

const WHY = { name: "why", label: "Why (recorded with your name)", required: true };
export const MAY_BE_WHY = { name: "why", label: "Why (may be empty; recorded with your name)" };
const BATCH = { name: "batch", label: "Batch (empty: the newest)", type: "number", hint: "The tables are built as they were behind this batch" };
const PROVE = { name: "prove", checkbox: true, label: "Compare every row with the table's own earlier version" };
const LOCK = {
  name: "lock",
  label: "Lock",
  options: { flush: "flush: all tables for a moment", tables: "tables: LOCK TABLES for a moment", none: "none: lock-free, needs GTIDs on MySQL" },
};

const KEYS = {
  name: "keys",
  label: "Keys FIRST..LAST (empty: all rows)",
  hint: "Only these rows, both ends included, by the first column of the key: 1000..1999 or 1000.. (whole numbers and decimals)",
};

const UNTIL = {
  name: "until",
  label: "Until (empty: all that is in the log)",
  type: "datetime-local",
  hint: `In ${ZONE}: what was committed at or after this time is left for a later sync`,
};

// What each DAG is triggered for: the button's words, and what it will do. mustSayWhy: a reason has to be given.
export const RUNS = {
  sync: { label: "Sync now", says: (source) => `The log of ${source.source} is read up to its head, and merged.`, fields: [UNTIL] },
  verify: { label: "Verify", says: (source, what) => `Every value of ${what} is compared with the server, which reads these tables whole.` },
  repair: {
    label: "Repair",
    dag: "verify",
    says: (source, what) => `${what} is compared with the server, and the rows that differ, and only they, get the server's values.`,
    mustSayWhy: true,
    details: (source, tables) => (tables.length === 1 ? differences(source.source, tables[0]) : null),
  },
  bootstrap: {
    label: "Snapshot",
    says: (source, what) => `${what} is copied from the server and takes the place of what the lake has. The others stay.`,
    fields: [LOCK],
    ofOne: [KEYS],
  },
  maintain: { label: "Maintain", says: (source, what) => `Small data files of ${what} are put together. Old versions over ${number(source.history_hours)} h are deleted.` },
  feeds: { label: "Carry feeds", says: (source) => `Every feed of ${source.source} is carried to the newest batch; those that are stopped are tried again.` },
  resume: { label: "Resume", says: (source, what) => `${what} goes through the batches it missed. Fix first what stopped it.`, mustSayWhy: true },
  replay: { label: "Replay", says: (source, what) => `${what} is built once more beside the lake's own tables, from its snapshot and staged files. Nothing else changes.`, fields: [BATCH, PROVE] },
};

export const DECISIONS = {
  pause: { label: "Pause", says: (what) => `${what} stays as it is while the others continue, until it is resumed.` },
  resnapshot: { label: "Snapshot at next sync", says: (what) => `The next sync copies ${what} again from the server.` },
};

// To a page of Airflow's own. Inside Airflow's frame nothing may lead the window away but its own router.
export function airflow(path, ...words) {
  const href = `../${path}`;
  const go = (event) => {
    if (parent === window || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    parent.history.pushState(null, "", new URL(href, location.href));
    parent.dispatchEvent(new parent.PopStateEvent("popstate", { state: null }));
  };
  return el("a", { href, onclick: go }, ...words);
}

export const toRun = (dag, run) => airflow(`dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}`, run);

// {dag}/{run} where Airflow ran it, else a number of the run's own.
export function ofAirflow(run) {
  const at = run.indexOf("/");
  return el("span", { class: "mono" }, at < 0 ? run : toRun(run.slice(0, at), run.slice(at + 1)));
}

const several = (tables) => (tables.length === 1 ? tables[0] : tables.length ? `each of the ${number(tables.length)} tables` : null);

// A field left empty isn't sent.
const filled = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));

export function field({ name, label, required, options, checkbox, hint, type = "text" }) {
  const id = `field-${name}`;
  if (checkbox) return el("label", { class: "check" }, el("input", { type: "checkbox", name, id, checked: "" }), label);
  const input = options
    ? el("select", { name, id }, Object.entries(options).map(([value, words]) => el("option", { value }, words)))
    : el("input", { type, name, id, required: required ? "" : null, maxlength: "500", autocomplete: "off", "aria-describedby": hint ? `${id}-hint` : null });
  return [el("label", { for: id }, label), input, hint ? el("small", { id: `${id}-hint`, class: "quiet" }, hint) : null];
}

// act(values) gives what to show, as nodes or text; what it raises is shown, too, and can be tried again. details: nodes
// that are shown below what it says, or a promise of them. leaves: what the page shows is gone once it is done.
export function confirm({ title, says, label, fields = [], act, leave = "Cancel", details = null, leaves = false }) {
  const more = el("div", { class: "details" });
  Promise.resolve(details).then((nodes) => more.replaceChildren(...[nodes].flat().filter(Boolean)),
    (error) => more.replaceChildren(el("p", { class: "warn note" }, error.message)));
  const outcome = el("div", { role: "status" });
  const button = el("button", { type: "submit", class: "primary" }, label);
  const cancel = el("button", { type: "button", onclick: () => dialog.close() }, leave);
  const form = el("form", { onsubmit: submit }, fields.map(field), outcome, el("div", { class: "buttons" }, cancel, button));
  const dialog = el("dialog", { "aria-labelledby": "dialog-title", onclose: closed },
    el("h2", { id: "dialog-title" }, title), el("p", {}, sentence(says)), more, form);

  function closed() {
    const isDone = !button.isConnected;
    dialog.remove();
    if (leaves && isDone) location.search = "";
    else dispatchEvent(new Event("changed")); // nothing was drawn again while it was open
  }

  // What came of it is shown above the page where the dialog was closed before.
  function result(note) {
    if (dialog.isConnected) outcome.replaceChildren(note);
    else document.getElementById("notices").replaceChildren(el("strong", {}, title), note);
  }

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    outcome.replaceChildren(el("p", { class: "none note" }, el("span", { class: "spinner", "aria-hidden": "true" }), "asked …"));
    const values = Object.fromEntries([...form.elements].filter((input) => input.name).map((input) =>
      [input.name, input.type === "checkbox" ? input.checked : input.value.trim()]));
    try {
      result(el("p", { class: "good note" }, await act(values)));
      button.remove();
      cancel.textContent = "Close";
      cancel.focus();
      if (!leaves) dispatchEvent(new Event("changed"));
    } catch (error) {
      const remedy = error.remedy ? el("span", { class: "todo" }, error.remedy) : null;
      result(el("p", { class: "bad note", role: "alert" }, error.message, remedy));
      button.disabled = false;
    }
  }

  document.body.append(dialog);
  dialog.showModal();
}

export const opens = (label, title, open, { kind = null, of = "" } = {}) =>
  el("button", { type: "button", id: `${label} ${of}`, "aria-label": `${label} ${of}`, class: kind, title, onclick: open }, label);

// A name that begins it stays as it is written.
const sentence = (words) => (/^\S*[._]\S/.test(words) ? words : words.charAt(0).toUpperCase() + words.slice(1));

// What came of a run that was asked for, with the way to it.
export const triggered = ({ message: outcome, dag_id, run_id }) => (run_id ? [`${outcome}: `, toRun(dag_id, run_id)] : outcome);

// source: as the API gives it. Null where the user may not, or where Airflow has no such DAG; a second first snapshot
// isn't offered.
export function runButton(source, what, { tables = [], label = RUNS[what].label, kind = null } = {}) {
  const { says, fields = [], ofOne = [], dag: named = what, mustSayWhy = false, details = () => null } = RUNS[what];
  const dag = source.dags?.[named];
  if (!source.may?.[named] || !dag || (what === "bootstrap" && source.is_copied_first)) return null;
  const words = several(tables) ?? (what === "bootstrap" ? "Each table that isn't followed yet" : "all tables");
  const open = () => confirm({
    title: `${label}: ${several(tables) ?? source.source}`,
    says: says(source, words),
    label,
    details: details(source, tables),
    fields: [...fields, ...(tables.length === 1 ? ofOne : []), ...(dag.is_paused ? [{ name: "unpause", checkbox: true, label: `Unpause ${dag.dag_id}, without which nothing runs` }] : []), mustSayWhy ? WHY : MAY_BE_WHY],
    act: async (values) => {
      const until = values.until ? { until: withZone(values.until) } : {};
      return triggered(await post(`${pathOf(source.source)}/${what}`, { ...filled(values), ...until, ...(tables.length ? { tables } : {}) }));
    },
  });
  return opens(label, `Triggers the DAG ${dag.dag_id}`, open, { kind, of: several(tables) ?? source.source });
}

// what: pause or resnapshot, of each table.
export function decisionButton(source, what, tables) {
  if (!source.may?.edit) return null;
  const { label, says } = DECISIONS[what];
  const open = () => confirm({ title: `${label}: ${several(tables)}`, says: says(several(tables)), label, fields: [WHY], act: (values) => decideEach(source, what, tables, values) });
  return opens(label, "Recorded with your name", open, { of: several(tables) ?? source.source });
}

// One after the other; what is refused of one is shown with its name, and the others are done.
async function decideEach(source, what, tables, values) {
  const refused = [];
  let last = "";
  for (const table of tables) {
    try {
      last = (await post(`${pathOf(source.source, table)}/${what}`, values)).message;
    } catch (error) {
      if (tables.length === 1) throw error;
      refused.push(`${table}: ${error.message}`);
    }
  }
  const done = tables.length - refused.length;
  if (!done) throw new Error(refused.join("\n"));
  return tables.length === 1 ? last : [`done for ${number(done)} of ${number(tables.length)}`, ...refused.map((words) => el("span", { class: "why" }, words))];
}

export function unpauseButton(source, what) {
  const dag = source.dags?.[what];
  if (!source.may?.edit || !dag) return null;
  const open = () => confirm({
    title: `Unpause ${dag.dag_id}`,
    says: "Airflow then schedules it again.",
    label: "Unpause",
    fields: [MAY_BE_WHY],
    act: async (values) => (await post(`${pathOf(source.source)}/dags/${what}/unpause`, values)).message,
  });
  return opens("Unpause", `Unpauses the DAG ${dag.dag_id}`, open, { kind: "primary", of: dag.dag_id });
}

// Ends a run's tasks, as Airflow's own UI does when a run is marked failed.
export function cancelButton(source, { what, dag_id, run_id }) {
  const open = () => confirm({
    title: `Cancel ${run_id}`,
    says: "The run is marked failed, and its tasks are ended. What is committed stays; the next run continues where this one ended.",
    label: "Cancel the run",
    leave: "Keep it running",
    fields: [MAY_BE_WHY],
    act: async (values) => (await post(`${pathOf(source)}/dags/${what}/cancel`, { run_id, ...values })).message,
  });
  return opens("Cancel", `Marks the run of ${dag_id} failed`, open, { of: run_id });
}

export function skipButton(source, { file, offset }) {
  if (!source.may?.edit) return null;
  const open = () => confirm({
    title: `Skip the event at ${file}:${offset}`,
    says: "What the event did will not be in the lake. Verify the tables that it may concern, or snapshot them.",
    label: "Skip it",
    fields: [WHY],
    act: async (values) => (await post(`${pathOf(source.source)}/skip-event`, { file, offset, ...values })).message,
  });
  return opens("Skip the event", "Recorded with your name", open);
}

// Of a schema change at which a table waits.
export function answerButton(source, waits, yes) {
  const word = yes ? "Yes" : "No";
  const open = () => confirm({
    title: `${word}: ${waits.table}`,
    says: `${waits.changes.join(", ")}. ${word}: ${yes ? waits.yes : waits.no}`,
    label: yes ? "Yes, follow it" : "No, don't",
    fields: [WHY],
    act: async (values) => (await post(`${pathOf(source.source, waits.table)}/schema-change`, { yes, place: waits.place, ...values })).message,
  });
  return opens(word, "Recorded with your name", open, { of: waits.table, ...(yes ? { kind: "primary" } : {}) });
}

// Where the YAML lets who may edit put differing rows right.
export function repairButton(source, tables) {
  return source.may?.edit && source.repair !== "never" ? runButton(source, "repair", { tables, kind: "primary" }) : null;
}

// What can be done about one table, or several, that are in these states.
export function tableButtons(source, tables, states) {
  const all = (...words) => states.every((word) => words.includes(word));
  return el("div", { class: "buttons" },
    all("paused", "stopped") ? runButton(source, "resume", { tables }) : null,
    all("following") ? decisionButton(source, "pause", tables) : null,
    all("following", "stopped", "paused", "catching up", "missing") ? decisionButton(source, "resnapshot", tables) : null,
    all("dropped") ? null : runButton(source, "bootstrap", { tables, label: "Snapshot now" }),
    all("following") ? runButton(source, "verify", { tables }) : null,
    all("following") ? runButton(source, "maintain", { tables }) : null,
    all("following", "stopped") ? runButton(source, "replay", { tables }) : null);
}
