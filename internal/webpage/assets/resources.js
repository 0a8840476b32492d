// The resources of a set, each with its newest change.
import { h, fill, count, plural, bytes, time, link, pill, note } from "./dom.js";
import { get, rest } from "./api.js";

const pageSize = 100;

function row(r) {
  return h("tr", {},
    h("th", { scope: "row" }, link(r.loc)),
    h("td", { "data-name": "Newest change" }, pill(r.change), " ", h("a", { href: `#changes?at=${encodeURIComponent(r.datetime)}`, class: "position", title: "this change" }, "#" + r.position)),
    h("td", { "data-name": "Time" }, time(r.datetime)),
    h("td", { "data-name": "Media type" }, r.type ?? "–"),
    h("td", { class: "n", "data-name": "Length" }, r.length === undefined ? "–" : bytes(r.length)));
}

export async function resources(element, set, parameters, signal) {
  const prefix = h("input", { id: "prefix", type: "search", value: parameters.get("prefix") ?? "", placeholder: "https://…", spellcheck: "false", oninput: () => { clearTimeout(debounce); debounce = setTimeout(() => load(), 300); } });
  const state = h("div", { role: "status" });
  const body = h("tbody", {});
  const table = h("table", { class: "resources" }, h("caption", { class: "hidden" }, "Resources"),
    h("thead", {}, h("tr", {}, ["Resource", "Newest change", "Time", "Media type", "Length"].map((n, i) => h("th", { scope: "col", class: i === 4 ? "n" : null }, n)))), body);
  const more = h("button", { type: "button", onclick: () => load(next) }, "Show more resources");
  let next = null, debounce, loading, shown = 0;
  table.hidden = more.hidden = true;
  fill(element,
    h("form", { class: "bar", onsubmit: (e) => { e.preventDefault(); load(); } }, h("div", { class: "field wide" }, h("label", { for: "prefix" }, "URL prefix"), prefix)),
    state, h("div", { class: "wide-table" }, table), h("p", {}, more));
  signal.addEventListener("abort", () => { clearTimeout(debounce); loading?.abort(); });

  async function load(from) {
    clearTimeout(debounce);
    loading?.abort();
    const control = loading = new AbortController();
    const start = prefix.value.trim();
    history.replaceState(null, "", "#resources" + (start ? "?" + new URLSearchParams({ prefix: start }) : ""));
    try {
      const page = await get(from ?? `sets/${set}/resources`, from ? {} : { prefix: start, limit: pageSize }, { signal: control.signal });
      if (!from) {
        body.replaceChildren();
        shown = 0;
      }
      body.append(...page.resources.map(row));
      shown += page.resources.length;
      next = rest(page.next);
      more.hidden = !next;
      table.hidden = shown === 0;
      fill(state, shown === 0 ? note("", start ? `No resource has the prefix ${start}.` : "This set has no resources.")
        : h("p", { class: "dim" }, start ? `${plural(page.count, "resource")} with this prefix` : plural(page.count, "resource"),
          shown < page.count ? `, first ${count(shown)} shown` : "", ". ",
          page.complete ? "The set is complete." : "The set is not complete: there may be others."));
    } catch (e) {
      if (control.signal.aborted) return;
      if (e.status === 410 && from) return load(); // the state of the list is gone: start over
      fill(state, note("warn", e.type === "no-inventory" ? "This set has no inventory." : e.message));
      table.hidden = more.hidden = true;
    }
  }
  await load();
}
