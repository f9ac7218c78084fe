// What the API gives, and what it is asked to do.

export class Refused extends Error {
  constructor(status, said) {
    super(typeof said.detail === "string" ? said.detail : `the request failed, with no more than the number ${status}`);
    this.status = status;
    this.remedy = said.remedy;
    this.fields = said.fields; // errors by field, of a form
    this.problems = said.problems; // errors by line, of a YAML
  }
}

async function answered(request) {
  const answer = await request;
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, said);
  return said;
}

export const ask = (path) => answered(fetch(`api/${path}`, { headers: { Accept: "application/json" } }));

export const post = (path, body) =>
  answered(fetch(`api/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));

export const pathOf = (source, table) =>
  `sources/${encodeURIComponent(source)}${table === undefined ? "" : `/tables/${encodeURIComponent(table)}`}`;
