// The sources that the hub polls.
import { h, fill, plural, duration, ago, until, link, pill, note } from "./dom.js";
import { get, root, rest } from "./api.js";

// every formats a duration of Go, such as 1h0m0s, without zero parts.
export const every = (text) => text.replace(/(?<=[hm])0[ms]/g, "").replace(/(\d)([hms])(?=\d)/g, "$1$2 ");

// outcome returns the result of the last poll of a source.
export function outcome(l) {
  if (!l) return [pill("waiting"), " Not polled yet."];
  const counted = [["created", l.created], ["updated", l.updated], ["deleted", l.deleted]].filter(([, n]) => n).map(([word, n]) => `${n} ${word}`).join(", ");
  return [pill(l.result), " ", ago(l.time), `, took ${duration(l.seconds)}`, l.listed ? `, ${plural(l.listed, "resource")} listed` : "", counted ? `: ${counted}` : l.result === "ok" ? ": no changes" : "",
    l.gaps ? `; ${plural(l.gaps, "part")} could not be read` : "", l.error ? h("div", { class: "loc" }, l.error) : null];
}

const row = (s) => h("tr", {},
  h("th", { scope: "row" }, h("a", { href: new URL(`sets/${s.set}`, root) }, s.set)),
  h("td", { "data-name": "Source" }, link(s.source)),
  h("td", { "data-name": "Every" }, every(s.every)),
  h("td", { "data-name": "Last poll" }, outcome(s.looked)),
  h("td", { "data-name": "Next" }, s.looked ? until(s.looked.next) : "soon"));

export async function sources(main, signal) {
  const body = h("tbody", {}), state = h("div", { role: "status" });
  const table = h("table", {}, h("caption", { class: "hidden" }, "Sources"), h("thead", {}, h("tr", {}, ["Set", "Source", "Every", "Last poll", "Next"].map((n) => h("th", { scope: "col" }, n)))), body);
  const more = h("button", { type: "button", onclick: () => load(next) }, "Show more sources");
  let next = null;
  fill(main, h("h1", {}, "Sources"), h("p", { class: "dim" }, "The sources that the hub polls."), state, h("div", { class: "wide-table" }, table), more);
  async function load(from) {
    try {
      const page = await get(from ?? "sources", {}, { signal });
      if (from) body.append(...page.sources.map(row));
      else body.replaceChildren(...page.sources.map(row));
      next = rest(page.next);
      more.hidden = !next;
      table.hidden = body.children.length === 0;
      fill(state, table.hidden ? note("", "The hub polls no source. To poll one, PUT /sets/{set} with \"source\" and \"every\".") : null);
    } catch (e) {
      if (!signal.aborted) fill(state, note("bad", e.message));
    }
  }
  await load();
  const timer = setInterval(() => { if (!document.hidden && body.children.length <= 100 && !main.contains(document.activeElement)) load(); }, 5000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
