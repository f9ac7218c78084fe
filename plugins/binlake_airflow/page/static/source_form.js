// The form for a new source: its server, the tables to mirror, a preview with the doctor's lines, and the file.

import { airflow, field } from "./actions.js";
import { ask, post } from "./api.js";
import { advice, el, link, table } from "./elements.js";
import { bytes, number } from "./words.js";

const ADDRESS = [
  { name: "host", label: "Host" },
  { name: "port", label: "Port (empty: 3306)", type: "number" },
  { name: "login", label: "Login" },
  { name: "password", label: "Password", type: "password", hint: "Kept as an Airflow connection; the YAML names its id alone" },
];
const REST = [
  { name: "name", label: "Name of the source", required: true, hint: "Letters, digits, _ and -: the file and the DAGs are called after it" },
  { name: "lake", label: "Lake", required: true, hint: "A folder, or an object store's URL such as s3://bucket/lake" },
  { name: "schedule", label: "Schedule", required: true, hint: "Of the syncs, as cron in UTC" },
];

const columns = [
  { name: "Tables", key: "pattern", sort: (offer) => offer.pattern, cell: (offer) => el("span", { class: "mono" }, offer.pattern) },
  { name: "Number", key: "tables", number: true, title: "Of a whole database also those that it will have", sort: (offer) => offer.tables, cell: (offer) => number(offer.tables) },
  { name: "Rows", key: "rows", number: true, title: "The server's estimate", sort: (offer) => offer.rows, cell: (offer) => number(offer.rows) },
  { name: "Size", key: "bytes", number: true, title: "The server's estimate", sort: (offer) => offer.bytes, cell: (offer) => bytes(offer.bytes) },
];

const HEALTH = new Map([[true, "good"], [false, "bad"], ["warn", "warn"]]);
const checks = (lines) =>
  advice(lines.map(({ name, ok, found, remedy }) => ({ health: HEALTH.get(ok), what: `${name}: ${found}`, remedy })));

const filled = (form) =>
  Object.fromEntries([...form.elements].filter((input) => input.name && input.value !== "" && !input.closest("[hidden]")).map((input) =>
    [input.name, input.type === "number" ? Number(input.value) : input.type === "password" ? input.value : input.value.trim()]));

// A form whose button does something and shows what came of it below.
function step(fields, label, work) {
  const said = el("div", { role: "status" });
  const button = el("button", { type: "submit", class: "primary" }, label);
  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    said.replaceChildren(el("p", { class: "none note" }, el("span", { class: "spinner", "aria-hidden": "true" }), "asked …"));
    try {
      said.replaceChildren(...[await work()].flat().filter(Boolean));
    } catch (error) {
      const remedy = error.remedy ? el("span", { class: "todo" }, error.remedy) : null;
      said.replaceChildren(el("p", { class: "bad note", role: "alert" }, error.message, remedy));
    }
    button.disabled = false;
  }
  const form = el("form", { onsubmit: submit }, fields, el("div", { class: "buttons" }, button));
  return { form, box: el("div", {}, form, said) };
}

function yaml(preview) {
  const copy = async () => navigator.clipboard?.writeText(preview.yaml) ?? getSelection().selectAllChildren(text);
  const text = el("pre", { class: "mono yaml", "aria-label": "The YAML" }, preview.yaml);
  return [el("h2", {}, preview.file), text, el("div", { class: "buttons" }, el("button", { type: "button", onclick: copy }, "Copy the text"))];
}

function written({ message: outcome, connection, file }, name) {
  const dags = airflow(`dags?tags=${encodeURIComponent(name)}`, "Airflow's list");
  return el("p", { class: "good note" }, outcome, el("span", { class: "todo" },
    `then come back to it here, and take its first snapshot: ${name} is among the sources once its DAGs are in `, dags, `; it connects by ${connection}`),
  link({ source: name }, `To ${name}`), el("span", { class: "under" }, file));
}

export async function newSource() {
  const begun = await ask("new-source");
  if (begun.problem) return [el("div", { class: "card" }, advice([{ health: "warn", what: begun.problem.detail, remedy: begun.problem.remedy }]))];
  const picked = new Set();
  const address = el("fieldset", {}, el("legend", {}, "A new connection"), ADDRESS.map(field));
  const options = { "": "a new one, by its address", ...Object.fromEntries(begun.connections.map((id) => [id, id])) };
  const chosen = field({ name: "connection", label: "Airflow connection", options });
  const look = step([chosen, address], "Look at the server", async () => {
    const { server, offers } = await post("new-source/tables", filled(look.form));
    const rows = offers.map((offer) => ({ ...offer, table: offer.pattern }));
    picked.clear();
    const list = table("Tables of the server", columns, rows, { empty: "The account sees no table.", picked, onpick: () => {} });
    return [el("p", { class: "good note" }, server), el("h2", {}, "Tables to mirror"), list, rest.box];
  });
  look.form.elements.connection.addEventListener("change", ({ target }) => (address.hidden = target.value !== ""));

  const asked = () => ({ ...filled(look.form), ...filled(rest.form), include: [...picked] });
  const rest = step(REST.map(field), "Preview", async () => {
    if (!picked.size) throw new Error("pick a database or tables first");
    const given = asked();
    const preview = await post("new-source/preview", given);
    const write = step([], `Write ${preview.file}`, async () =>
      written(await post("new-source/write", { ...given, server_id: preview.server_id }), given.name));
    const refused = advice([{ health: "warn", what: preview.unwritable, remedy: `copy the text into a file there, and make the connection ${preview.connection} below Admin → Connections` }]);
    return [...yaml(preview), el("h2", {}, "Checks"), checks(preview.checks), preview.unwritable ? refused : write.box];
  });
  rest.form.elements.lake.value = begun.lake;
  rest.form.elements.schedule.value = "0 * * * *";
  return [el("section", { class: "card", "aria-label": "A new source" }, el("h2", {}, "The server"), look.box)];
}
