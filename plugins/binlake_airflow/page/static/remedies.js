// The buttons that an advice or a remedy names.

import { DECISIONS, decisionButton, repairButton, runButton, RUNS, skipButton, unpauseButton } from "./actions.js";
import { el, link } from "./elements.js";
import { startFollowingButton, unlockButton } from "./source_actions.js";

// Of what a remedy names; tables: of the row that it is said of, else those that it names. A snapshot of no table would
// copy those alone that aren't followed yet.
function fixButton(source, what, tables) {
  if (what in DECISIONS) return tables.length ? decisionButton(source, what, tables) : null;
  if (what === "unlock") return unlockButton(source);
  if (!(what in RUNS) || (["repair", "resume", "bootstrap", "replay"].includes(what) && !tables.length)) return null;
  if (what === "repair") return repairButton(source, tables);
  return runButton(source, what, { tables: what === "sync" ? [] : tables, ...(what === "bootstrap" ? { label: "Snapshot now" } : {}) });
}

export function fixButtons(source, fixes, tables = null) {
  const made = fixes.map((fix) => fixButton(source, fix.do, tables ?? fix.tables)).filter(Boolean);
  return made.length ? el("div", { class: "buttons" }, made) : null;
}

// The button of an advice, else those that its remedy names.
export const adviceButtons = (source, { button, fixes = [] }) => (button ? remedyButton(source, button) : fixButtons(source, fixes));

function remedyButton(source, button) {
  if (!button) return null;
  if (button.do === "repair") return repairButton(source, button.tables);
  if (button.do === "verify") return runButton(source, "verify", { tables: button.tables, kind: "primary" });
  if (button.do === "show") return link({ source: source.source, state: button.state }, "Show them");
  if (button.do === "unpause") return unpauseButton(source, button.dag);
  if (button.do === "follow") return startFollowingButton(source, "primary");
  if (button.do === "skip-event") return skipButton(source, button);
  return runButton(source, button.do, { tables: button.do === "bootstrap" ? button.tables : [], kind: "primary" });
}
