// Parts of forms with errors beside their fields, and the doctor's lines as both forms show them.

import { advice, el } from "./elements.js";
import { counted, number } from "./words.js";

// name, label; hint; type of the input, or options (value: words), or lines: of a list, one each; value: at first.
export function entry({ name, label, hint, options, lines, required, value = "", type = "text" }) {
  const id = `field-${name}`;
  const attributes = { name, id, required: required ? "" : null, autocomplete: "off", spellcheck: "false", "aria-describedby": `${id}-hint ${id}-error` };
  if (type === "checkbox") return el("div", {}, el("label", { class: "check" }, el("input", { type, ...attributes }), label), below(id, hint));
  const input = options
    ? el("select", attributes, Object.entries(options).map(([option, words]) => el("option", { value: option }, words)))
    : lines
      ? el("textarea", { rows: "2", class: "mono", "data-lines": "", ...attributes })
      : el("input", { type, maxlength: "1000", step: type === "number" ? "any" : null, ...attributes });
  input.value = value;
  return el("div", {}, el("label", { for: id }, label), input, below(id, hint));
}

const below = (id, hint) => [
  hint ? el("small", { id: `${id}-hint`, class: "quiet" }, hint) : null,
  el("small", { id: `${id}-error`, class: "wrong", role: "alert" }),
];

// What the fields hold, by name; of empty ones nothing.
export function filled(form) {
  const inputs = [...form.elements].filter((input) => input.name && !input.closest("[hidden]"));
  return Object.fromEntries(inputs.map((input) => [input.name, held(input)]).filter(([, value]) => value !== ""));
}

function held(input) {
  if (input.type === "checkbox") return input.checked;
  if (input.type === "password") return input.value;
  if (input.type === "number") return input.value === "" ? "" : Number(input.value);
  if (!("lines" in input.dataset)) return input.value.trim();
  const lines = input.value.split("\n").map((line) => line.trim()).filter(Boolean);
  return lines.length ? lines : "";
}

// Puts each error beside its field, and gives those that have none in these forms.
export function mark(forms, fields = {}) {
  const inputs = forms.flatMap((form) => [...form.elements]).filter((input) => input.name);
  for (const input of inputs) show(input, "");
  const shown = inputs.filter((input) => fields[input.name]);
  for (const input of shown) show(input, fields[input.name]);
  shown[0]?.closest("details")?.setAttribute("open", "");
  shown[0]?.focus();
  const names = new Set(shown.map((input) => input.name));
  return Object.entries(fields).filter(([name]) => !names.has(name)).map(([, text]) => text);
}

function show(input, text) {
  const place = document.getElementById(`${input.id}-error`);
  if (place) place.textContent = text;
  if (text) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
}

// A form whose button does something and shows what came of it below. forms(): those whose fields an error may be of.
export function step(fields, label, work, forms = null) {
  const said = el("div", { role: "status" });
  const button = el("button", { type: "submit", class: "primary" }, label);
  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    const all = forms ? forms() : [form];
    mark(all);
    said.replaceChildren(el("p", { class: "none note" }, el("span", { class: "spinner", "aria-hidden": "true" }), "asked …"));
    try {
      said.replaceChildren(...[await work()].flat(Infinity).filter(Boolean));
    } catch (error) {
      said.replaceChildren(refusal(error, all));
    }
    button.disabled = false;
  }
  const form = el("form", { class: "fields", onsubmit: submit }, fields, el("div", { class: "buttons" }, button));
  return { form, box: el("div", {}, form, said) };
}

function refusal(error, forms) {
  const marked = error.fields ? Object.keys(error.fields).length : 0;
  const others = marked ? mark(forms, error.fields) : [error.message];
  const beside = marked - others.length;
  const words = [beside ? `${counted(beside, "field")} above ${beside === 1 ? "needs" : "need"} a look` : null, ...others].filter(Boolean);
  const remedy = error.remedy ? el("span", { class: "todo" }, error.remedy) : null;
  return el("p", { class: "bad note", role: "alert" }, words.join("\n"), remedy);
}

export function copyable(label, text, words) {
  const shown = el("pre", { class: "mono yaml", "aria-label": label }, text);
  const copy = async () => navigator.clipboard?.writeText(text) ?? getSelection().selectAllChildren(shown);
  return [shown, el("div", { class: "buttons" }, el("button", { type: "button", onclick: copy }, words))];
}

export const failing = (checks) => checks.filter(({ ok }) => ok === false).length;

const lines = (checks, health) => advice(checks.map(({ name, found, remedy }) => ({ health, what: `${name}: ${found}`, remedy })));

// The doctor's lines: a sentence, what fails and what is to be looked at, the missing grants at once, and the rest folded.
export function checked(checks, grants) {
  const [bad, warned, passed] = [false, "warn", true].map((state) => checks.filter(({ ok }) => ok === state));
  const health = bad.length ? "bad" : warned.length ? "warn" : "good";
  const words = [bad.length ? `${number(bad.length)} failing` : null, warned.length ? counted(warned.length, "warning") : null].filter(Boolean).join(", ");
  return el("section", { "aria-label": "Checks" },
    el("h2", {}, "Checks"),
    el("p", { class: `${health} note` }, el("strong", {}, words || "all is well"), `, ${number(passed.length)} passed`),
    grants.length > 1 ? el("div", {}, el("h3", {}, "All grants that are missing"), copyable("Missing grants", grants.join("\n"), "Copy the grants")) : null,
    lines(bad, "bad"),
    lines(warned, "warn"),
    passed.length ? el("details", {}, el("summary", {}, `${number(passed.length)} passed`), lines(passed, "good")) : null);
}
