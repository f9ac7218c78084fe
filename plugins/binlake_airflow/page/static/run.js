// One batch: its range, its phases, and what it did to each table.

import { ofAirflow } from "./actions.js";
import { ask, pathOf } from "./api.js";
import { advice, badge, bySpark, counts, el, facts, moments, reason, status, table, time, toTable, where } from "./elements.js";
import { pinButton } from "./source_actions.js";
import { bytes, duration, number } from "./words.js";

function phases(seconds_by_phase) {
  const entries = Object.entries(seconds_by_phase);
  if (!entries.length) return el("p", { class: "quiet" }, "No phase is over yet.");
  const longest = Math.max(...entries.map(([, seconds]) => seconds), 0.001);
  return el("div", { class: "bars" }, entries.map(([name, seconds]) => [
    el("span", {}, name),
    el("meter", { min: "0", max: longest, value: seconds, "aria-label": `${name}: ${duration(seconds)}` }),
    el("span", { class: "number" }, duration(seconds)),
  ]));
}

const failures = (now_us) => [
  { name: "Phase", cell: (run) => badge("bad", Object.keys(run.phases).join(", ")) },
  { name: "Ended", cell: (run) => moments(run.ended_us, now_us) },
  { name: "Took", number: true, cell: (run) => duration((run.ended_us - run.started_us) / 1e6) },
  { name: "What it says", cell: (run) => el("span", { class: "why" }, run.message) },
  { name: "Run", cell: (run) => ofAirflow(run.run) },
];

export async function oneRun(place) {
  const path = pathOf(place.source);
  const [batch, source] = await Promise.all([ask(`${path}/runs/${encodeURIComponent(place.batch)}`), ask(path)]);
  const { range, run } = batch;
  const tables = [
    { name: "Table", key: "table", sort: (row) => row.table, cell: (row) => toTable(batch.source, row.table) },
    { name: "State", key: "status", sort: (row) => row.status, cell: (row) => [status(row.status), reason(row), bySpark(row)] },
    ...counts,
  ];
  const slices = [
    { name: "File", cell: (part) => el("span", { class: "mono" }, part.file) },
    { name: "From", number: true, cell: (part) => number(part.start) },
    { name: "To", number: true, cell: (part) => number(part.stop) },
    { name: "Size", number: true, cell: (part) => bytes(part.stop - part.start) },
  ];
  const stops = batch.stops.map((stop) => ({
    health: "bad",
    what: `${stop.table ?? "the run"}${stop.file ? ` at ${stop.file}:${stop.offset}` : ""}: ${stop.reason}`,
    remedy: stop.remedy,
  }));
  return [
    el("section", { class: "card" },
      el("div", { class: "head" }, el("h2", {}, `Batch ${number(batch.batch)}`), badge(batch.state === "recorded" ? "good" : "warn", batch.state),
        batch.state === "recorded" ? el("div", { class: "buttons" }, pinButton(source, batch.batch)) : null),
      facts(
        ["Planned", moments(batch.planned_us, batch.now_us)],
        run ? ["Recorded", moments(run.ended_us, batch.now_us)] : null,
        range ? ["From", where(range.start)] : null,
        range ? ["To", where(range.stop)] : null,
        range ? ["Log read", bytes(range.bytes)] : null,
        run ? ["Mutations", number(run.mutations)] : null,
        run ? ["Run", ofAirflow(run.run), "Airflow's DAG and run, where Airflow ran it", "row"] : null,
        run?.why_spark ? ["Spark was started", run.why_spark, "The first reason of each phase; each table has its own", "row"] : null,
        range?.gtid_set ? ["GTIDs up to its end", el("span", { class: "mono" }, range.gtid_set), null, "row"] : null,
      ),
      batch.state === "recorded" ? null : advice([{ health: "warn", what: "this batch isn't recorded yet", remedy: "nothing while a run works on it; otherwise the next run finishes it" }]),
      advice(stops)),
    el("h2", {}, "Phases"),
    el("div", { class: "card" }, phases(run?.phases ?? {})),
    batch.failures.length ? [el("h2", {}, "Attempts that failed"), table("Attempts that failed", failures(batch.now_us), batch.failures)] : null,
    el("h2", {}, "Tables"),
    table("Tables of the batch", tables, batch.tables, { empty: "It changed no table." }),
    el("h2", {}, "Slices"),
    range ? table("Slices of the log", slices, range.slices, { empty: "It read no part of the log." }) : el("p", { class: "quiet" }, "Its range isn't known any more."),
  ];
}
