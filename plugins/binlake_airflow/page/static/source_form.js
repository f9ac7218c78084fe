// The form for a new source: its server, the tables to mirror, settings, a preview with the doctor's lines, and the file.

import { airflow, confirm } from "./actions.js";
import { ask, post } from "./api.js";
import { advice, el, link, table } from "./elements.js";
import { checked, copyable, entry, failing, filled, step } from "./form_parts.js";
import { ADDRESS, ALARMS, CHOICES, PATTERNS, SOURCE, VERIFY, WORK } from "./source_settings.js";
import { bytes, counted, number } from "./words.js";

const OWN = ["name", "lake", "schedule"];

const columns = [
  { name: "Tables", key: "pattern", sort: (offer) => offer.pattern, cell: (offer) => el("span", { class: "mono" }, offer.pattern) },
  { name: "Number", key: "tables", number: true, title: "Of a whole database also those that it will have", sort: (offer) => offer.tables, cell: (offer) => number(offer.tables) },
  { name: "Rows", key: "rows", number: true, title: "The server's estimate", sort: (offer) => offer.rows, cell: (offer) => number(offer.rows) },
  { name: "Size", key: "bytes", number: true, title: "The server's estimate", sort: (offer) => offer.bytes, cell: (offer) => bytes(offer.bytes) },
];

// The server's tables, with a search; what is picked stays picked where it isn't shown.
function offered(offers, picked) {
  const rows = offers.map((offer) => ({ ...offer, table: offer.pattern }));
  const count = el("span", { class: "quiet", role: "status" });
  const result = el("div");
  const search = el("input", { type: "search", id: "search-tables", placeholder: "Part of a name", oninput: filter });

  function filter() {
    const words = search.value.trim().toLowerCase();
    const fitting = rows.filter((row) => row.pattern.toLowerCase().includes(words));
    result.replaceChildren(table("Tables of the server", columns, fitting, { empty: rows.length ? "No table fits." : "The account sees no table. Write patterns below: the checks of the preview then list all grants that it lacks.", picked, onpick: tell }));
    tell(fitting);
  }

  function tell(fitting = null) {
    shown = fitting ?? shown;
    count.textContent = `${number(shown.length)} of ${number(rows.length)}, ${number(picked.size)} picked`;
  }

  let shown = rows;
  filter();
  return [el("div", { class: "tools" }, el("label", { for: "search-tables" }, "Search"), search, count), result];
}

const part = (legend, ...parts) => el("fieldset", {}, el("legend", {}, legend), parts);

function choice(name, { choices, defaults }) {
  const [label, words] = CHOICES[name];
  return { name, label, options: Object.fromEntries(choices[name].map((value) => [value, words[value] ?? value])), value: defaults[name] };
}

function settings(begun) {
  const policies = Object.keys(begun.choices).filter((name) => !VERIFY.some((field) => field.name === name));
  const known = (field) => (field.name in begun.choices ? choice(field.name, begun) : { value: begun.defaults[field.name], ...field });
  return [
    part("Tables and columns", PATTERNS.map(entry)),
    part("The source", SOURCE.map((field) => entry({ value: field.name === "lake" ? begun.lake : "", ...field }))),
    part("When it runs", WORK.map(known).map(entry)),
    part("Verification", VERIFY.map(known).map(entry)),
    part("Alarms", ALARMS.map(entry)),
    el("details", {}, el("summary", {}, "Policies: what is done about statements and values that can't simply be followed"), el("div", { class: "several" }, policies.map((name) => entry(choice(name, begun))))),
  ];
}

// What is asked for: settings that are as by default are left out.
function asked(look, rest, picked, { defaults }) {
  const { follows, "follow.every": every = defaults["follow.every"], include = [], ...given } = filled(rest);
  const own = Object.entries(given).filter(([name]) => OWN.includes(name));
  const others = Object.entries(given).filter(([name, value]) => !OWN.includes(name) && value !== defaults[name]);
  if (follows) others.push(["follow.every", every]);
  if (!("verify.schedule" in given)) others.push(["verify.schedule", null]);
  return { ...filled(look), ...Object.fromEntries(own), include: [...new Set([...picked, ...include])], settings: Object.fromEntries(others) };
}

function written({ message: outcome, connection, file }, name) {
  const dags = airflow(`dags?tags=${encodeURIComponent(name)}`, "Airflow's list");
  return [outcome, el("span", { class: "todo" },
    `then come back to it here, and take its first snapshot: ${name} is among the sources once its DAGs are in `, dags, `; it connects by ${connection}`),
  link({ source: name }, `To ${name}`), el("span", { class: "under" }, file)];
}

// The button that writes the file; it asks first where checks fail.
function writeButton(preview, given, forms) {
  const write = async () => written(await post("new-source/write", { ...given, server_id: preview.server_id }), given.name);
  const label = `Write ${preview.file}`;
  const bad = failing(preview.checks);
  if (!bad) return step([], label, async () => el("p", { class: "good note" }, await write()), forms).box;
  const open = () => confirm({
    title: "Write it with checks that fail?",
    says: `${counted(bad, "check")} above ${bad === 1 ? "fails" : "fail"}. Until that is fixed, runs of ${given.name} end with the same errors.`,
    label: "Write it anyway",
    act: write,
  });
  return el("div", { class: "buttons" }, el("button", { type: "button", onclick: open }, `${label} …`));
}

export async function newSource() {
  const begun = await ask("new-source");
  if (begun.problem) return [el("div", { class: "card" }, advice([{ health: "warn", what: begun.problem.detail, remedy: begun.problem.remedy }]))];
  const picked = new Set();
  const forms = () => [look.form, rest.form];
  const address = part("A new connection", ADDRESS.map(entry));
  const options = { "": "a new one, by its address", ...Object.fromEntries(begun.connections.map((id) => [id, id])) };
  const look = step([entry({ name: "connection", label: "Airflow connection", options }), address], "Look at the server", async () => {
    const { server, offers } = await post("new-source/tables", filled(look.form));
    picked.clear();
    return [el("p", { class: "good note" }, server), el("h2", {}, "Tables to mirror"), offered(offers, picked), rest.box];
  });
  look.form.elements.connection.addEventListener("change", ({ target }) => (address.hidden = target.value !== ""));

  const rest = step(settings(begun), "Preview", async () => {
    const given = asked(look.form, rest.form, picked, begun);
    if (!given.include.length) throw Object.assign(new Error(), { fields: { include: "pick a database or tables in the list, or write a pattern" } });
    const preview = await post("new-source/preview", given);
    const refused = advice([{ health: "warn", what: preview.unwritable, remedy: `copy the text into a file there, and make the connection ${preview.connection} below Admin → Connections` }]);
    return [checked(preview.checks, preview.grants), el("h2", {}, preview.file), copyable("The YAML", preview.yaml, "Copy the text"), preview.unwritable ? refused : writeButton(preview, given, forms)];
  }, forms);
  return [el("section", { class: "card", "aria-label": "A new source" }, el("h2", {}, "The server"), look.box)];
}
