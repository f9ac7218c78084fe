// Buttons about a source as a whole: following, pausing, pinned versions, a dead run's lease, removal.

import { confirm, MAY_BE_WHY, opens, triggered } from "./actions.js";
import { ask, pathOf, post } from "./api.js";
import { el, moments, table, toBatch, toTable } from "./elements.js";
import { bytes, counted, number } from "./words.js";

const CARRIERS = ["sync", "follow", "verify", "maintain", "feeds"]; // that work by themselves
const WORDS = { sync: "syncs", follow: "following", verify: "comparisons", maintain: "upkeep", feeds: "feeds" };

const asks = (source, path) => async (values) => (await post(`${pathOf(source.source)}/${path}`, values)).message;

export function startFollowingButton(source, kind = null) {
  const dag = source.dags?.follow;
  if (!source.may?.follow || !source.may.edit || !dag) return null;
  const open = () => confirm({
    title: `Start following: ${source.source}`,
    says: `${dag.is_paused ? `${dag.dag_id} is unpaused, and a` : "A"} run of it begins: the log is followed in batches of seconds.`,
    label: "Start following",
    fields: [MAY_BE_WHY],
    act: async (values) => triggered(await post(`${pathOf(source.source)}/follow/start`, values)),
  });
  return opens("Start following", `Unpauses and triggers the DAG ${dag.dag_id}`, open, { kind, of: source.source });
}

function stopFollowingButton(source) {
  const dag = source.dags?.follow;
  if (!source.may?.follow || !source.may.edit || !dag || dag.is_paused) return null;
  const open = () => confirm({
    title: `Stop following: ${source.source}`,
    says: `${dag.dag_id} is paused. Its task ends within seconds, between two steps; from here on syncs carry the lake, by their schedule.`,
    label: "Stop following",
    fields: [MAY_BE_WHY],
    act: asks(source, "follow/stop"),
  });
  return opens("Stop following", `Pauses the DAG ${dag.dag_id}`, open, { of: source.source });
}

function pauseButton(source) {
  const running = CARRIERS.filter((what) => source.dags?.[what] && !source.dags[what].is_paused);
  if (!source.may?.edit || !running.length) return null;
  const open = () => confirm({
    title: `Pause the source ${source.source}`,
    says: `Its ${running.map((what) => WORDS[what]).join(", ")} are paused. What runs now ends as usual. The server keeps its log meanwhile, for as long as it is set to. So ${source.source}'s limits are still checked, by the DAG binlake_${source.source}_watch where there is one: it warns before the server deletes log that the lake needs.`,
    label: "Pause the source",
    fields: [MAY_BE_WHY],
    act: asks(source, "pause"),
  });
  return opens("Pause the source", `Pauses ${running.length} DAGs`, open, { of: source.source });
}

function resumeButton(source) {
  const paused = CARRIERS.filter((what) => source.dags?.[what]?.is_paused);
  if (!source.may?.edit || !paused.length) return null;
  const open = () => confirm({
    title: `Resume the source ${source.source}`,
    says: "What is chosen here is unpaused: Airflow schedules it again.",
    label: "Resume the source",
    fields: [...paused.map((what) => ({ name: what, checkbox: true, label: `${WORDS[what]} (${source.dags[what].dag_id})` })), MAY_BE_WHY],
    act: async ({ why, ...chosen }) =>
      (await post(`${pathOf(source.source)}/unpause`, { why, dags: paused.filter((what) => chosen[what]) })).message,
  });
  return opens("Resume the source", `Unpauses ${paused.length} DAGs`, open, { of: source.source });
}

// batch: null for the newest.
export function pinButton(source, batch = null) {
  if (!source.may?.edit || !source.batch) return null;
  const chosen = batch ?? source.batch;
  const open = () => confirm({
    title: `Pin batch ${number(chosen)} of ${source.source}`,
    says: "All tables are kept as they were behind this batch, however old they become, and can be queried by the name.",
    label: "Pin",
    fields: [{ name: "name", label: "Name of the version", required: true, hint: "Letters, digits and _, a letter first" }, MAY_BE_WHY],
    act: async (values) => (await post(`${pathOf(source.source)}/pins`, { batch: chosen, ...values })).message,
  });
  return opens("Pin", `Keeps the version of batch ${number(chosen)}`, open, { of: `batch ${number(chosen)}` });
}

function unpinButton(source, { name, batch }) {
  if (!source.may?.edit) return null;
  const open = () => confirm({
    title: `Unpin ${name}`,
    says: `Batch ${number(batch)} isn't kept any longer: the upkeep deletes its files once no promise needs them.`,
    label: "Unpin",
    fields: [MAY_BE_WHY],
    act: async (values) => (await post(`${pathOf(source.source)}/unpin`, { name, ...values })).message,
  });
  return opens("Unpin", "The upkeep may then delete its files", open, { of: name });
}

export function unlockButton(source) {
  if (!source.may?.edit) return null;
  const open = () => confirm({
    title: `Unlock ${source.source}`,
    says: source.holder
      ? `${source.holder} holds the source. Its lease is taken away: if that process is still alive, it can write nothing any more, and its run fails.`
      : "The lease is freed, or made again where it is gone and that is safe.",
    label: "Unlock",
    fields: [MAY_BE_WHY],
    act: asks(source, "unlock"),
  });
  return opens("Unlock", "Takes the lease from a run that is dead", open, { of: source.source });
}

// What stays behind, and where; it is asked when the dialog opens.
async function staying(source) {
  const { file, lake, tables, bytes: size, unmeasured, hindrance } = await ask(`${pathOf(source.source)}/removal`);
  const measured = unmeasured < tables ? `, ${bytes(size)}` : "";
  const rest = unmeasured ? `, ${counted(unmeasured, "table")} not measured yet` : "";
  return [
    el("p", {}, "The file ", el("span", { class: "mono" }, file), " is deleted. If it comes from a repository, remove it there, too."),
    el("p", {}, "The lake stays: ", el("span", { class: "mono" }, lake), ` with ${counted(tables, "table")}${measured}${rest}, and old versions and metadata besides.`),
    hindrance ? el("p", { class: "warn note" }, `Not now: ${hindrance}`) : null,
  ];
}

function removeButton(source) {
  if (!source.may?.remove) return null;
  const open = () => confirm({
    title: `Remove the source ${source.source}`,
    says: "Its DAGs disappear from Airflow, and nothing carries its tables any longer.",
    details: staying(source),
    label: "Remove the source",
    leave: "Keep it",
    leaves: true,
    fields: [MAY_BE_WHY],
    act: asks(source, "remove"),
  });
  return opens("Remove the source", "Deletes its YAML; the lake stays", open, { of: source.source });
}

export function sourceButtons(source) {
  const begins = source.dags?.follow?.is_paused || !source.at_work.includes("follow");
  const made = [
    begins ? startFollowingButton(source) : null, stopFollowingButton(source), pinButton(source), pauseButton(source), resumeButton(source), removeButton(source),
  ].filter(Boolean);
  return made.length ? el("div", { class: "buttons whole", role: "group", "aria-label": "The source" }, made) : null;
}

const query = (words) => el("code", { class: "mono" }, words);

export function pinned(source, { pins, file, now_us }) {
  if (!pins.length) return [];
  const columns = [
    { name: "Name", cell: (pin) => el("span", { class: "mono" }, pin.name) },
    { name: "Batch", cell: (pin) => toBatch(source.source, pin.batch) },
    { name: "Pinned", cell: (pin) => [moments(pin.at_us, now_us), el("span", { class: "why" }, `by ${pin.who}${pin.why ? `: ${pin.why}` : ""}`)] },
    { name: "Query it by", cell: (pin) => query(`binlake sql --config ${file} --name ${pin.name}`) },
    { name: "", cell: (pin) => unpinButton(source, pin) ?? "" },
  ];
  return [el("h2", { id: "pins" }, "Pinned versions"), table("Pinned versions", columns, pins)];
}

export function replayed({ source, replays, now_us }) {
  if (!replays.length) return [];
  const columns = [
    { name: "Table", cell: (replay) => toTable(source, replay.table) },
    { name: "As of", cell: (replay) => toBatch(source, replay.batch) },
    { name: "Built", cell: (replay) => moments(replay.at_us, now_us) },
    { name: "Rows", number: true, cell: (replay) => number(replay.rows) },
    { name: "Proved", cell: (replay) => (replay.equals_version === null ? "not compared" : `equal to Delta version ${number(replay.equals_version)}`) },
    { name: "Query it", cell: (replay) => (replay.is_there ? [query(replay.query), el("span", { class: "under mono" }, replay.path)] : "it isn't there any more") },
  ];
  return [el("h2", { id: "replays" }, "Replays"), table("Replayed tables", columns, replays)];
}
