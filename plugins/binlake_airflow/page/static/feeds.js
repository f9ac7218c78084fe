// A source's feeds, and the clients of its relay.

import { runButton } from "./actions.js";
import { advice, el, reason, status, table, time, toBatch } from "./elements.js";
import { duration, number } from "./words.js";

const OPERATIONS = [[1, "insert"], [2, "update"], [4, "delete"]];
const operations = (flags) => OPERATIONS.filter(([flag]) => flags & flag).map(([, word]) => word).join(", ");
const opened = new Set(); // clients whose events are looked at

function behind(feed, now_us) {
  if (!feed.behind) return "nothing";
  const words = `${number(feed.behind)} ${feed.behind === 1 ? "batch" : "batches"}`;
  return feed.carried_us ? `${words}, ${duration((now_us - feed.carried_us) / 1e6)}` : words;
}

const feedColumns = (source, now_us) => [
  { name: "Feed", cell: (feed) => [feed.name, feed.in_yaml ? null : el("span", { class: "quiet", title: "It is of a file of feeds, or was taken out and still keeps staging" }, " not in this YAML")] },
  { name: "State", cell: (feed) => [status(feed.status), reason(feed)] },
  { name: "Carried through", cell: (feed) => (feed.batch === null ? "not begun" : feed.batch === 0 ? "the snapshot" : toBatch(source, feed.batch)) },
  { name: "Behind by", number: true, title: "Recorded batches that it hasn't carried, and since when", cell: (feed) => behind(feed, now_us) },
  { name: "Messages", number: true, cell: (feed) => number(feed.messages) },
  { name: "Left out", number: true, title: "Events that it couldn't send, and was to leave out", cell: (feed) => el("span", { title: feed.last_left_out }, number(feed.left_out)) },
  { name: "Last heard of", number: true, cell: (feed) => time(feed.updated_us, now_us) },
];

function events(client, now_us) {
  if (!client.last_events.length) return el("span", { class: "quiet" }, "none yet");
  const served = client.last_events.toReversed().map((event) =>
    el("li", {}, operations(event.type), ` of ${event.table} at `, el("span", { class: "mono" }, `${event.file}:${event.position}`), ", served ", time(event.served_us, now_us)));
  const toggle = (event) => opened[event.target.open ? "add" : "delete"](client.id);
  return el("details", { open: opened.has(client.id) ? "" : null, ontoggle: toggle },
    el("summary", { id: `events ${client.id}` }, `last ${number(client.last_events.length)}, `, time(client.last_events.at(-1).served_us, now_us)), el("ol", { class: "plain" }, served));
}

const filters = ({ filters: asked }) =>
  asked.length ? asked.map((filter) => el("div", {}, `${filter.schema}.${filter.table}: `, operations(filter.operations))) : el("span", { class: "quiet" }, "none");

const clientColumns = (source, now_us) => [
  { name: "Client", key: "name", sort: (client) => client.name, cell: (client) => client.name },
  { name: "Filters", cell: filters },
  { name: "Arrived through", cell: (client) => toBatch(source, client.batch) },
  { name: "Queued", number: true, key: "queued", title: "Events that wait to be polled", sort: (client) => client.queued, cell: (client) => number(client.queued) },
  { name: "Largest queue", number: true, key: "largest", sort: (client) => client.largest_queue, cell: (client) => number(client.largest_queue) },
  { name: "Served", number: true, key: "served", sort: (client) => client.served, cell: (client) => number(client.served) },
  { name: "Discarded", number: true, key: "discarded", title: "Events that a full queue let go", sort: (client) => client.discarded, cell: (client) => number(client.discarded) },
  { name: "Last events", cell: (client) => events(client, now_us) },
];

function relayed({ relay, source, now_us }) {
  if (!relay) return [];
  const { clients, clients_problem: problem } = relay;
  return [
    el("h2", { id: "relay" }, "Relay"),
    el("p", {}, status(relay.status), " at ", relay.batch === null ? "no batch yet" : toBatch(source, relay.batch), `, ${number(relay.messages)} events served, heard of `, time(relay.updated_us, now_us), reason(relay)),
    problem ? advice([{ health: "bad", what: problem.detail, remedy: problem.remedy }]) : table("Clients of the relay", clientColumns(source, now_us), clients, { empty: "No client has registered." }),
  ];
}

// source, carried: the source and its feeds, as the API gives them.
export function feedSections(source, carried) {
  const sections = relayed(carried);
  if (!carried.feeds.length) return sections;
  const heading = el("div", { class: "head", id: "feeds" }, el("h2", {}, "Feeds"), el("div", { class: "buttons" }, runButton(source, "feeds")));
  return [heading, table("Feeds", feedColumns(carried.source, carried.now_us), carried.feeds), ...sections];
}
