// The rows of a table that differed when it was compared last.

import { ask, pathOf } from "./api.js";
import { el, keyOf, table } from "./elements.js";
import { counted, moment, number } from "./words.js";

const columns = [
  { name: "Difference", cell: (row) => row.kind },
  { name: "Rows", number: true, cell: (row) => number(row.count) },
  { name: "Columns", cell: (row) => row.columns.join(", ") },
];

// Their keys alone where the user may see them.
export function differing(known) {
  if (!known?.rows.length) return null;
  const shown = known.with_keys ? [...columns, { name: "Key", title: "Its hash, where keys aren't noted: page.show_values", cell: keyOf }] : columns;
  const more = known.more ? el("p", { class: "quiet" }, `and ${counted(known.more, "row")} more`) : null;
  return el("div", {}, el("p", { class: "quiet" }, `Rows that differed at ${moment(known.at_us)}:`), table("Rows that differ", shown, known.rows), more);
}

export const differences = async (source, name) => differing((await ask(`${pathOf(source)}/differing/${encodeURIComponent(name)}`)).differing);
