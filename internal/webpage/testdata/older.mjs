// Runs showOlder of tail.js with a minimal page and a log in memory. The arguments are the path of
// tail.js and the case as JSON:
//   floor, head   positions before and at the end of the log
//   created       positions of created changes; all others are updates
//   large         maximum number of changes in a page; zero means no limit
//   list          positions in the list
//   change        the filter
//   clicks        number of clicks
// It prints {"rows": [[positions that a click added]], "notes": [text or null], "requests": n}.
import { readFileSync } from "node:fs";
const c = JSON.parse(process.argv[3]);
const source = readFileSync(process.argv[2], "utf8");
const from = source.indexOf("  async function showOlder() {"), to = source.indexOf("  function togglePause(");
if (from < 0 || to < from) throw new Error("tail.js has no showOlder");

const created = new Set(c.created), cursor = (n) => `${n}-${n * 10}`;
let requests = 0;
const get = async (path, parameters) => {
  requests++;
  if (path === "sets/demo") {
    const n = parameters.recent;
    if (n > 10000) throw new Error("recent is at most 10000");
    return { head: cursor(c.head), recent: n === undefined ? undefined : cursor(Math.max(c.head - n, c.floor)) };
  }
  const since = Number(parameters.since.split("-")[0]), changes = [];
  let at = since;
  while (at < c.head && changes.length < Math.min(parameters.limit, c.large || 10000)) {
    const change = created.has(++at) ? "created" : "updated";
    if (parameters.change.length === 0 || parameters.change.includes(change)) changes.push({ position: at, change });
  }
  return { changes, cursor: cursor(at) };
};
const rows = c.list, list = { get lastChild() { return { querySelector: () => ({ textContent: "#" + rows.at(-1) }) }; }, append: (...r) => rows.push(...r) };
let note = null;
const show = new Function("list", "togglePause", "older", "get", "set", "signal", "maxRows", "filter", "fill", "news", "note", "row",
  `let extra = 0;\n${source.slice(from, to)}\nreturn showOlder;`)(
  list, () => {}, {}, get, "demo", undefined, 200, () => ({ prefix: "", type: [], change: c.change }), (_, text) => (note = text), {}, (_, text) => text, (e) => e.position);
const result = { rows: [], notes: [], requests: 0 };
for (let i = 0; i < c.clicks; i++) {
  const n = rows.length;
  note = null;
  await show();
  result.rows.push(rows.slice(n));
  result.notes.push(note);
}
result.requests = requests;
console.log(JSON.stringify(result));
