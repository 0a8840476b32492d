// Starts the page: reads the caller, and shows the view for the URL.
import { h, fill, note } from "./dom.js";
import { root } from "./api.js";
import * as session from "./session.js";
import { overview } from "./overview.js";
import { setView } from "./set.js";
import { sources } from "./sources.js";
import { documentView } from "./document.js";
import { status } from "./destinations.js";

const views = { overview, set: setView, sources, subscription: status, document: documentView };
const main = document.getElementById("main");
let shown; // AbortController of the current view

// show shows the view again, for example after signing in.
async function show() {
  shown?.abort();
  shown = new AbortController();
  const view = document.body.dataset.view === "overview" && location.hash === "#sources" ? "sources" : document.body.dataset.view;
  const nav = [["Sets", "./", "overview"], session.caller().operate ? ["Sources", "./#sources", "sources"] : null].filter(Boolean);
  fill(document.getElementById("nav"), nav.map(([name, path, of]) => h("a", { href: new URL(path, root), "aria-current": of === view ? "page" : null }, name)));
  main.removeAttribute("aria-busy");
  try {
    await views[view](main, shown.signal);
  } catch (e) {
    if (shown.signal.aborted) return;
    fill(main, note("bad", e.message ?? String(e)), h("p", {}, h("button", { type: "button", onclick: show }, "Retry")));
    if (!e.status && e.name !== "Error") console.error(e);
  }
}

main.setAttribute("aria-busy", "true");
session.changed(show);
addEventListener("hashchange", () => { if (document.body.dataset.view === "overview" && /^$|^#sources$/.test(location.hash)) show(); });
await session.load();
await show();
