// All sources, and one with its tables and runs.

import { ofAirflow, remedyButton, runButton, tableButtons } from "./actions.js";
import { ask, pathOf } from "./api.js";
import { calendar, ofSource } from "./calendar.js";
import { bars, chart, chartWidth, phasesOf } from "./charts.js";
import { advice, badge, bySpark, el, facts, link, moments, reason, status, table, time, toBatch, toSource, toTable, where } from "./elements.js";
import { list } from "./events.js";
import { feedSections } from "./feeds.js";
import { bytes, compare, counted, duration, moment, number } from "./words.js";
import { followWork } from "./work.js";

const TROUBLE = ["stopped", "missing", "resnapshot", "paused", "bootstrapping", "following", "excluded", "dropped"];
const HEALTH_WORDS = { good: "healthy", warn: "needs a look", bad: "needs you", new: "to be begun" };

function sourceFacts(one) {
  const last = one.last_run;
  const next = one.dags.sync && !one.dags.sync.is_paused ? one.dags.sync.next_run_us : null;
  const counts = Object.entries(one.table_counts).map(([word, count]) => [status(word), ` ${number(count)} `]);
  return facts(
    ["Behind by", behind(one), "What was committed before is in the lake"],
    one.follower ? ["Following", following(one.follower), `${one.follower.holder}, last heard of ${moment(one.follower.at_us)}`] : null,
    ["Position", where(one.position), "File and offset of the binlog up to which every table that follows is merged"],
    ["Last run", last ? [`${counted(last.mutations, "mutation")}, `, moments(last.ended_us, one.now_us)] : "none yet"],
    ["Next run", next ? (next < one.now_us ? "due" : moments(next, one.now_us)) : one.dags.sync?.is_paused ? "paused" : one.schedule ? "–" : "by hand"],
    ["Rows changed in the last hour", changed(one.rows_changed.hour, one.rows_changed.by_5_minutes, 5), "Inserted, updated and deleted rows of batches recorded since, in 5 minutes each"],
    ["Rows changed in 24 hours", changed(one.rows_changed.day, one.rows_changed.by_hour, 60), "Inserted, updated and deleted rows of batches recorded since, in an hour each"],
    ...logFacts(one),
    ["Tables", counts.length ? counts : "none yet", null, "double"],
    one.feeds.length ? ["Feeds", tally(one.feeds.map((feed) => feed.status)), "And the relay, where one was started"] : null,
    one.open_batch ? ["Open batch", [toBatch(one.source, one.open_batch.batch), ` is ${one.open_batch.state}`]] : null,
    one.holder ? ["At work", el("span", { class: "mono", title: one.holder }, one.holder.replace(/ boot .* pid /, " pid ").replace(/ started .*/, ""))] : null,
  );
}

// The process that carries batches as they come, by its newest sign of life.
function following({ every_seconds, behind_seconds, waits_for, is_silent, at_us }) {
  if (is_silent) return ["silent since ", moment(at_us)];
  if (waits_for) return [`waits: ${waits_for}`];
  return [`every ${number(every_seconds)} s`, behind_seconds === null ? "" : `, ${behind_seconds.toFixed(1)} s behind`];
}

function tally(words) {
  const counts = Map.groupBy(words, (word) => word);
  return [...counts].map(([word, all]) => [status(word), ` ${number(all.length)} `]);
}

function changed(sum, values, minutes) {
  const when = (at) => `${duration((values.length - at) * minutes * 60)} to ${duration((values.length - at - 1) * minutes * 60)} ago`;
  return el("span", { class: "trend" }, el("span", {}, number(sum)), bars(values, `${number(sum)} rows, by time`, when));
}

// What the server said of its log when a run looked at it last: the page asks it nothing.
function logFacts({ log, now_us }) {
  if (!log) return [];
  const asked = `The server's end of the log was ${log.head}, asked ${moment(log.at_us)}`;
  const left = log.kept_until_us === null ? null : (log.kept_until_us - now_us) / 1e6;
  const kept = log.kept_hours === null ? "ever" : left > 0 ? `at least ${duration(left)}` : "over";
  const rest = `${number(log.files)} files, ${bytes(log.bytes)}, from ${log.oldest_file ?? "none"} on; a file is kept for ${log.kept_hours === null ? "ever" : `${log.kept_hours} hours`}`;
  return [
    ["Log not merged yet", [bytes(log.bytes_ahead), el("span", { class: "quiet" }, " as of ", time(log.at_us, now_us))], asked],
    ["The log needed next is kept for", [kept, el("span", { class: "quiet" }, " as of ", time(log.at_us, now_us))], `The server has ${rest}`],
  ];
}

// A look at the server that found nothing more says that the lake has all, however long ago the last batch was.
function behind(one) {
  if (!one.carried_us) return "–";
  const inLake = el("span", { class: "moment" }, `in the lake up to ${moment(one.carried_us)}`);
  if (one.log?.bytes_ahead !== 0) return [lag(one), inLake];
  return ["nothing newer on the server", el("span", { class: "quiet" }, ", as of ", time(one.log.at_us, one.now_us)), inLake];
}

function lag(one) {
  const shown = time(one.carried_us, one.now_us);
  shown.textContent = duration(Math.max(0, (one.now_us - one.carried_us) / 1e6));
  return shown;
}

function sourceCard(one, alone) {
  const words = one.error ? "can't be read" : HEALTH_WORDS[one.health];
  const name = one.error || alone ? one.source : toSource(one.source);
  const buttons = one.error || !one.position ? null : el("div", { class: "buttons" }, ["sync", "verify", "maintain"].map((what) => runButton(one, what)));
  const head = el("div", { class: "head" }, el("h2", {}, name), badge(one.health, words), el("span", { class: "quiet" }, one.file), buttons);
  if (one.error) return el("section", { class: "card" }, head, advice([{ health: "bad", what: one.error.detail, remedy: one.error.remedy }]));
  return el("section", { class: "card" }, head, sourceFacts(one), advice(one.advice, (button) => remedyButton(one, button)));
}

const HEALTHS = Object.keys(HEALTH_WORDS);
const worst = (one) => ["bad", "new", "warn", "good"].indexOf(one.health);
const CARDS = 3; // at most: more sources stand in a table
const chosen = { words: "", health: "" };

function toDo(one) {
  const first = one.error ? { what: one.error.detail, remedy: one.error.remedy, health: "bad" } : one.advice[0];
  if (!first) return null;
  const more = (one.advice?.length ?? 1) - 1;
  return [reason({ reason: first.what, remedy: first.remedy }), more > 0 ? el("span", { class: "under" }, `and ${counted(more, "thing")} more`) : null, remedyButton(one, first.button)];
}

const sourceColumns = [
  { name: "Source", key: "source", sort: (one) => one.source, cell: (one) => [one.error ? one.source : toSource(one.source), el("span", { class: "under" }, one.file)] },
  { name: "Health", key: "health", sort: worst, cell: (one) => badge(one.health, one.error ? "can't be read" : HEALTH_WORDS[one.health]) },
  { name: "What to do", cell: toDo },
  { name: "Behind by", key: "behind", number: true, title: "What was committed before is in the lake", sort: (one) => (one.carried_us ? one.now_us - one.carried_us : null), cell: (one) => (one.carried_us ? lag(one) : "–") },
  { name: "Rows changed", key: "rows", number: true, title: "In 24 hours", sort: (one) => one.rows_changed?.day, cell: (one) => (one.rows_changed ? changed(one.rows_changed.day, one.rows_changed.by_hour, 60) : "–") },
  { name: "Tables", key: "tables", number: true, sort: (one) => tables(one), cell: (one) => number(tables(one)) },
  { name: "Last run", key: "last", number: true, sort: (one) => one.last_run?.ended_us, cell: (one) => time(one.last_run?.ended_us, one.now_us) },
];

const tables = (one) => Object.values(one.table_counts ?? {}).reduce((sum, count) => sum + count, 0);

function sourceList(sources) {
  const result = el("div");
  const count = el("span", { class: "quiet", role: "status" });
  const search = el("input", { type: "search", id: "search", placeholder: "Part of a name", value: chosen.words, oninput: filter });
  const health = el("select", { id: "health", oninput: filter }, el("option", { value: "" }, "any"), HEALTHS.map((value) => el("option", { value }, HEALTH_WORDS[value])));
  health.value = chosen.health;

  function filter() {
    Object.assign(chosen, { words: search.value, health: health.value });
    const words = search.value.trim().toLowerCase();
    const found = sources.filter((one) => one.source.toLowerCase().includes(words) && (!health.value || one.health === health.value));
    count.textContent = `${number(found.length)} of ${number(sources.length)}`;
    result.replaceChildren(table("Sources", sourceColumns, found, { empty: "No source fits." }));
  }

  filter();
  return [el("div", { class: "tools" }, el("label", { for: "search" }, "Search"), search, el("label", { for: "health" }, "Health"), health, count), result];
}

// The worst first: a card each, or a table where they are many.
export async function overview() {
  const { sources, folder, may_add } = await ask("sources");
  const add = may_add ? el("p", {}, link({ create: "source" }, "Add a source")) : null;
  const sorted = sources.toSorted((a, b) => worst(a) - worst(b) || compare(a.source, b.source));
  if (sorted.length > CARDS) return [...sourceList(sorted), add];
  if (sorted.length) return [...sorted.map((one) => sourceCard(one, false)), add];
  const todo = `put one YAML for each source into ${folder} (binlake init FILE writes one), or let AIRFLOW__BINLAKE__PIPELINES name the folder`;
  return [add, el("div", { class: "card" }, advice([{ health: "new", what: "No source is there that you may read.", remedy: todo }]))];
}

// Tables that need somebody come first.
const trouble = (row) => TROUBLE.indexOf(row.status);

function whichRun(source, run) {
  if (run.kind !== "failed") return run.kind === "sync" ? toBatch(source, run.batch) : run.kind;
  const phase = Object.keys(run.phases).join(", ");
  return [badge("bad", `${phase} failed`), " ", run.batch === null ? null : toBatch(source, run.batch)];
}

const runColumns = (source, now_us) => [
  { name: "Run", cell: (run) => whichRun(source, run) },
  { name: "Ended", cell: (run) => moments(run.ended_us, now_us) },
  { name: "Took", number: true, cell: (run) => duration((run.ended_us - run.started_us) / 1e6) },
  { name: "Mutations", number: true, cell: (run) => number(run.mutations) },
  { name: "Read", number: true, title: "Bytes of log, or of a snapshot", cell: (run) => bytes(run.bytes) },
  { name: "What it says", cell: (run) => [el("span", { class: "why" }, run.message), bySpark(run), run.kind === "failed" ? ofAirflow(run.run) : null] },
];

// For what stands still; the rest is picked first.
const remedies = (one, row) => (["stopped", "missing", "paused"].includes(row.status) ? tableButtons(one, [row.table], [row.status]) : null);

const PERIODS = { hour: "last hour", day: "last 24 hours", total: "all that is known" };

function files(row) {
  if (!row.size?.many_small) return number(row.size?.files);
  const words = `${number(row.size.small)} are smaller than half a whole file: the upkeep (Maintain) puts them together`;
  return badge("warn", number(row.size.files), words);
}

function compared(source, { verified }, now_us) {
  if (!verified) return el("span", { class: "quiet" }, "–");
  const through = verified.batch ? toBatch(source, verified.batch) : "the snapshot";
  return [verified.equal ? null : verified.equal === null ? badge("warn", "not compared") : badge("bad", "differs"), " ", time(verified.at_us, now_us), el("span", { class: "under", title: verified.position }, "through ", through)];
}

// While somebody copies: at which rate, and how long the chunks that are left take at it.
function pace({ chunks, copied, rows, begun_us }, now_us) {
  const seconds = (now_us - begun_us) / 1e6;
  if (!copied || !begun_us || seconds <= 0) return "";
  return `, ${number(Math.round(rows / seconds))} rows/s, about ${duration(((chunks - copied) / copied) * seconds)} left`;
}

function progress(one, { snapshot }, now_us) {
  if (!snapshot) return null;
  const goesOn = one.holder && !one.holder_died ? pace(snapshot, now_us) : "";
  const words = `${number(snapshot.copied)} of ${number(snapshot.chunks)} chunks copied, ${number(snapshot.rows)} rows${goesOn}`;
  return el("span", { class: "why" }, el("meter", { min: "0", max: snapshot.chunks, value: snapshot.copied, "aria-label": words }), " ", words);
}

const tableColumns = (one, now_us) => [
  { name: "Table", key: "table", sort: (row) => row.table, cell: (row) => toTable(one.source, row.table) },
  { name: "State", key: "status", sort: trouble, cell: (row) => [status(row.status), progress(one, row, now_us), reason(row), remedies(one, row)] },
  { name: "Rows", key: "rows", number: true, title: "In the lake, by the Delta log", sort: (row) => row.size?.rows, cell: (row) => number(row.size?.rows) },
  ...[["Inserted", "inserted"], ["Updated", "updated"], ["Deleted", "deleted"]].map(([name, key]) => ({
    name, key, number: true, title: `Rows in the log, ${PERIODS[kept.period]}`,
    sort: (row) => row[kept.period]?.[key] ?? 0, cell: (row) => number(row[kept.period]?.[key] ?? 0),
  })),
  { name: "Size", key: "size", number: true, title: "Of the data files of the newest version", sort: (row) => row.size?.bytes, cell: (row) => bytes(row.size?.bytes) },
  { name: "Files", key: "files", number: true, title: "Data files of the newest version", sort: (row) => row.size?.files, cell: files },
  { name: "Last change", key: "changed", number: true, title: "The last batch that changed the table, or its snapshot", sort: (row) => row.updated_us, cell: (row) => time(row.updated_us, now_us) },
  { name: "Verified", key: "verified", number: true, title: "When it was compared with the server last, value by value, and through which batch", sort: (row) => row.verified?.at_us, cell: (row) => compared(one.source, row, now_us) },
  { name: "Version", key: "version", number: true, title: "Delta version", sort: (row) => row.size?.delta_version ?? row.delta_version, cell: (row) => number(row.size?.delta_version ?? row.delta_version) },
];

const kept = { words: "", state: null, period: "day", picked: new Set() };

function tableList(one, { tables, now_us, total_since_us }, asked) {
  if (!tables.length) return el("p", { class: "quiet" }, "No table yet.");
  const sorted = tables.toSorted((a, b) => trouble(a) - trouble(b) || compare(a.table, b.table));
  const result = el("div");
  const count = el("span", { class: "quiet", role: "status" });
  const chosen = el("div", { class: "chosen" });
  const states = [...new Set(tables.map((row) => row.status))].sort();
  const search = el("input", { type: "search", id: "search", placeholder: "Part of a name", value: kept.words, oninput: filter });
  const state = el("select", { id: "state", oninput: filter }, el("option", { value: "" }, "any"), states.map((word) => el("option", {}, word)));
  const period = el("select", { id: "period", oninput: filter }, Object.entries(PERIODS).map(([value, words]) => el("option", { value }, words)));
  period.value = kept.period;
  period.title = `Of the log since ${moment(total_since_us)}, or since the first run`;
  kept.state ??= asked;
  state.value = states.includes(kept.state) ? kept.state : "";
  const may = one.may && Object.values(one.may).some(Boolean);

  function filter() {
    Object.assign(kept, { words: search.value, state: state.value, period: period.value });
    const words = search.value.trim().toLowerCase();
    const found = sorted.filter((row) => row.table.toLowerCase().includes(words) && (!state.value || row.status === state.value));
    count.textContent = `${number(found.length)} of ${number(tables.length)}`;
    const options = { empty: "No table fits.", ...(may ? { picked: kept.picked, onpick: choose } : {}) };
    result.replaceChildren(table(`Tables of ${one.source}`, tableColumns(one, now_us), found, options));
  }

  function choose() {
    const rows = tables.filter((row) => kept.picked.has(row.table));
    const words = rows.length === 1 ? "1 table picked" : `${number(rows.length)} tables picked`;
    chosen.replaceChildren(...(rows.length ? [el("span", {}, words), tableButtons(one, rows.map((row) => row.table), rows.map((row) => row.status))] : []));
  }

  filter();
  choose();
  const tools = el("div", { class: "tools" }, el("label", { for: "search" }, "Search"), search, el("label", { for: "state" }, "State"), state, el("label", { for: "period" }, "Counts of"), period, count, chosen);
  return el("div", {}, tools, result);
}

const LARGEST = 8;
const SPANS = { hour: "Hour", day: "Day", week: "Week", month: "Month" };
const MEASURED = 4; // times that it is asked soon again, after growing waits, where a table's size isn't known
let span = "day";
let measured = 0;

// The largest tables, by what the newest version's data files have.
function sizes({ tables: all }) {
  const measured = all.filter((row) => row.size).toSorted((a, b) => b.size.bytes - a.size.bytes);
  if (!measured.length) return null;
  const most = Math.max(measured[0].size.bytes, 1);
  const whole = measured.reduce((sum, row) => sum + row.size.bytes, 0);
  const lines = measured.slice(0, LARGEST).map((row) => [
    el("span", { class: "mono" }, row.table),
    el("meter", { min: "0", max: most, value: row.size.bytes, "aria-label": `${row.table}: ${bytes(row.size.bytes)}` }),
    el("span", { class: "number" }, `${bytes(row.size.bytes)}, ${counted(row.size.files, "file")}`),
  ]);
  return el("figure", { class: "card chart" }, el("figcaption", {}, el("strong", {}, "Size and files")), el("div", { class: "bars" }, lines),
    el("p", { class: "said" }, `${bytes(whole)} in ${counted(measured.length, "table")}; the largest ${Math.min(LARGEST, measured.length)} are shown.`));
}

const compared13Weeks = ({ compared: days, now_us }) =>
  el("figure", { class: "card chart" }, el("figcaption", {}, el("strong", {}, "Compared with the server")), calendar(days, now_us, ofSource),
    el("p", { class: "said" }, "By day, of thirteen weeks. Green: equal, red: a table differed, yellow: one couldn't be compared."));

function overTime(drawn, told) {
  const { charts } = drawn;
  const choose = (chosen) => () => {
    span = chosen;
    dispatchEvent(new Event("changed"));
  };
  const buttons = Object.entries(SPANS).map(([key, words]) =>
    el("button", { type: "button", id: `span ${key}`, "aria-pressed": String(key === span), onclick: choose(key) }, words));
  return [
    el("div", { class: "head", id: "charts" }, el("h2", {}, "Over time ", el("small", {}, "UTC")), el("div", { class: "buttons", role: "group", "aria-label": "Over the last" }, buttons)),
    el("div", { class: "charts" }, charts.map(chart), compared13Weeks(drawn), sizes(told)),
  ];
}

// To the parts of a long page.
function jumps({ feeds, relay }) {
  const parts = [
    ["charts", "Over time"], ["tables", "Tables"], feeds.length ? ["feeds", "Feeds"] : null, relay ? ["relay", "Relay"] : null,
    ["events", "What happened"], ["runs", "Runs"],
  ].filter(Boolean);
  return el("nav", { class: "jumps", "aria-label": "On this page" }, parts.map(([id, words]) => el("a", { href: `#${id}` }, words)));
}

export async function oneSource(place) {
  followWork(place.source);
  const path = pathOf(place.source);
  const older = place.before ? `&before_us=${encodeURIComponent(place.before)}` : "";
  const [found, told, feeds, { runs }, drawn, happened] = await Promise.all([
    ask(path), ask(`${path}/tables`), ask(`${path}/feeds`), ask(`${path}/runs?count=20${older}`),
    ask(`${path}/charts?${new URLSearchParams({ span, width: chartWidth() })}`), ask(`${path}/events?count=8`),
  ]);
  if (told.tables.some((row) => row.status === "following" && !row.size) && measured < MEASURED) {
    setTimeout(() => dispatchEvent(new Event("changed")), 1500 * 2 ** measured); // they are measured beside the first answer
    measured += 1;
  }
  const last = runs.at(-1);
  const next = runs.length === 20 ? link({ source: place.source, before_us: last.ended_us }, "Earlier runs") : null;
  return [
    sourceCard(found, true),
    jumps(feeds),
    ...overTime(drawn, told),
    el("h2", { id: "tables" }, "Tables"),
    tableList(found, told, place.state),
    ...feedSections(found, feeds),
    el("h2", { id: "events" }, "What happened"),
    list(happened),
    el("p", {}, link({ source: place.source, events: "all" }, "All that happened")),
    el("h2", { id: "runs" }, place.before ? "Earlier runs" : "Last runs"),
    phasesOf(runs.filter((run) => run.kind === "sync"), "Seconds of each run by phase", (run) => `?${new URLSearchParams({ source: place.source, batch: run.batch })}`),
    table("Runs", runColumns(place.source, found.now_us), runs, { empty: "No run yet." }),
    next ? el("p", {}, next) : null,
  ];
}
