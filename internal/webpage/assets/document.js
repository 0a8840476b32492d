// The readable form of a ResourceSync document. The document itself is at the same URL as XML.
import { h, fill, count, plural, bytes, time, link, pill, note } from "./dom.js";
import { request, root, base, setNow as set } from "./api.js";
import * as session from "./session.js";

const rs = "http://www.openarchives.org/rs/terms/";
const pageSize = 200; // entries per page
const maxShown = 200_000; // characters of XML to show

const names = {
  description: "Source Description", capabilitylist: "Capability List", changelist: "Change List", "changelist-index": "Change List Index",
  resourcelist: "Resource List", "resourcelist-index": "Resource List Index", "change-notification": "Change notification", resourcedump: "Resource Dump", changedump: "Change Dump",
};

// here converts a public URL of this hub into one for this browser.
const here = (url) => (url.startsWith(base + "/") ? new URL(url.slice(base.length + 1), root).href : url);
const go = (url) => (url.startsWith(base + "/") ? h("a", { class: "loc", href: here(url) }, url) : link(url));

const child = (e, name) => [...e.children].find((c) => c.localName === name);
const md = (e) => { const m = [...e.children].find((c) => c.localName === "md" && c.namespaceURI === rs); return m ? Object.fromEntries([...m.attributes].filter((a) => !a.name.startsWith("xmlns")).map((a) => [a.localName, a.value])) : {}; };
const links = (e) => [...e.children].filter((c) => c.localName === "ln" && c.namespaceURI === rs).map((c) => ({ rel: c.getAttribute("rel"), href: c.getAttribute("href") ?? "" }));
const isTime = (name) => ["datetime", "from", "until", "at", "completed", "lastmod"].includes(name);

const rels = (all) => all.map((l) => h("div", { class: "dim" }, l.rel.split("/").at(-1), ": ", go(l.href)));

function row(item, changes, some) {
  const about = md(item);
  const rest = Object.entries(about).filter(([name]) => !["change", "datetime", "length", "type", "capability", "position"].includes(name));
  return h("tr", {},
    h("th", { scope: "row" }, go(child(item, "loc")?.textContent ?? ""), rels(links(item)), rest.map(([name, value]) => h("small", {}, name, ": ", isTime(name) ? time(value) : value))),
    h("td", { "data-name": changes ? "Change" : "Document" }, about.change ? [pill(about.change), about.position ? [" ", set ? h("a", { class: "position", href: new URL(`sets/${set}#changes?at=${encodeURIComponent(about.datetime)}`, root) }, "#" + about.position) : "#" + about.position] : null] : names[about.capability] ?? about.capability ?? "–"),
    some.time ? h("td", { "data-name": "Time" }, about.datetime ? time(about.datetime) : child(item, "lastmod") ? time(child(item, "lastmod").textContent) : "–") : null,
    some.type ? h("td", { "data-name": "Media type" }, about.type ?? "–") : null,
    some.length ? h("td", { class: "n", "data-name": "Length" }, about.length ? bytes(Number(about.length)) : "–") : null);
}

export async function documentView(main, signal) {
  let text;
  try {
    text = await (await request(new URL(location.href), { accept: "application/xml", signal, quiet: true })).text();
  } catch (e) {
    if (signal.aborted || ![401, 403, 404].includes(e.status)) throw e;
    fill(main, h("h1", {}, location.pathname.split("/").at(-1)), note("warn", e.status === 404 || e.status === 401 ? "The document does not exist, or you may not see it." : e.message + "."), session.token() ? null : h("p", {}, "If its set is private, sign in."));
    return;
  }
  const crumbs = h("p", { class: "crumbs" }, h("a", { href: root }, "Sets"), " / ", set ? [h("a", { href: new URL("sets/" + set, root) }, set), " / "] : null);
  if (!text) {
    fill(main, crumbs, h("h1", {}, "Change notification"), note("", "There are no changes yet."));
    return;
  }
  const top = new DOMParser().parseFromString(text, "application/xml").documentElement;
  const about = md(top);
  const index = top.localName === "sitemapindex";
  const items = [...top.children].filter((e) => e.localName === (index ? "sitemap" : "url"));
  const title = names[about.capability + (index ? "-index" : "")] ?? about.capability ?? "Document";
  document.title = `${title}${set ? " of " + set : ""} · rshub`;
  const body = h("tbody", {});
  const more = h("button", { type: "button", onclick: show }, "Show more");
  const changes = items.some((e) => md(e).change);
  const some = { time: items.some((e) => md(e).datetime || child(e, "lastmod")), type: items.some((e) => md(e).type), length: items.some((e) => md(e).length) };
  let shown = 0;
  function show() {
    body.append(...items.slice(shown, shown + pageSize).map((e) => row(e, changes, some)));
    shown = Math.min(shown + pageSize, items.length);
    more.hidden = shown === items.length;
    more.textContent = `Show more of ${count(items.length)}`;
  }
  const file = URL.createObjectURL(new Blob([text], { type: "application/xml" }));
  signal.addEventListener("abort", () => URL.revokeObjectURL(file));
  const raw = h("pre", { tabindex: "0", role: "region", "aria-label": "XML" });
  const source = h("details", { ontoggle: () => { if (!raw.firstChild) raw.textContent = text.length > maxShown ? text.slice(0, maxShown) + "\n… " : text; } },
    h("summary", {}, "XML"), h("p", {}, h("a", { href: file, download: location.pathname.split("/").at(-1).replace(/(\.xml)?$/, ".xml") }, "Save"), ` (${bytes(new TextEncoder().encode(text).length)})`), raw);
  fill(main, crumbs, h("h1", {}, title), set ? h("p", { class: "title" }, "Set ", h("a", { href: new URL("sets/" + set, root) }, set)) : null,
    h("dl", { class: "members" },
      Object.entries(about).filter(([name]) => name !== "capability").map(([name, value]) => [h("dt", {}, name), h("dd", {}, isTime(name) ? time(value) : h("code", {}, value))]),
      links(top).map((l) => [h("dt", {}, l.rel), h("dd", {}, go(l.href))])),
    items.length ? h("p", { class: "dim" }, index ? plural(items.length, "list") : plural(items.length, "entry", "entries"), ".") : note("", "No entries."),
    items.length ? h("div", { class: "wide-table" }, h("table", { class: "resources" }, h("caption", { class: "hidden" }, "Entries"),
      h("thead", {}, h("tr", {}, ["URL", changes ? "Change" : "Document", some.time && "Time", some.type && "Media type", some.length && "Length"].filter(Boolean).map((n) => h("th", { scope: "col", class: n === "Length" ? "n" : null }, n)))), body)) : null,
    h("p", {}, more), source);
  show();
}

// documents lists the documents of a set.
export function documents(element, name, parameters, signal, now) {
  const at = (file) => new URL(`sets/${name}/${file}`, root);
  const line = (file, title, what) => h("li", { class: "failure" }, h("div", {}, h("a", { href: at(file) }, title)), h("div", { class: "dim" }, what));
  fill(element, h("p", { class: "dim" }, "ResourceSync clients start at the Capability List. Browsers show a readable form; programs get XML from the same URLs."), h("ul", { class: "failures" },
    line("capabilitylist.xml", "Capability List", "The documents and the push channel of this set."),
    line("changelist.xml", "Change List", "The newest changes."),
    line("changelist-index.xml", "Change List Index", "All Change Lists that the hub has."),
    document.body.dataset.holds === "true" && now.inventory !== "off" ? line("resourcelist.xml", "Resource List", "All resources, if the set is complete.") : null,
    line("changes", "Change notification", "The newest publish, as subscribers receive it."),
    line(".well-known/resourcesync", "Source Description", "The Source Description of this set."),
    line("atom.xml", "Atom feed", "The newest changes, for feed readers."),
    line("activity/collection.json", "ActivityStreams collection", "All changes that the hub has, for IIIF Change Discovery.")));
}
