// The view of a set and its tabs. The fragment of the URL selects the tab, such as
// #resources?prefix=https://example.org/.
import { h, fill, compact, rate, duration, ago, until, pill, figure, link, note } from "./dom.js";
import { get, root, setNow as set } from "./api.js";
import * as session from "./session.js";
import { tail } from "./tail.js";
import { resources } from "./resources.js";
import { activity } from "./chart.js";
import { documents } from "./document.js";
import { destinations } from "./destinations.js";
import { description } from "./description.js";
import { every, outcome } from "./sources.js";
import { howToFollow } from "./howto.js";

const parts = { changes: tail, resources, activity, destinations, documents, description, follow: howToFollow };
const titles = { changes: "Changes", resources: "Resources", activity: "Last hour", destinations: "Destinations", documents: "Documents", description: "Description", follow: "Follow" };

function currentTab() {
  const [name, query] = location.hash.slice(1).split("?");
  return { part: name in parts ? name : "changes", parameters: new URLSearchParams(query) };
}

// figures returns the current figures of a set.
const figures = (s) => h("dl", { class: "figures" },
  figure("Changes", compact(Number(s.head.split("-")[0])), s.updated ? ["newest ", ago(s.updated)] : "none yet"),
  figure("Rate", s.rate === undefined ? "–" : rate(s.rate)),
  s.resources === undefined ? null : figure("Resources", compact(s.resources)),
  s.followers === undefined ? null : figure("Followers", compact(s.followers)),
  s.lag === undefined ? null : figure("Lag", s.followers ? duration(s.lag) : "–", s.behind ? `${compact(s.behind)} changes` : null));

// origin returns the polled source of a set. Only publishers and operators see it.
const origin = (s) => (s.source ? h("div", { class: "card" }, h("p", {}, "The hub polls ", link(s.source), ` every ${every(s.every)}.`), h("div", {}, outcome(s.looked), s.looked ? [" Next poll ", until(s.looked.next), "."] : null)) : null);

export async function setView(main, signal) {
  let now;
  try {
    now = await get(`sets/${set}`, { details: 1 }, { signal, quiet: true });
  } catch (e) {
    if (signal.aborted || ![401, 403, 404].includes(e.status)) throw e;
    const may = session.token() ? "" : " If it is private, sign in.";
    fill(main, h("h1", {}, set), note("warn", e.status === 403 ? e.message + "." : `The set does not exist, or you may not see it.${may}`));
    if (!session.token() || e.status === 403) session.open(e.status === 403 ? e.message : "");
    return;
  }
  const numbers = h("div", {}, figures(now));
  const source = h("div", {}, origin(now));
  const body = h("div", { class: "part", id: "part" });
  const nav = h("nav", { class: "tabs", "aria-label": "Parts of this set" });
  fill(main,
    h("p", { class: "crumbs" }, h("a", { href: root }, "Sets"), " / "),
    h("h1", {}, set, now.private ? [" ", pill("private")] : null),
    now.title ? h("p", { class: "title" }, now.title, now.describedby ? [" · ", link(now.describedby, "described here")] : null) : null,
    numbers, source, nav, body);
  document.title = `${set} · rshub`;

  let tab;
  function show() {
    const { part, parameters } = currentTab();
    tab?.abort();
    tab = new AbortController();
    signal.addEventListener("abort", () => tab.abort(), { once: true });
    fill(nav, Object.keys(parts).map((name) => h("a", { href: "#" + name, "aria-current": name === part ? "page" : null }, titles[name])));
    nav.querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "center" });
    fill(body);
    const within = tab.signal;
    Promise.resolve(parts[part](body, set, parameters, within, now)).catch((e) => {
      if (!within.aborted) fill(body, note("bad", e.message));
    });
  }
  show();
  addEventListener("hashchange", show, { signal });

  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      now = await get(`sets/${set}`, { details: 1 }, { signal, quiet: true });
      fill(numbers, figures(now));
      if (!source.contains(document.activeElement)) fill(source, origin(now));
    } catch { /* the tail shows that the hub is unreachable */ }
  }, 3000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
