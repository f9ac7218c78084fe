// A source's YAML to be edited: what is wrong beside its line, the difference, the doctor's lines, and the file.

import { confirm, MAY_BE_WHY } from "./actions.js";
import { ask, pathOf, post } from "./api.js";
import { advice, el, link } from "./elements.js";
import { checked, entry, failing, step } from "./form_parts.js";
import { counted, number } from "./words.js";

const AROUND = 1; // lines before and after one that is wrong

// Each problem below the line that it is of, with the key; a click goes there in the text.
function problemsOf(problems, area) {
  const lines = area.value.trimEnd().split("\n");
  const go = (line) => () => {
    const from = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    area.focus();
    area.setSelectionRange(from, from + (lines[line - 1] ?? "").length);
  };
  const said = ({ line, key, text }) =>
    el("li", {}, line ? el("button", { type: "button", class: "link", onclick: go(line) }, `Line ${number(line)}`) : null, key ? [" ", el("code", {}, key)] : null, line || key ? ": " : null, text, line ? around(lines, line) : null);
  return [
    el("p", { class: "bad note", role: "alert" }, el("strong", {}, counted(problems.length, "error")), ": nothing is saved"),
    el("ul", { class: "problems", "aria-label": "Errors" }, problems.toSorted((a, b) => a.line - b.line).map(said)),
  ];
}

function around(lines, line) {
  const from = Math.max(0, line - 1 - AROUND);
  const shown = lines.slice(from, line + AROUND).map((text, at) =>
    el("span", { class: from + at === line - 1 ? "at" : null }, `${String(from + at + 1).padStart(4)}  ${text}\n`));
  return el("pre", { class: "mono yaml" }, shown);
}

const KINDS = [["+++", "quiet"], ["---", "quiet"], ["@@", "quiet"], ["+", "added"], ["-", "removed"]];

function difference(lines) {
  const kind = (line) => KINDS.find(([start]) => line.startsWith(start))?.[1];
  return el("pre", { class: "mono yaml diff", "aria-label": "The difference" }, lines.map((line) => el("span", { class: kind(line) }, `${line}\n`)));
}

function checksOf({ checks, grants, unasked }) {
  if (unasked) return el("p", { class: "warn note" }, `The source's server wasn't asked: ${unasked}. The next run's preflight says what it finds`);
  return checked(checks, grants);
}

// A source's YAML, or a file that is broken.
export async function editSource({ source, file }) {
  const path = file ? `broken/${encodeURIComponent(file)}` : `${pathOf(source)}/yaml`;
  const [named, back] = file ? [file, link({}, "To all sources")] : [source, link({ source }, `To ${source}`)];
  const begun = await ask(path);
  const area = el("textarea", { id: "yaml", name: "text", class: "mono yaml", rows: Math.min(40, begun.text.split("\n").length + 3), spellcheck: "false", wrap: "off", autocapitalize: "off" });
  area.value = begun.text;
  const given = () => ({ text: area.value, mark: begun.mark });

  function saved({ message: outcome, mark }) {
    begun.mark = mark; // it can be edited further
    return [outcome, " ", back];
  }

  // What was checked is what is saved, whatever is typed meanwhile.
  function save(checkedText, bad) {
    const why = entry(MAY_BE_WHY);
    const write = async () => saved(await post(`${path}/write`, { ...checkedText, why: form.form.elements.why.value }));
    const form = step([why], bad ? "Save …" : "Save", async () => (bad ? sure() : el("p", { class: "good note" }, await write())));
    const sure = () => confirm({
      title: "Save it with checks that fail?",
      says: `${counted(bad, "check")} above ${bad === 1 ? "fails" : "fail"}. Until that is fixed, runs of ${named} end with the same errors.`,
      label: "Save it anyway",
      act: write,
    });
    return form.box;
  }

  const check = step([el("label", { for: "yaml" }, begun.file), area], "Check, and show the difference", async () => {
    const now = given();
    const answer = await post(`${path}/check`, now);
    if (answer.problems.length) return problemsOf(answer.problems, area);
    if (!answer.diff.length) return el("p", { class: "none note" }, "Nothing is changed.");
    const refused = begun.unwritable ? advice([{ health: "warn", what: begun.unwritable }]) : null;
    return [checksOf(answer), el("h2", {}, "The difference"), difference(answer.diff), refused ?? save(now, failing(answer.checks))];
  });
  const hint = file
    ? "Comments are kept. What names code, other places and accounts, or who sees values is changed in the file itself."
    : "Comments are kept. What says where the lake is, who connects, what runs, or who sees values is changed in the file itself.";
  return [el("section", { class: "card", "aria-label": `Edit ${named}` }, el("h2", {}, file ? `The broken YAML ${file}` : "The source's YAML"), el("p", { class: "quiet" }, hint), check.box)];
}
