// Schema changes at which tables wait for a yes or a no.

import { answerButton } from "./actions.js";
import { el, facts, moments, toTable } from "./elements.js";

function change(source, waits) {
  const buttons = source.may?.edit
    ? el("div", { class: "buttons" }, answerButton(source, waits, true), answerButton(source, waits, false))
    : el("p", { class: "quiet" }, `Who may edit the DAG of ${source.source}'s sync may answer.`);
  const behind = waits.behind ? ` Later statements of the table wait behind it: ${waits.behind}. Each is asked about in its turn.` : "";
  return el("section", { class: "card" },
    el("div", { class: "head" }, el("h3", {}, toTable(source.source, waits.table)), el("span", { class: "quiet" }, "since ", moments(waits.committed_us, source.now_us)), buttons),
    el("pre", {}, waits.statement),
    facts(
      ["Before", waits.before.join(", "), null, "double"],
      ["After", waits.after.join(", ") || "not known", null, "double"],
      ["It", waits.changes.join(", ") || "gives the table columns that aren't known here", null, "double"],
      ["Yes", waits.yes, null, "double"],
      ["No", waits.no, null, "double"],
      ["Needs the log from", el("span", { class: "mono" }, waits.needs), "The table's part of it is read again after an answer: the server must keep it until then"],
    ),
    el("p", { class: "quiet" }, `The table waits before the statement (${waits.asked.join(", ")}); the others continue.${behind}`));
}

export const waitingChanges = (source) =>
  source.waiting?.length ? [el("h2", { id: "waiting" }, "Waiting for an answer"), ...source.waiting.map((waits) => change(source, waits))] : [];
