// The view of the whole hub: its sets and, for operators, failures and charts.
import { h, fill, compact, plural, rate, duration, ago, time, pill, note, copyable } from "./dom.js";
import { get, root, base, rest, hasTokens } from "./api.js";
import { hour } from "./chart.js";
import * as session from "./session.js";

const pageSize = 50; // sets per page

const kinds = { deliver: "Delivery", subscribe: "Subscription", unsubscribe: "End of a subscription", source: "Source" };

// failed returns the item of a failure.
export const failed = (f, withSet = true) => h("li", { class: "failure" },
  h("div", {}, h("strong", {}, kinds[f.kind] ?? f.kind), withSet ? [" of ", h("a", { href: new URL(`sets/${f.set}`, root) }, f.set)] : null, f.final ? [" ", pill("refused")] : null,
    h("span", { class: "dim when" }, ago(f.last), f.times > 1 ? `, ${plural(f.times, "time")} since ` : "", f.times > 1 ? time(f.first) : "")),
  h("div", { class: "dim loc" }, f.url), h("div", { class: "loc" }, f.error, f.status ? `; status ${f.status}` : ""));

function row(s) {
  const lag = s.followers ? duration(s.lag) : "–";
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: new URL(`sets/${s.set}`, root) }, s.set), s.private ? [" ", pill("private")] : null, s.title ? h("small", {}, s.title) : null),
    h("td", { class: "n", "data-name": "Rate" }, rate(s.rate ?? 0)),
    h("td", { class: "n", "data-name": "Changes" }, compact(Number(s.head.split("-")[0]))),
    h("td", { "data-name": "Newest" }, s.updated ? ago(s.updated) : "none"),
    h("td", { class: "n", "data-name": "Resources" }, s.resources === undefined ? "–" : compact(s.resources)),
    h("td", { class: "n", "data-name": "Followers" }, compact(s.followers ?? 0)),
    h("td", { class: "n" + (s.lag > 60 ? " late" : ""), "data-name": "Lag" }, lag));
}

export async function overview(main, signal) {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const search = h("input", { id: "search", type: "search", value: parameters.get("prefix") ?? "", placeholder: "prefix…", spellcheck: "false", oninput: () => { clearTimeout(debounce); debounce = setTimeout(() => load(), 200); } });
  const body = h("tbody", {});
  const table = h("table", { class: "sets" }, h("caption", { class: "hidden" }, "Sets"), h("thead", {}, h("tr", {},
    ["Set", "Rate", "Changes", "Newest", "Resources", "Followers", "Lag"].map((name, i) => h("th", { scope: "col", class: i === 0 || i === 3 ? null : "n" }, name)))), body);
  const more = h("button", { type: "button", onclick: () => load(next) }, "Show more sets");
  const state = h("div", { role: "status" });
  let next = null, debounce, loading, sets = 0, pages = [];
  const charts = h("div", { class: "charts" }), failures = h("ul", { class: "failures" });
  const operating = session.caller().operate ? [
    h("section", {}, h("h2", {}, "Failures"), failures),
    h("section", {}, h("h2", {}, "Last hour"), charts, h("p", { class: "dim small" }, "Changes are counted for all hubs together; deliveries, lag and failures for the hub that answered, since its start."))] : null;
  if (operating) operate();
  fill(main,
    h("div", { class: "head" }, h("h1", {}, "Sets"), h("div", { class: "field" }, h("label", { for: "search", class: "hidden" }, "Search sets by prefix of their name"), search)),
    state, h("div", { class: "wide-table" }, table), h("p", {}, more), operating);

  async function load(from) {
    loading?.abort();
    const control = loading = new AbortController();
    signal.addEventListener("abort", () => control.abort(), { once: true });
    const prefix = search.value.trim();
    history.replaceState(null, "", prefix ? "#prefix=" + encodeURIComponent(prefix) : location.pathname + location.search);
    try {
      const path = from ?? "sets";
      const answer = from ? await get(from, {}, { signal: control.signal }) : await get(path, { details: 1, limit: pageSize, prefix }, { signal: control.signal });
      if (!from) {
        pages = [];
        body.replaceChildren();
        sets = 0;
      }
      pages.push(from ?? null);
      sets += answer.sets.length;
      body.append(...answer.sets.map(row));
      next = rest(answer.next);
      more.hidden = !next;
      table.hidden = sets === 0;
      if (sets === 0) none(prefix);
      else fill(state);
    } catch (e) {
      if (!control.signal.aborted) fill(state, note("bad", e.message));
    }
  }

  function none(prefix) {
    if (prefix) return fill(state, note("", `No visible set has the prefix ${prefix}.`));
    const signIn = hasTokens && !session.token();
    return fill(state, h("section", { class: "card" }, h("h2", {}, "No sets are visible to you"),
      h("img", { class: "drawing", src: new URL("hub.svg", import.meta.url), alt: "Sources publish changes to the hub, which pushes them to destinations.", width: 790, height: 236 }),
      signIn ? h("p", {}, h("button", { type: "button", class: "main", onclick: () => session.open() }, "Sign in")) : null,
      document.body.dataset.fixed === "true" ? null : [h("p", {}, "The first publish to a set creates it:"),
        copyable(`curl -H 'Content-Type: application/json'${hasTokens ? ' -H "Authorization: Bearer $TOKEN"' : ""} '${base}/sets/demo/changes' \\\n  -d '{"changes":[{"loc":"https://example.org/a","change":"created"}]}'`, "command that publishes a change")]));
  }

  // Only the first page is refreshed.
  const timer = setInterval(() => { if (!document.hidden && pages.length === 1 && !document.getSelection().toString()) refresh(); }, 3000);
  signal.addEventListener("abort", () => { clearInterval(timer); clearTimeout(debounce); });
  async function refresh() {
    const was = loading;
    try {
      const answer = await get("sets", { details: 1, limit: pageSize, prefix: search.value.trim() }, { signal, quiet: true });
      if (was !== loading || pages.length !== 1) return;
      const focused = body.contains(document.activeElement) ? document.activeElement.href : null;
      body.replaceChildren(...answer.sets.map(row));
      if (focused) body.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
      sets = answer.sets.length;
      next = rest(answer.next);
      more.hidden = !next;
      table.hidden = sets === 0;
      if (sets === 0) none(search.value.trim());
      else fill(state);
    } catch (e) {
      if (!signal.aborted) fill(state, note("warn", e.message));
    }
  }
  await load();

  // operate shows operators failures and charts.
  async function operate() {
    while (!signal.aborted) {
      try {
        const [{ failures: wrong }, now] = await Promise.all([get("failures", {}, { signal }), get("activity", {}, { signal })]);
        fill(failures, wrong.length === 0 ? h("li", { class: "dim" }, "None within the last day.") : wrong.slice(0, 20).map((f) => failed(f)),
          wrong.length > 20 ? h("li", { class: "dim" }, `And ${plural(wrong.length - 20, "older failure")}.`) : null);
        if (!charts.contains(document.activeElement) && !charts.querySelector("details[open]")) fill(charts, hour(now));
      } catch { /* the list of sets shows the error */ }
      await new Promise((done) => setTimeout(done, 5000));
    }
  }
}
