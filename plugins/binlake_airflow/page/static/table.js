// One table: its state, its columns, its DDL history, its runs.

import { repairButton, runButton, tableButtons } from "./actions.js";
import { ask, pathOf } from "./api.js";
import { calendar, ofTable } from "./calendar.js";
import { phasesOf } from "./charts.js";
import { differing } from "./differences.js";
import { advice, badge, bySpark, counts, el, facts, keyOf, link, moments, reason, status, STATUS_HEALTH, table, toBatch, value, where } from "./elements.js";
import { fixButtons } from "./remedies.js";
import { byRows, bytes, counted, number } from "./words.js";
import { withZone, ZONE, zoned } from "./zone.js";

const at = (statement) => `${statement.file}:${statement.offset}`;

function statements(details) {
  const shape = (statement) => link({ source: details.source, table: details.table, at: at(statement) }, details.shape?.at === at(statement) ? "schema shown" : "schema then");
  const said = (statement) =>
    el("li", {}, moments(statement.committed_us, details.now_us), ` · ${statement.kind} · ${statement.action} · `, toBatch(details.source, statement.batch), " ",
      el("span", { class: "mono quiet" }, at(statement)), " · ", shape(statement), el("pre", {}, el("code", {}, statement.statement)), reason({ reason: statement.reason }));
  if (!details.history.length) return el("p", { class: "quiet" }, "No DDL statement has concerned this table since its snapshot.");
  return el("ol", { class: "line" }, details.history.toReversed().map(said));
}

function verified({ verified: last, source, now_us }) {
  if (!last) return "never, or long ago";
  if (last.equal === null) return [badge("warn", "not compared"), " ", moments(last.at_us, now_us)];
  const result = last.equal ? badge("good", "equal") : badge("bad", `${counted(last.differing, "chunk")} ${last.differing === 1 ? "differs" : "differ"}`);
  const through = last.batch ? toBatch(source, last.batch) : "the snapshot";
  const position = last.position ? [" at ", where(last.position)] : null;
  return [result, " through ", through, position, last.lake_rows === null ? ", " : `, ${counted(last.lake_rows, "row")}, `, moments(last.at_us, now_us)];
}

const FEW = 6; // values of an ENUM that are shown at once

function values({ values: known }) {
  if (!known.length) return null;
  const said = (some) => some.map((text) => `'${text}'`).join(", ");
  const few = el("span", { class: "under mono" }, said(known.slice(0, FEW)));
  if (known.length <= FEW) return few;
  return el("details", { class: "under" }, el("summary", {}, `${number(known.length)} values`), el("span", { class: "mono" }, said(known)));
}

function inLake({ name, lake }) {
  const there = Object.entries(lake);
  if (!there.length) return badge("none", "left out");
  return there.map(([column, type]) => el("div", { class: "mono" }, column === name ? type : `${column} ${type}`));
}

// With what the YAML makes of columns, where it makes something of one.
const columnsOf = (schema) => (schema.columns.some(({ becomes }) => becomes) ? [...columns.slice(0, 3), policy, ...columns.slice(3)] : columns);

const policy = { name: "By the YAML", title: "What becomes of the column and its values before anything is written", cell: ({ becomes }) => becomes };

const columns = [
  { name: "Column", cell: ({ name, comment }) => [el("span", { class: "mono" }, name), comment ? el("span", { class: "under" }, comment) : null] },
  { name: "Type", cell: (column) => [el("span", { class: "mono" }, column.type), values(column)] },
  { name: "In the lake", title: "Names and types of the Delta table's columns", cell: inLake },
  { name: "Null", cell: (column) => (column.nullable ? "yes" : "no") },
  { name: "Character set", cell: (column) => column.charset ?? "" },
  { name: "Default", cell: (column) => (column.default === null ? "" : el("span", { class: "mono" }, column.default)) },
];

// How a column of then differs from that of now.
function since(column, now) {
  const today = now?.columns.find(({ name }) => name === column.name);
  if (!today) return badge("warn", "gone since");
  return today.type === column.type && today.nullable === column.nullable ? "" : badge("new", `now ${today.type}${today.nullable ? "" : " NOT NULL"}`);
}

// The schema as it was at a place of the log, or at a time.
function then(details, place) {
  const input = el("input", { id: "at", name: "at", value: place.at ?? "", placeholder: "binlog.000042:157 or 2026-03-01T12:00", autocomplete: "off", size: "40" });
  const show = (event) => {
    event.preventDefault();
    const at = withZone(input.value.trim());
    location.search = new URLSearchParams({ source: details.source, table: details.table, ...(at ? { at } : {}) });
  };
  return el("form", { class: "tools", onsubmit: show }, el("label", { for: "at" }, "Schema at"), input, el("button", { type: "submit", id: "show-schema" }, "Show"),
    el("small", { class: "quiet" }, `A place of the log, FILE:POS, or a time in ${ZONE}`),
    details.shape_problem ? advice([{ health: "warn", what: details.shape_problem.message, remedy: details.shape_problem.remedy }]) : null);
}

// Columns of the mirror that tell of a row, and aren't the server's.
function own(schema) {
  const there = Object.entries(schema?.own ?? {});
  if (!there.length) return null;
  return el("p", {}, "Beside them the lake has: ", el("span", { class: "mono" }, there.map(([name, type]) => `${name} ${type}`).join(", ")));
}

// Conditions of the rows that the lake has, and how many rows met them when the table was copied.
function filters(details) {
  const { schema, filter_estimate: estimate } = details;
  const said = (text, condition) => (condition ? el("p", {}, text, el("span", { class: "mono" }, condition), ".") : null);
  const conditions = [said("The lake has the rows with ", schema?.where), said("A snapshot copies the rows with ", schema?.snapshot_where)];
  if (!conditions.some(Boolean)) return null;
  const left = estimate
    ? el("p", {}, `When it was copied, about ${counted(estimate.left, "row")} of ${counted(estimate.rows, "row")} were left, as the server estimated `, moments(estimate.at_us, details.now_us), ". binlake doctor asks it again.")
    : el("p", {}, "binlake doctor shows how many rows these are, as the server estimates.");
  return [...conditions, left];
}

function schemas(details) {
  const { schema, shape } = details;
  const now = schema ? table("Columns", columnsOf(schema), schema.columns) : el("p", { class: "quiet" }, "No schema of it is known yet.");
  const heading = details.status === "dropped" ? "Schema when it was dropped" : "Schema now";
  if (!shape) return [el("h2", { id: "schema" }, heading), now, own(schema), filters(details)];
  const then = shape.schema
    ? table(`Columns at ${shape.at}`, [...columnsOf(shape.schema), { name: "Since then", cell: (column) => since(column, schema) }], shape.schema.columns)
    : el("p", { class: "quiet" }, "There was no such table then.");
  const added = schema && shape.schema ? schema.columns.map(({ name }) => name).filter((name) => !shape.schema.columns.some((column) => column.name === name)) : [];
  return [
    el("h2", {}, "Schema at ", el("span", { class: "mono" }, shape.at), " ", link({ source: details.source, table: details.table }, el("small", {}, "back to now"))),
    then,
    added.length ? el("p", {}, "Added since then: ", el("span", { class: "mono" }, added.join(", "))) : null,
  ];
}

function commits({ commits: made, commits_problem: problem, source, now_us }) {
  if (problem) return advice([{ health: "bad", what: problem.detail, remedy: problem.remedy }]);
  const named = [
    { name: "Version", cell: (commit) => number(commit.version) },
    { name: "Committed", cell: (commit) => moments(commit.at_us, now_us) },
    { name: "Operation", cell: (commit) => [commit.operation, commit.ours ? null : badge("none", "not by binlake")] },
    { name: "Batch", cell: (commit) => (commit.batch === null ? "" : toBatch(source, commit.batch)) },
    { name: "Rows written", number: true, title: "Also rows that were copied with those that changed", cell: (commit) => number(commit.rows_written) },
    { name: "Files added", number: true, cell: (commit) => number(commit.files_added) },
    { name: "Files removed", number: true, cell: (commit) => number(commit.files_removed) },
  ];
  return table("Delta history", named, made, { empty: "No Delta table is there." });
}

// Of an update what it changed, else the whole row.
function row({ before, after }) {
  const names = Object.keys(after ?? before ?? {}).filter((name) => !before || !after || before[name] !== after[name]);
  const changed = (name) => (before && after ? [value(before[name]), " → ", value(after[name])] : value((after ?? before)[name]));
  return names.length ? names.map((name) => el("div", { class: "mono" }, el("span", { class: "quiet" }, `${name} = `), changed(name))) : el("span", { class: "quiet" }, "nothing that is shown");
}

function newest({ newest: { changes, since_batch, with_keys, with_values }, source, now_us }) {
  if (since_batch === null)
    return el("p", { class: "quiet" }, "What was staged is gone once it is merged. With maintain.staging_hours in the YAML it stays, and is shown here.");
  const named = [
    { name: "Mutation", cell: (change) => change.op },
    { name: "Committed", cell: (change) => moments(change.committed_us, now_us) },
    { name: "Position", cell: (change) => el("span", { class: "mono" }, change.position) },
    { name: "GTID", cell: (change) => el("span", { class: "mono" }, change.gtid ?? "–") },
    { name: "Batch", cell: (change) => toBatch(source, change.batch) },
    ...(with_keys ? [{ name: "Key", cell: keyOf }] : []),
    ...(with_values ? [{ name: "Values", title: "Of an update those that it changed", cell: row }] : []),
  ];
  return [
    table("Newest mutations", named, changes, { empty: `None since batch ${since_batch}.` }),
    with_values ? null : el("p", { class: "quiet" }, with_keys ? "Values are shown where the YAML says page: {show_values: true}." : "Keys are shown to who may edit the source's sync DAG."),
  ];
}

function repaired({ repaired: rows, newest: { with_keys }, source, now_us }) {
  if (!rows.length) return null;
  const named = [
    { name: "Repaired", cell: (row) => moments(row.at_us, now_us) },
    { name: "Batch", cell: (row) => toBatch(source, row.batch) },
    { name: "Difference", cell: (row) => row.kind },
    { name: "Rows", number: true, cell: (row) => number(row.rows) },
    { name: "Columns", cell: (row) => row.columns.join(", ") },
    ...(with_keys ? [{ name: "Key", title: "Its hash, where keys aren't noted: page.show_values", cell: keyOf }] : []),
  ];
  return [el("h2", {}, "Rows that repairs put right"), table("Repaired rows", named, rows, { empty: "None." })];
}

// What earlier versions have that is withheld by now, and the command that removes it, to be copied.
function formerValues(former) {
  if (!former) return [];
  const kept = { health: "warn", what: former.what, remedy: former.command };
  const obstacles = former.obstacles.map(({ why, remedy }) => ({ health: "warn", what: `In the way of a purge: ${why}`, remedy }));
  return [advice([kept, ...obstacles])];
}

// What isn't known of its schema then hides nothing else.
async function asked(place) {
  const path = pathOf(place.source, place.table);
  const now = `${path}?${new URLSearchParams({ zone: ZONE })}`;
  if (!place.at) return ask(now);
  try {
    return await ask(`${now}&at=${encodeURIComponent(place.at)}`);
  } catch (error) {
    if (error.status !== 409) throw error;
    return { ...(await ask(now)), shape_problem: error };
  }
}

export async function oneTable(place) {
  const [details, source] = await Promise.all([asked(place), ask(pathOf(place.source))]);
  const runs = [
    { name: "Batch", cell: (run) => toBatch(details.source, run.batch) },
    { name: "Ended", cell: (run) => moments(run.ended_us, details.now_us) },
    { name: "State", cell: (run) => [status(run.status), reason(run), bySpark(run)] },
    ...counts,
  ];
  const schema = details.schema;
  return [
    el("section", { class: "card" },
      el("div", { class: "head" }, el("h2", {}, details.table), status(details.status), tableButtons(source, [details.table], [details.status])),
      facts(
        ["Position", where(details.position), "Up to here the table is merged"],
        ["Batch", details.batch ? toBatch(details.source, details.batch) : "snapshot"],
        ["Delta version", number(details.size?.delta_version ?? details.delta_version)],
        details.size ? ["Rows", number(details.size.rows), "In the lake, by the Delta log"] : null,
        details.size ? ["Size", `${bytes(details.size.bytes)} in ${number(details.size.files)} ${details.size.files === 1 ? "file" : "files"}`, "Of the newest version"] : null,
        schema?.comment ? ["Comment", schema.comment, "Of the table, on the server", "row"] : null,
        schema ? ["Key", schema.key.length ? `${schema.key.join(", ")} (${schema.key_kind})` : "none"] : null,
        ["Verified", verified(details), "The newest comparison with the server, value by value", "double"],
        ["Compared by day", calendar(details.verifications, details.now_us, ofTable, "compared table"), null, "double"],
        ["Delta table", el("span", { class: "mono" }, details.path), "Where its rows lie", "row"],
      ),
      details.verified?.equal === false
        ? advice([{ health: "bad", what: `the lake differs from the server${byRows(details.verified)}`, remedy: "repair the differing rows, or snapshot the table again" }], () => repairButton(source, [details.table]))
        : null,
      details.verified?.equal === false ? differing(details.differing) : null,
      details.size?.many_small
        ? advice([{ health: "warn", what: `${number(details.size.small)} of its files are smaller than half a whole one`, remedy: "let the upkeep put them together", button: true }], () => runButton(source, "maintain", { tables: [details.table], kind: "primary" }))
        : null,
      details.reason ? advice([{ health: details.problem ? "bad" : STATUS_HEALTH[details.status] ?? "warn", what: details.reason, remedy: details.remedy, fixes: (details.fixes ?? []).filter((fix) => fix.do === "repair") }], ({ fixes }) => fixButtons(source, fixes, [details.table])) : null),
    ...formerValues(details.former),
    ...schemas(details),
    then(details, place),
    el("p", {}, link({ source: details.source, events: "all", table: details.table }, "All that happened to it")),
    el("h2", {}, "DDL history"),
    statements(details),
    el("h2", {}, `Runs of the last ${details.runs_days} days that changed or stopped it`),
    phasesOf(details.runs, "Seconds of each run by phase", (run) => `?${new URLSearchParams({ source: details.source, batch: run.batch })}`),
    table("Runs", runs, details.runs, { empty: "None changed it." }),
    el("h2", {}, "Newest mutations"),
    newest(details),
    repaired(details),
    el("h2", {}, "Delta history"),
    commits(details),
  ];
}
