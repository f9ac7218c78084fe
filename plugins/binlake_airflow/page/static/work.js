// What works on a source at the moment: asked every second, so that a step's progress is seen as it continues.

import { cancelButton, toRun } from "./actions.js";
import { ask, pathOf } from "./api.js";
import { el } from "./elements.js";
import { duration } from "./words.js";

const EVERY_MS = 1000;
const STEPS = { snapshot: "copying tables", staged: "reading the log", merged: "merging", compared: "comparing" };
const place = document.getElementById("at-work");
const lines = new Map(); // by run or step: what is shown of it, so that a button stays while it is pressed
let followed = null;

const since = (us, now_us) => (us ? ` for ${duration((now_us - us) / 1e6)}` : "");

// Shows a line's words, and makes the line where there is none: with what beside() gives.
function line(key, words, beside) {
  if (!lines.has(key)) {
    const said = el("span", {});
    lines.set(key, { said, more: beside(), node: null });
    const shown = lines.get(key);
    shown.node = el("div", { class: "step" }, said, shown.more);
    place.append(shown.node);
  }
  const shown = lines.get(key);
  shown.said.replaceChildren(...words.flat(Infinity).filter(Boolean));
  return shown;
}

function runLine(source, run, now_us) {
  const tasks = run.tasks.map(({ task, since_us }) => [" · ", task, since(since_us, now_us)]);
  const words = [`${run.what} `, toRun(run.dag_id, run.run_id), run.since_us ? since(run.since_us, now_us) : " is queued", tasks];
  line(`run ${run.run_id}`, words, () => (run.may_cancel ? cancelButton(source, run) : null));
}

function stepLine(step, now_us) {
  const percent = step.total ? Math.min(100, Math.floor((100 * step.done) / step.total)) : 0;
  const words = `${STEPS[step.step]}: ${percent} %`;
  const shown = line(`step ${step.step}`, [words, since(step.began_us, now_us), step.detail ? ` · ${step.detail}` : null],
    () => el("progress", { max: "100", "aria-label": STEPS[step.step] }));
  shown.more.value = percent;
}

async function look() {
  const { source, runs, steps, now_us } = await ask(`${pathOf(followed)}/work`);
  const there = new Set([...runs.map((run) => `run ${run.run_id}`), ...steps.map((step) => `step ${step.step}`)]);
  const over = [...lines.keys()].filter((key) => !there.has(key));
  for (const key of over) {
    lines.get(key).node.remove();
    lines.delete(key);
  }
  for (const run of runs) runLine(source, run, now_us);
  for (const step of steps) stepLine(step, now_us);
  place.hidden = !lines.size;
  if (over.length) dispatchEvent(new Event("changed")); // what it did is to be seen
}

// Shows it from now on, above the page.
export function followWork(source) {
  if (followed) return;
  followed = source;
  const again = async () => {
    if (!document.hidden) await look().catch(() => {}); // the page's own refresh shows what is wrong
    setTimeout(again, EVERY_MS);
  };
  again();
}
