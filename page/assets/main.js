// Begins the page: finds out who is signed in, and shows the view that the URL names.
import { h, fill, note } from "./dom.js";
import { root } from "./api.js";
import * as session from "./session.js";
import { overview } from "./overview.js";
import { setView } from "./set.js";

const views = { overview, set: setView };
const main = document.getElementById("main");
let shown; // ends what the view does

// show shows the view anew, as whoever is signed in now sees it.
async function show() {
  shown?.abort();
  shown = new AbortController();
  const nav = [["Sets", ""]];
  fill(document.getElementById("nav"), nav.map(([name, path]) => h("a", { href: new URL(path, root) }, name)));
  main.removeAttribute("aria-busy");
  try {
    await views[document.body.dataset.view](main, shown.signal);
  } catch (e) {
    if (shown.signal.aborted) return;
    fill(main, note("bad", e.message ?? String(e)), h("p", {}, h("button", { type: "button", onclick: show }, "Try again")));
    if (!e.status && e.name !== "Error") console.error(e);
  }
}

main.setAttribute("aria-busy", "true");
session.changed(show);
await session.begin();
await show();
