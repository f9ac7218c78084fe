// The page: what the API tells, drawn. All that comes from data goes in as text; nothing is parsed as HTML.

const REFRESH_MS = 30_000;
const ROWS_AT_ONCE = 200;
const STATUS_HEALTH = { following: "good", stopped: "bad", missing: "bad", paused: "warn", resnapshot: "warn", dropped: "none" };
const TROUBLE = ["stopped", "missing", "resnapshot", "paused", "following", "dropped"];
const HEALTH_WORDS = { good: "healthy", warn: "needs a look", bad: "needs you", new: "to be begun" };

const main = document.getElementById("main");
const asked = new URLSearchParams(location.search);
const place = { source: asked.get("source"), table: asked.get("table"), batch: asked.get("batch"), before: asked.get("before_us") };

// Elements: el("td", {class: "number"}, "text", otherElement). Attributes that are null aren't set.
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick" || key === "oninput") made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US"));

function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  return `${value} B`;
}

function duration(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${seconds < 10 ? Math.round(seconds * 100) / 100 : Math.round(seconds)} s`;
}

// How long ago (or how soon), with the moment itself in the tooltip. The server's clock counts, not the browser's.
function time(us, now_us) {
  if (!us) return el("span", { class: "quiet" }, "–");
  const moment = new Date(us / 1000);
  const seconds = Math.round((now_us - us) / 1e6);
  const said = seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
  const exact = `${moment.toISOString().replace("T", " ").replace(/\.\d+Z/, "")} UTC`;
  return el("time", { datetime: moment.toISOString(), title: exact }, said);
}

// server/file:offset@created is file:offset for people.
const short = (position) => (position ? position.replace(/^.*\//, "").replace(/@\d+$/, "") : "–");
const where = (position) => el("span", { class: "mono", title: position }, short(position));
const badge = (kind, words, title) => el("span", { class: `badge ${kind}`, title }, words);
const status = (word) => badge(STATUS_HEALTH[word] ?? "none", word);
const link = (to, ...words) => el("a", { href: `?${new URLSearchParams(to)}` }, ...words);
const toSource = (source) => link({ source }, source);
const toTable = (source, table) => link({ source, table }, table);
const toBatch = (source, batch) => link({ source, batch }, `batch ${number(batch)}`);

const facts = (...pairs) =>
  el("dl", {}, pairs.filter(Boolean).map(([name, value, title, kind]) =>
    el("div", { title, class: kind }, el("dt", {}, name), el("dd", {}, value))));

function advice(found) {
  if (!found?.length) return null;
  const said = ({ health, what, remedy }) => el("li", { class: health }, what, remedy ? el("span", { class: "todo" }, remedy) : null);
  return el("ul", { class: "advice" }, found.map(said));
}

function reason(row) {
  if (!row.reason) return null;
  return el("span", { class: "why" }, row.reason, row.remedy ? el("span", { class: "todo why" }, row.remedy) : null);
}

const orders = new Map(); // by the table's caption: how it was sorted, and how much of it was shown

// columns: {name, key, number, cell(row), sort(row)}; those with sort have a button. Rows are drawn as they are asked for.
function table(caption, columns, rows, { empty = "Nothing here." } = {}) {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  const order = orders.get(caption) ?? { by: null, descending: false, shown: ROWS_AT_ONCE };
  orders.set(caption, order);
  const body = el("tbody");
  const more = el("button", { type: "button", onclick: () => draw(order.shown + ROWS_AT_ONCE * 5) });
  const heads = columns.map((column) => {
    const sort = () => {
      order.descending = order.by === column.key ? !order.descending : Boolean(column.number);
      order.by = column.key;
      draw(ROWS_AT_ONCE);
    };
    const id = `sort ${caption} ${column.key}`;
    const words = column.sort ? el("button", { type: "button", id, onclick: sort }, column.name) : column.name;
    return el("th", { scope: "col", class: column.number ? "number" : null, title: column.title }, words);
  });

  function draw(count) {
    const value = columns.find((column) => column.key && column.key === order.by)?.sort;
    const ordered = value ? rows.toSorted((a, b) => compare(value(a), value(b)) * (order.descending ? -1 : 1)) : rows;
    columns.forEach((column, at) => {
      if (!column.sort) return;
      const way = order.descending ? "descending" : "ascending";
      heads[at].setAttribute("aria-sort", column.key === order.by ? way : "none");
    });
    body.replaceChildren(...ordered.slice(0, count).map(line));
    order.shown = count;
    more.textContent = `Show more (${number(rows.length - count)} left)`;
    more.hidden = count >= rows.length;
  }

  const line = (row) =>
    el("tr", {}, columns.map((column, at) => {
      const attributes = { class: column.number ? "number" : null };
      return at ? el("td", attributes, column.cell(row)) : el("th", { scope: "row", ...attributes }, column.cell(row));
    }));

  draw(order.shown);
  const drawn = el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body);
  return el("div", {}, el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, drawn), more);
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b) : a - b;
}

class Refused extends Error {
  constructor(status, said) {
    super(typeof said.detail === "string" ? said.detail : `the server answered ${status}`);
    this.status = status;
    this.remedy = said.remedy;
  }
}

async function ask(path) {
  const answer = await fetch(`api/${path}`, { headers: { Accept: "application/json" } });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, said);
  return said;
}

function refusal(error) {
  const remedies = { 401: "log in to Airflow again", 403: "ask for the right to read this source's DAGs", 404: "go back to the overview" };
  const remedy = error.remedy || remedies[error.status] || "it is asked again by itself; the API server's log tells more";
  return el("div", { class: "card", role: "alert" }, advice([{ health: "bad", what: error.message, remedy }]));
}

function sourceFacts(one) {
  const last = one.last_run;
  const next = one.dags.sync && !one.dags.sync.is_paused ? one.dags.sync.next_run_us : null;
  const counts = Object.entries(one.table_counts).map(([word, count]) => [status(word), ` ${number(count)} `]);
  return facts(
    ["Behind by", one.carried_us ? lag(one) : "–", "What was committed before is in the lake"],
    ["Position", where(one.position), "File and offset of the binlog up to which every table that follows is merged"],
    ["Last run", last ? [time(last.ended_us, one.now_us), `, ${number(last.mutations)} mutations`] : "none yet"],
    ["Next run", next ? time(next, one.now_us) : one.dags.sync?.is_paused ? "paused" : one.schedule ? "–" : "by hand"],
    ["Rows changed in the last hour", number(one.rows_changed.hour), "Inserted, updated and deleted rows of batches recorded since"],
    ["Rows changed in 24 hours", number(one.rows_changed.day)],
    ["Tables", counts.length ? counts : "none yet"],
    one.open_batch ? ["Open batch", [toBatch(one.source, one.open_batch.batch), ` is ${one.open_batch.state}`]] : null,
    one.holder ? ["At work", el("span", { class: "mono" }, one.holder)] : null,
  );
}

function lag(one) {
  const shown = time(one.carried_us, one.now_us);
  shown.textContent = duration(Math.max(0, (one.now_us - one.carried_us) / 1e6));
  return shown;
}

function sourceCard(one) {
  const words = one.error ? "can't be read" : HEALTH_WORDS[one.health];
  const name = one.error || place.source ? one.source : toSource(one.source);
  const head = el("div", { class: "head" }, el("h2", {}, name), badge(one.health, words), el("span", { class: "quiet" }, one.file));
  if (one.error) return el("section", { class: "card" }, head, advice([{ health: "bad", what: one.error.detail, remedy: one.error.remedy }]));
  return el("section", { class: "card" }, head, sourceFacts(one), advice(one.advice));
}

async function overview() {
  const { sources, folder } = await ask("sources");
  if (sources.length) return sources.map(sourceCard);
  const todo = `put one YAML for each source into ${folder} (binlake init FILE writes one), or let AIRFLOW__BINLAKE__PIPELINES name the folder`;
  return [el("div", { class: "card" }, advice([{ health: "new", what: "No source is there that you may read.", remedy: todo }]))];
}

// Tables that need somebody come first.
const trouble = (row) => TROUBLE.indexOf(row.status);

const runColumns = (source, now_us) => [
  { name: "Run", cell: (run) => (run.kind === "sync" ? toBatch(source, run.batch) : run.kind) },
  { name: "Ended", cell: (run) => time(run.ended_us, now_us) },
  { name: "Took", number: true, cell: (run) => duration((run.ended_us - run.started_us) / 1e6) },
  { name: "Mutations", number: true, cell: (run) => number(run.mutations) },
  { name: "Read", number: true, title: "Bytes of log, or of a snapshot", cell: (run) => bytes(run.bytes) },
  { name: "What it says", cell: (run) => el("span", { class: "why" }, run.message) },
];

const tableColumns = (source, now_us) => [
  { name: "Table", key: "table", sort: (row) => row.table, cell: (row) => toTable(source, row.table) },
  { name: "State", key: "status", sort: trouble, cell: (row) => [status(row.status), reason(row)] },
  ...[["Inserted", "inserted"], ["Updated", "updated"], ["Deleted", "deleted"]].map(([name, key]) => ({
    name, key, number: true, title: "Rows in the last 24 hours",
    sort: (row) => row.day?.[key] ?? 0, cell: (row) => (row.day ? number(row.day[key]) : "0"),
  })),
  { name: "Last change", key: "changed", number: true, title: "The last batch that changed the table, or its snapshot", sort: (row) => row.updated_us, cell: (row) => time(row.updated_us, now_us) },
  { name: "Delta version", key: "version", number: true, sort: (row) => row.delta_version, cell: (row) => number(row.delta_version) },
];

const kept = { words: "", state: "" };

function tableList(source, { tables, now_us }) {
  const sorted = tables.toSorted((a, b) => trouble(a) - trouble(b) || compare(a.table, b.table));
  const result = el("div");
  const count = el("span", { class: "quiet", role: "status" });
  const states = [...new Set(tables.map((row) => row.status))].sort();
  const search = el("input", { type: "search", id: "search", placeholder: "Part of a name", value: kept.words, oninput: filter });
  const state = el("select", { id: "state", oninput: filter }, el("option", { value: "" }, "any"), states.map((word) => el("option", {}, word)));
  state.value = states.includes(kept.state) ? kept.state : "";

  function filter() {
    Object.assign(kept, { words: search.value, state: state.value });
    const words = search.value.trim().toLowerCase();
    const found = sorted.filter((row) => row.table.toLowerCase().includes(words) && (!state.value || row.status === state.value));
    count.textContent = `${number(found.length)} of ${number(tables.length)}`;
    result.replaceChildren(table(`Tables of ${source}`, tableColumns(source, now_us), found, { empty: "No table fits." }));
  }

  filter();
  const tools = el("div", { class: "tools" }, el("label", { for: "search" }, "Search"), search, el("label", { for: "state" }, "State"), state, count);
  return tables.length ? el("div", {}, tools, result) : el("p", { class: "quiet" }, "No table yet.");
}

async function oneSource() {
  const path = `sources/${encodeURIComponent(place.source)}`;
  const older = place.before ? `&before_us=${encodeURIComponent(place.before)}` : "";
  const [found, told, { runs }] = await Promise.all([ask(path), ask(`${path}/tables`), ask(`${path}/runs?count=20${older}`)]);
  const last = runs.at(-1);
  const next = runs.length === 20 ? link({ source: place.source, before_us: last.ended_us }, "Earlier runs") : null;
  return [
    sourceCard(found),
    el("h2", {}, "Tables ", el("small", {}, "counts of rows are those of the last 24 hours")),
    tableList(place.source, told),
    el("h2", { id: "runs" }, place.before ? "Earlier runs" : "Last runs"),
    table("Runs", runColumns(place.source, found.now_us), runs, { empty: "No run yet." }),
    next ? el("p", {}, next) : null,
  ];
}

function statements(found) {
  const said = (one) =>
    el("li", {}, time(one.committed_us, found.now_us), ` · ${one.kind} · ${one.action} · `, toBatch(found.source, one.batch), " ",
      el("span", { class: "mono quiet" }, `${one.file}:${one.offset}`), el("pre", {}, el("code", {}, one.statement)), reason({ reason: one.reason }));
  if (!found.history.length) return el("p", { class: "quiet" }, "No DDL statement has concerned this table since its snapshot.");
  return el("ol", { class: "line" }, found.history.toReversed().map(said));
}

function verified({ verified: last, source, now_us }) {
  if (!last) return "never, or long ago";
  const result = last.equal ? badge("good", "equal") : badge("bad", `${number(last.differing)} chunks differ`);
  return [result, " ", time(last.at_us, now_us), ", ", last.batch ? toBatch(source, last.batch) : "the snapshot", `, ${number(last.lake_rows)} rows`];
}

async function oneTable() {
  const found = await ask(`sources/${encodeURIComponent(place.source)}/tables/${encodeURIComponent(place.table)}`);
  const columns = [
    { name: "Column", cell: (column) => el("span", { class: "mono" }, column.name) },
    { name: "Type", cell: (column) => el("span", { class: "mono" }, column.type) },
    { name: "Null", cell: (column) => (column.nullable ? "yes" : "no") },
    { name: "Character set", cell: (column) => column.charset ?? "" },
    { name: "Default", cell: (column) => (column.default === null ? "" : el("span", { class: "mono" }, column.default)) },
    { name: "In the lake", cell: (column) => (column.in_lake ? "yes" : badge("none", "left out")) },
  ];
  const runs = [
    { name: "Batch", cell: (run) => toBatch(found.source, run.batch) },
    { name: "Ended", cell: (run) => time(run.ended_us, found.now_us) },
    { name: "State", cell: (run) => [status(run.status), reason(run)] },
    ...counts,
  ];
  const schema = found.schema;
  return [
    el("section", { class: "card" },
      el("div", { class: "head" }, el("h2", {}, found.table), status(found.status)),
      facts(
        ["Position", where(found.position), "Up to here the table is merged"],
        ["Batch", found.batch ? toBatch(found.source, found.batch) : "snapshot"],
        ["Delta version", number(found.delta_version)],
        schema ? ["Key", schema.key.length ? `${schema.key.join(", ")} (${schema.key_kind})` : "none"] : null,
        ["Verified", verified(found), "The newest comparison with the server, value by value"],
        ["Delta table", el("span", { class: "mono" }, found.path), "Where its rows lie", "row"],
      ),
      found.verified && !found.verified.equal
        ? advice([{ health: "bad", what: "the lake differs from the server", remedy: "run binlake verify again; if it differs still, snapshot the table again" }])
        : null,
      found.reason ? advice([{ health: STATUS_HEALTH[found.status] ?? "warn", what: found.reason, remedy: found.remedy }]) : null),
    el("h2", {}, found.status === "dropped" ? "Schema when it was dropped" : "Schema now"),
    schema ? table("Columns", columns, schema.columns) : el("p", { class: "quiet" }, "No schema of it is known yet."),
    el("h2", {}, "DDL history"),
    statements(found),
    el("h2", {}, `Runs of the last ${found.runs_days} days that tell of it`),
    table("Runs", runs, found.runs, { empty: "None changed it." }),
  ];
}

const counts = [
  { name: "Inserted", number: true, key: "inserted", sort: (one) => one.inserted, cell: (one) => number(one.inserted) },
  { name: "Updated", number: true, key: "updated", sort: (one) => one.updated, cell: (one) => number(one.updated) },
  { name: "Deleted", number: true, key: "deleted", sort: (one) => one.deleted, cell: (one) => number(one.deleted) },
  { name: "Delta version", number: true, cell: (one) => number(one.delta_version) },
  { name: "Took", number: true, key: "seconds", sort: (one) => one.seconds, cell: (one) => duration(one.seconds) },
];

function phases(found) {
  const entries = Object.entries(found);
  if (!entries.length) return el("p", { class: "quiet" }, "No phase is over yet.");
  const longest = Math.max(...entries.map(([, seconds]) => seconds), 0.001);
  return el("div", { class: "bars" }, entries.map(([name, seconds]) => [
    el("span", {}, name),
    el("meter", { min: "0", max: longest, value: seconds, "aria-label": `${name}: ${duration(seconds)}` }),
    el("span", { class: "number" }, duration(seconds)),
  ]));
}

async function oneRun() {
  const found = await ask(`sources/${encodeURIComponent(place.source)}/runs/${encodeURIComponent(place.batch)}`);
  const { range, run } = found;
  const tables = [
    { name: "Table", key: "table", sort: (one) => one.table, cell: (one) => toTable(found.source, one.table) },
    { name: "State", key: "status", sort: (one) => one.status, cell: (one) => [status(one.status), reason(one)] },
    ...counts,
  ];
  const slices = [
    { name: "File", cell: (part) => el("span", { class: "mono" }, part.file) },
    { name: "From", number: true, cell: (part) => number(part.start) },
    { name: "To", number: true, cell: (part) => number(part.stop) },
    { name: "Size", number: true, cell: (part) => bytes(part.stop - part.start) },
  ];
  const stops = found.stops.map((stop) => ({
    health: "bad",
    what: `${stop.table ?? "the run"}${stop.file ? ` at ${stop.file}:${stop.offset}` : ""}: ${stop.reason}`,
    remedy: stop.remedy,
  }));
  return [
    el("section", { class: "card" },
      el("div", { class: "head" }, el("h2", {}, `Batch ${number(found.batch)}`), badge(found.state === "recorded" ? "good" : "warn", found.state)),
      facts(
        ["Planned", time(found.planned_us, found.now_us)],
        run ? ["Recorded", time(run.ended_us, found.now_us)] : null,
        range ? ["From", where(range.start)] : null,
        range ? ["To", where(range.stop)] : null,
        range ? ["Log read", bytes(range.bytes)] : null,
        run ? ["Mutations", number(run.mutations)] : null,
        run ? ["Run", el("span", { class: "mono" }, run.run), "Airflow's DAG and run, where Airflow ran it", "row"] : null,
        range?.gtid_set ? ["GTIDs up to its end", el("span", { class: "mono" }, range.gtid_set), null, "row"] : null,
      ),
      found.state === "recorded" ? null : advice([{ health: "warn", what: "this batch isn't recorded yet", remedy: "nothing while a run is at it; else the next run finishes it" }]),
      advice(stops)),
    el("h2", {}, "Phases"),
    el("div", { class: "card" }, phases(found.phases)),
    el("h2", {}, "Tables"),
    table("Tables of the batch", tables, found.tables, { empty: "It changed none." }),
    el("h2", {}, "Slices"),
    range ? table("Slices of the log", slices, range.slices, { empty: "It read none." }) : el("p", { class: "quiet" }, "Its range is known no more."),
  ];
}

function trail() {
  const steps = [["Binlake", {}]];
  if (place.source) steps.push([place.source, { source: place.source }]);
  if (place.table) steps.push([place.table, null]);
  if (place.batch) steps.push([`batch ${place.batch}`, null]);
  const shown = steps.map(([words, to], at) =>
    el("li", {}, at === steps.length - 1 ? el("span", { "aria-current": "page" }, words) : el("a", { href: `?${new URLSearchParams(to)}` }, words)));
  document.getElementById("trail").replaceChildren(el("ol", {}, shown));
  document.title = steps.map(([words]) => words).toReversed().join(" – ");
  document.getElementById("title").textContent = document.title;
}

const view = place.table ? oneTable : place.batch ? oneRun : place.source ? oneSource : overview;
let drawn = "";

// Who reads or types isn't disturbed: focus and place stay, and nothing is drawn anew where nothing changed.
async function refresh() {
  const said = document.getElementById("refreshed");
  try {
    const parts = (await view()).filter(Boolean);
    const { id: focused, selectionStart: caret } = document.activeElement ?? {};
    const next = parts.map((part) => part.outerHTML).join("");
    if (next !== drawn) {
      const [x, y] = [scrollX, scrollY];
      main.replaceChildren(...parts);
      drawn = next;
      const again = focused ? document.getElementById(focused) : null;
      again?.focus();
      if (typeof caret === "number") again?.setSelectionRange?.(caret, caret);
      scrollTo(x, y);
    }
    said.textContent = `as of ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    console.error(error);
    if (!drawn || error.status) {
      main.replaceChildren(refusal(error));
      drawn = "";
    }
    said.textContent = "the last refresh failed";
  }
}

trail();
await refresh();
setInterval(() => document.hidden || refresh(), REFRESH_MS);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
