// All sources, and one with its tables and runs.

import { repairButton, runButton, tableButtons } from "./actions.js";
import { ask, pathOf } from "./api.js";
import { calendar, ofSource } from "./calendar.js";
import { bars, chart, chartWidth } from "./charts.js";
import { advice, badge, el, facts, link, moments, reason, status, table, time, toBatch, toSource, toTable, where } from "./elements.js";
import { list } from "./events.js";
import { feedSections } from "./feeds.js";
import { adviceButtons, fixButtons } from "./remedies.js";
import { pinned, replayed, sourceButtons, unlockButton } from "./source_actions.js";
import { byRows, bytes, compare, counted, duration, moment, number } from "./words.js";
import { waitingChanges } from "./waiting.js";
import { followWork } from "./work.js";
import { ZONE, zoned } from "./zone.js";

const TROUBLE = ["stopped", "missing", "resnapshot", "paused", "catching up", "bootstrapping", "following", "excluded", "dropped"];
const HEALTH_WORDS = { good: "healthy", warn: "needs a look", bad: "needs you", new: "not started" };

function sourceFacts(source) {
  const next = source.dags.sync && !source.dags.sync.is_paused ? source.dags.sync.next_run_us : null;
  const counts = Object.entries(source.table_counts).map(([word, count]) => [status(word), ` ${number(count)} `]);
  return facts(
    ["Verified", verified(source), "The oldest of the tables' newest comparisons with the server, value by value"],
    ["Behind by", behind(source), "What was committed before is in the lake"],
    source.follower ? ["Following", following(source.follower), `${source.follower.holder}, last heard of ${moment(source.follower.at_us)}`] : null,
    ["Position", where(source.position), "File and offset of the binlog up to which every table that follows is merged"],
    ["Last sync", lastSync(source)],
    ["Next run", next ? (next < source.now_us ? "due" : moments(next, source.now_us)) : source.dags.sync?.is_paused ? "paused" : source.schedule ? "–" : "by hand"],
    ["Rows changed in the last hour", changed(source.rows_changed.hour, source.rows_changed.by_5_minutes, 5), "Inserted, updated and deleted rows of batches recorded since, in 5 minutes each"],
    ["Rows changed in 24 hours", changed(source.rows_changed.day, source.rows_changed.by_hour, 60), "Inserted, updated and deleted rows of batches recorded since, in an hour each"],
    ...logFacts(source),
    ["Tables", counts.length ? counts : "none yet", null, "double"],
    source.feeds.length ? ["Feeds", tally(source.feeds.map((feed) => feed.status)), "And the relay, where one was started"] : null,
    source.open_batch ? ["Open batch", [toBatch(source.source, source.open_batch.batch), ` is ${source.open_batch.state}`]] : null,
    source.holder ? ["At work", [el("span", { class: "mono", title: source.holder }, source.holder.replace(/ boot .* pid /, " pid ").replace(/ started .*/, "")), " ", source.may_be_unlocked ? unlockButton(source) : null]] : null,
  );
}

// A sync that found nothing is one, though it leaves no batch.
function lastSync({ last_run: last, nothing_new_us: quiet, now_us }) {
  const did = last && (last.kind === "bootstrap" ? "snapshot" : counted(last.mutations, "row"));
  if (quiet > (last?.ended_us ?? 0)) {
    const before = last && el("span", { class: "under" }, `before that ${did}, `, time(last.ended_us, now_us));
    return [time(quiet, now_us), ", nothing new", before];
  }
  return last ? [time(last.ended_us, now_us), `, ${did}`] : "none yet";
}

// The process that carries batches as they come, by its newest sign of life.
function following({ every_seconds, waits_for, is_silent, is_dead, at_us }) {
  if (is_dead) return ["dead since ", moment(at_us)];
  if (is_silent) return ["silent since ", moment(at_us)];
  if (waits_for) return [`waits: ${waits_for}`];
  return `every ${number(every_seconds)} s`;
}

function tally(words) {
  const counts = Map.groupBy(words, (word) => word);
  return [...counts].map(([word, all]) => [status(word), ` ${number(all.length)} `]);
}

function changed(sum, values, minutes) {
  const when = (at) => `${duration((values.length - at) * minutes * 60)} to ${duration((values.length - at - 1) * minutes * 60)} ago`;
  if (!sum) return number(sum);
  return el("span", { class: "trend" }, el("span", {}, number(sum)), bars(values, `${counted(sum, "row")}, by time`, when));
}

// What the server said of its log when a run looked at it last: the page asks it nothing.
function logFacts({ log, now_us }) {
  if (!log) return [];
  const asked = `The server's end of the log was ${log.head}, asked ${moment(log.at_us)}`;
  const left = log.kept_until_us === null ? null : (log.kept_until_us - now_us) / 1e6;
  const kept = log.kept_hours === null ? "ever" : left > 0 ? `at least ${duration(left)}` : "over";
  const rest = `${counted(log.files, "file")}, ${bytes(log.bytes)}, from ${log.oldest_file ?? "none"} on; a file is kept for ${log.kept_hours === null ? "ever" : duration(log.kept_hours * 3600)}`;
  return [
    ["Log not merged yet", [bytes(log.bytes_ahead), el("span", { class: "quiet" }, " as of ", time(log.at_us, now_us))], asked],
    ["The log needed next is kept for", [kept, el("span", { class: "quiet" }, " as of ", time(log.at_us, now_us))], `The server has ${rest}`],
  ];
}

// By the newest look at the server's log: while nothing is written there, it doesn't grow.
function behind({ lag, carried_us, now_us }) {
  if (lag?.seconds === null || lag?.seconds === undefined) return "–";
  const asked = lag.known_us ? el("span", { class: "under" }, "asked ", time(lag.known_us, now_us)) : null;
  return [el("span", { title: carried_us ? `What was committed before ${moment(carried_us)} is in the lake` : null }, duration(lag.seconds)), asked];
}

function sourceCard(source, alone) {
  const words = source.error ? "can't be read" : HEALTH_WORDS[source.health];
  const name = source.error || alone ? source.source : toSource(source.source);
  const buttons = source.error || !source.position ? null : el("div", { class: "buttons" }, ["sync", "verify", "maintain"].map((what) => runButton(source, what)));
  const edit = alone && source.may?.edit ? link({ source: source.source, edit: "yaml" }, "Edit the YAML") : fixLink(source);
  const head = el("div", { class: "head" }, el("h2", {}, name), badge(source.health, words), el("span", { class: "quiet" }, source.file), edit, buttons);
  if (source.error) return el("section", { class: "card" }, head, advice([{ health: "bad", what: source.error.detail, ...source.error }], (line) => adviceButtons(source, line)));
  const soon = source.is_copied_first ? "" : null; // page.js looks again soon
  return el("section", { class: "card", "data-soon": soon }, head, health(source), firstSnapshot(source), sourceFacts(source), alone ? sourceButtons(source) : null);
}

// Of a YAML that is broken, for those who may add a source.
const fixLink = ({ file, may }) => (may?.fix ? link({ file, edit: "yaml" }, "Edit the YAML") : null);

// The sentence that people come for; where not all is well, it is the worst thing, with what mends it, before the others.
function health(source) {
  if (!source.advice.length) return el("p", { class: "sentence" }, zoned(source.sentence, source.now_us));
  return advice(source.advice, (line) => adviceButtons(source, line));
}

// Until it is known how many chunks there are, it is known alone that it is at work: Spark's start takes a while.
function firstSnapshot({ is_copied_first, snapshots }) {
  if (!is_copied_first) return null;
  const [chunks, copied] = ["chunks", "copied"].map((key) => snapshots.reduce((sum, copy) => sum + copy[key], 0));
  const words = chunks ? `the first snapshot: ${number(copied)} of ${counted(chunks, "chunk")}` : "the first snapshot begins";
  return el("progress", { "aria-label": words, ...(chunks ? { max: chunks, value: copied } : {}) });
}

// When the tables were compared with the server, and with what result.
function verified({ verified: { tables, equal, differing, at_us }, now_us }) {
  if (!tables) return "–";
  if (!at_us) return el("span", { class: "quiet" }, "not yet");
  const words = differing ? badge("bad", `${counted(differing, "table")} ${differing === 1 ? "differs" : "differ"}`) : equal === tables ? "equal" : `${number(equal)} of ${number(tables)} equal`;
  return [words, ", ", time(at_us, now_us)];
}

const HEALTHS = Object.keys(HEALTH_WORDS);
const worst = (source) => ["bad", "new", "warn", "good"].indexOf(source.health);
const CARDS = 3; // at most: more sources stand in a table
const chosen = { words: "", health: "" };

function inOneSentence(source) {
  const first = source.error ? { what: source.error.detail, remedy: source.error.remedy, health: "bad" } : source.advice[0];
  if (!first) return zoned(source.sentence, source.now_us);
  const more = (source.advice?.length ?? 1) - 1;
  return [reason({ reason: source.sentence ?? first.what, remedy: first.remedy }), more > 0 ? el("span", { class: "under" }, `and ${counted(more, "thing")} more`) : null, adviceButtons(source, first), fixLink(source)];
}

const sourceColumns = [
  { name: "Source", key: "source", sort: (source) => source.source, cell: (source) => [source.error ? source.source : toSource(source.source), el("span", { class: "under" }, source.file)] },
  { name: "Health", key: "health", plain: true, sort: worst, cell: (source) => badge(source.health, source.error ? "can't be read" : HEALTH_WORDS[source.health]) },
  { name: "In one sentence", plain: true, cell: inOneSentence },
  { name: "Verified", key: "verified", number: true, title: "The oldest of the tables' newest comparisons with the server", sort: (source) => source.verified?.at_us, cell: (source) => (source.verified ? verified(source) : "–") },
  { name: "Behind by", key: "behind", number: true, title: "What was committed before is in the lake", sort: (source) => source.lag?.seconds, cell: behind },
  { name: "Rows changed", key: "rows", number: true, title: "In 24 hours", sort: (source) => source.rows_changed?.day, cell: (source) => (source.rows_changed ? changed(source.rows_changed.day, source.rows_changed.by_hour, 60) : "–") },
  { name: "Tables", key: "tables", number: true, sort: (source) => tables(source), cell: (source) => number(tables(source)) },
  { name: "Last sync", key: "last", number: true, sort: (source) => Math.max(source.last_run?.ended_us ?? 0, source.nothing_new_us ?? 0), cell: (source) => (source.error ? "–" : lastSync(source)) },
];

const tables = (source) => Object.values(source.table_counts ?? {}).reduce((sum, count) => sum + count, 0);

function sourceList(sources) {
  const result = el("div");
  const count = el("span", { class: "quiet", role: "status" });
  const search = el("input", { type: "search", id: "search", placeholder: "Part of a name", value: chosen.words, oninput: filter });
  const health = el("select", { id: "health", oninput: filter }, el("option", { value: "" }, "any"), HEALTHS.map((value) => el("option", { value }, HEALTH_WORDS[value])));
  health.value = chosen.health;

  function filter() {
    Object.assign(chosen, { words: search.value, health: health.value });
    const words = search.value.trim().toLowerCase();
    const fitting = sources.filter((source) => source.source.toLowerCase().includes(words) && (!health.value || source.health === health.value));
    count.textContent = `${number(fitting.length)} of ${number(sources.length)}`;
    result.replaceChildren(table("Sources", sourceColumns, fitting, { empty: "No source fits." }));
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
  if (sorted.length) return [...sorted.map((source) => sourceCard(source, false)), add];
  const todo = `put one YAML for each source into ${folder} (binlake init FILE writes one), or let AIRFLOW__BINLAKE__PIPELINES name the folder`;
  return [add, el("div", { class: "card" }, advice([{ health: "new", what: "No source is there that you may read.", remedy: todo }]))];
}

// Tables that need somebody come first.
const trouble = (row) => (row.problem || differs(row) ? -1 : TROUBLE.indexOf(row.status));
const differs = (row) => row.status === "following" && row.verified?.equal === false;

// What fixes a row's reason; where its remedy names no button, what can be done in its state. The rest is picked first.
const remedies = (source, row) => {
  if (differs(row)) return repairButton(source, [row.table]);
  if (row.fixes?.length) return fixButtons(source, row.fixes, [row.table]);
  return ["stopped", "missing", "paused"].includes(row.status) ? tableButtons(source, [row.table], [row.status]) : null;
};

const PERIODS = { hour: "last hour", day: "last 24 hours", total: "all that is known" };

function files(row) {
  if (!row.size?.many_small) return number(row.size?.files);
  const words = `${number(row.size.small)} are smaller than half a whole file: the upkeep (Maintain) puts them together`;
  return badge("warn", number(row.size.files), words);
}

function compared(source, { verified }, now_us) {
  if (!verified) return el("span", { class: "quiet" }, "–");
  const through = verified.batch ? toBatch(source, verified.batch) : "the snapshot";
  return [verified.equal ? null : verified.equal === null ? badge("warn", "not compared") : badge("bad", `differs${byRows(verified)}`), " ", time(verified.at_us, now_us), el("span", { class: "under", title: verified.position }, "through ", through)];
}

// While somebody copies: at which rate, and how long the chunks that are left take at it.
function pace({ chunks, copied, rows, begun_us }, now_us) {
  const seconds = (now_us - begun_us) / 1e6;
  if (!copied || !begun_us || seconds <= 0) return "";
  return `, ${number(Math.round(rows / seconds))} rows/s, about ${duration(((chunks - copied) / copied) * seconds)} left`;
}

function progress(source, { snapshot }, now_us) {
  if (!snapshot) return null;
  const goesOn = source.holder && !source.holder_died ? pace(snapshot, now_us) : "";
  const words = `${number(snapshot.copied)} of ${counted(snapshot.chunks, "chunk")} copied, ${counted(snapshot.rows, "row")}${goesOn}`;
  return el("span", { class: "why" }, el("meter", { min: "0", max: snapshot.chunks, value: snapshot.copied, "aria-label": words }), " ", words);
}

const tableColumns = (source, now_us) => [
  { name: "Table", key: "table", sort: (row) => row.table, cell: (row) => toTable(source.source, row.table) },
  { name: "State", key: "status", plain: true, sort: trouble, cell: (row) => [status(row.status), progress(source, row, now_us), reason(row), remedies(source, row)] },
  { name: "Rows", short: "rows", key: "rows", number: true, title: "In the lake, by the Delta log", sort: (row) => row.size?.rows, cell: (row) => number(row.size?.rows) },
  ...[["Inserted", "inserted", "+"], ["Updated", "updated", "~"], ["Deleted", "deleted", "−"]].map(([name, key, short]) => ({
    name, key, short, number: true, title: `Rows in the log, ${PERIODS[kept.period]}`,
    sort: (row) => row[kept.period]?.[key] ?? 0, cell: (row) => number(row[kept.period]?.[key] ?? 0),
  })),
  { name: "Size", short: "", key: "size", number: true, title: "Of the data files of the newest version", sort: (row) => row.size?.bytes, cell: (row) => bytes(row.size?.bytes) },
  { name: "Files", short: "files", key: "files", number: true, title: "Data files of the newest version", sort: (row) => row.size?.files, cell: files },
  { name: "Last change", short: "changed", key: "changed", number: true, title: "The last batch that changed the table, or its snapshot", sort: (row) => row.updated_us, cell: (row) => time(row.updated_us, now_us) },
  { name: "Verified", short: "verified", key: "verified", number: true, title: "When it was compared with the server last, value by value, and through which batch", sort: (row) => row.verified?.at_us, cell: (row) => compared(source.source, row, now_us) },
  { name: "Version", short: "version", key: "version", number: true, title: "Delta version", sort: (row) => row.size?.delta_version ?? row.delta_version, cell: (row) => number(row.size?.delta_version ?? row.delta_version) },
];

const kept = { words: "", state: null, period: "day", picked: new Set() };

function tableList(source, { tables, now_us, total_since_us }, asked) {
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
  const may = source.may && Object.values(source.may).some(Boolean);

  function filter() {
    Object.assign(kept, { words: search.value, state: state.value, period: period.value });
    const words = search.value.trim().toLowerCase();
    const fitting = sorted.filter((row) => row.table.toLowerCase().includes(words) && (!state.value || row.status === state.value));
    count.textContent = `${number(fitting.length)} of ${number(tables.length)}`;
    const options = { empty: "No table fits.", ...(may ? { picked: kept.picked, onpick: choose } : {}) };
    result.replaceChildren(table(`Tables of ${source.source}`, tableColumns(source, now_us), fitting, options));
  }

  function choose() {
    const rows = tables.filter((row) => kept.picked.has(row.table));
    const words = `${counted(rows.length, "table")} picked`;
    chosen.replaceChildren(...(rows.length ? [el("span", {}, words), tableButtons(source, rows.map((row) => row.table), rows.map((row) => row.status))] : []));
  }

  filter();
  choose();
  const tools = el("div", { class: "tools" }, el("label", { for: "search" }, "Search"), search, el("label", { for: "state" }, "State"), state, el("label", { for: "period" }, "Counts of"), period, count, chosen);
  return el("div", {}, tools, result);
}

const HAPPENED = 12; // events on a source's page
const LARGEST = 8;
const SPANS = { hour: "Hour", day: "Day", week: "Week", month: "Month" };
const MEASURED = 4; // times that it is asked soon again, after growing waits, where a table's size isn't known
let span = null; // until one is chosen: that which fits what is known
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
  days.length ? el("figure", { class: "card chart" }, el("figcaption", {}, el("strong", {}, "Compared with the server")), calendar(days, now_us, ofSource, "compared")) : null;

// Charts that hold nothing take no room: they are named in one line.
function overTime(drawn, listed) {
  const { charts, empty, compared, span: shown } = drawn;
  const choose = (chosen) => () => {
    span = chosen;
    dispatchEvent(new Event("changed"));
  };
  const buttons = Object.entries(SPANS).map(([key, words]) =>
    el("button", { type: "button", id: `span ${key}`, "aria-pressed": String(key === shown), onclick: choose(key) }, words));
  const nothing = [...empty, ...(compared.length ? [] : ["Compared with the server"])];
  const figures = [...charts.map(chart), compared13Weeks(drawn), sizes(listed)].filter(Boolean);
  return [
    el("div", { class: "head", id: "charts" }, el("h2", {}, "Over time"), figures.length || span ? el("div", { class: "buttons", role: "group", "aria-label": "Over the last" }, buttons) : null),
    figures.length ? el("div", { class: "charts" }, figures) : null,
    nothing.length ? el("p", { class: "quiet" }, figures.length || span ? `Nothing yet in this ${shown}: ${nothing.join(", ")}.` : "Nothing yet: charts are drawn from the first run on.") : null,
  ];
}

// To the parts of a long page.
function jumps({ feeds, relay }, { pins }, { replays }) {
  const parts = [
    ["charts", "Over time"], ["tables", "Tables"], pins.length ? ["pins", "Pinned versions"] : null, replays.length ? ["replays", "Replays"] : null, feeds.length ? ["feeds", "Feeds"] : null, relay ? ["relay", "Relay"] : null,
    ["events", "What happened"],
  ].filter(Boolean);
  return el("nav", { class: "jumps", "aria-label": "On this page" }, parts.map(([id, words]) => el("a", { href: `#${id}` }, words)));
}

export async function oneSource(place) {
  followWork(place.source);
  const path = pathOf(place.source);
  const [source, listed, feeds, pins, replays, drawn, happened] = await Promise.all([
    ask(path), ask(`${path}/tables`), ask(`${path}/feeds`), ask(`${path}/pins`), ask(`${path}/replays`),
    ask(`${path}/charts?${new URLSearchParams({ ...(span ? { span } : {}), width: chartWidth(), zone: ZONE })}`), ask(`${path}/events?count=${HAPPENED}`),
  ]);
  if (listed.tables.some((row) => row.status === "following" && !row.size) && measured < MEASURED) {
    setTimeout(() => dispatchEvent(new Event("changed")), 1500 * 2 ** measured); // they are measured beside the first answer
    measured += 1;
  }
  return [
    sourceCard(source, true),
    ...waitingChanges(source),
    jumps(feeds, pins, replays),
    ...overTime(drawn, listed),
    el("h2", { id: "tables" }, "Tables"),
    tableList(source, listed, place.state),
    ...pinned(source, pins),
    ...replayed(replays),
    ...feedSections(source, feeds),
    el("h2", { id: "events" }, "What happened"),
    list(happened),
    el("p", {}, link({ source: place.source, events: "all" }, "All that happened")),
  ];
}
