// The live list of the newest changes of a set, newest first.
import { h, fill, count, plural, bytes, rate, time, link, pill, note } from "./dom.js";
import { get } from "./api.js";
import { follow } from "./stream.js";

const maxEntries = 2000; // changes in memory
const maxRows = 200; // rows on the page, in addition to older ones that were requested
const frameInterval = 100; // milliseconds between two renderings

const at = (position, datetime) => `#changes?at=${encodeURIComponent(datetime)}`;

// row returns a change as a list item.
export function row(entry, permanent = at(entry.position, entry.datetime)) {
  return h("li", { class: "change" },
    time(entry.datetime), pill(entry.change), link(entry.loc),
    h("span", { class: "dim more" }, [entry.type, entry.length === undefined ? null : bytes(entry.length)].filter(Boolean).join(" · ")),
    h("a", { class: "position", href: permanent, title: "permalink of this change" }, "#" + entry.position));
}

// whole returns a change with all its members.
export function whole(entry) {
  const rows = Object.entries(entry).map(([name, value]) => [h("dt", {}, name),
    h("dd", {}, name === "loc" ? link(value) : name === "change" ? pill(value) : typeof value === "object" ? h("code", {}, JSON.stringify(value)) : String(value))]);
  return h("dl", { class: "members" }, rows);
}

// tail shows the list in an element until signal is aborted.
export function tail(element, set, parameters, signal) {
  const list = h("ol", { class: "tail", "aria-label": "Changes, newest first" });
  const status = h("span", { class: "status", role: "status" });
  const speed = h("span", { class: "dim speed" });
  const news = h("div", {});
  const pauseButton = h("button", { type: "button", "aria-pressed": "false", title: "Pause or resume (key p)", onclick: () => togglePause() }, "Pause");
  const prefix = h("input", { id: "prefix", type: "search", value: parameters.get("prefix") ?? "", placeholder: "https://…", spellcheck: "false", oninput: () => soon() });
  const type = h("input", { id: "type", type: "search", value: parameters.get("type") ?? "", placeholder: "text/html, image/*", spellcheck: "false", oninput: () => soon() });
  const wanted = parameters.getAll("change");
  const kinds = ["created", "updated", "deleted"].map((kind) => h("label", { class: "choice " + kind },
    h("input", { type: "checkbox", value: kind, checked: wanted.length === 0 || wanted.includes(kind), onchange: () => restart() }), kind));
  const older = h("button", { type: "button", onclick: () => showOlder() }, "Show older changes");
  const single = h("div", {});
  fill(element, single,
    h("form", { class: "bar", onsubmit: (e) => { e.preventDefault(); restart(); } },
      h("div", { class: "field wide" }, h("label", { for: "prefix" }, "URL prefix"), prefix),
      h("div", { class: "field" }, h("label", { for: "type" }, "Media type"), type),
      h("fieldset", {}, h("legend", {}, "Kind of change"), h("div", {}, kinds))),
    h("div", { class: "strip" }, status, speed, pauseButton),
    news, list, h("p", {}, older));

  let entries = []; // the newest is last
  let total = 0, rendered = 0, paused = false, extra = 0; // received changes; rendered ones; rows of older changes
  let arrivals = []; // times and sizes of batches, to measure the rate
  let current, frame = 0, last = 0, debounce;

  const filter = () => {
    const chosen = kinds.map((k) => k.firstChild).filter((i) => i.checked).map((i) => i.value);
    return { prefix: prefix.value.trim(), type: type.value.split(/[\s,]+/).filter(Boolean), change: chosen.length % 3 === 0 ? [] : chosen };
  };

  function schedule() {
    if (frame || paused || signal.aborted) return;
    frame = requestAnimationFrame(function draw(now) {
      if (now - last < frameInterval) { frame = requestAnimationFrame(draw); return; }
      frame = 0;
      last = now;
      render();
    });
  }

  function render() {
    const fresh = Math.min(total - rendered, entries.length);
    if (fresh === 0) return;
    rendered = total;
    const rows = entries.slice(-Math.min(fresh, maxRows)).reverse().map((e) => row(e));
    if (fresh >= maxRows) {
      list.replaceChildren(...rows);
      extra = 0;
    } else {
      list.prepend(...rows);
      while (list.children.length > maxRows + extra) list.lastChild.remove();
    }
    empty();
    measure();
  }

  function measure() {
    const now = performance.now();
    arrivals = arrivals.filter(([t]) => now - t < 5000);
    const n = arrivals.reduce((sum, [, k]) => sum + k, 0);
    speed.textContent = n > 0 ? rate(n / 5) : "";
  }
  const ticker = setInterval(measure, 1000);

  function empty() {
    older.hidden = list.children.length === 0 || list.lastChild.dataset?.first === "true";
    list.classList.toggle("empty", list.children.length === 0);
  }

  function showState(state, why = "") {
    status.className = "status " + (paused && state === "live" ? "paused" : state);
    const waiting = total - rendered;
    const word = { live: "Live", away: "Reconnecting", connecting: "Connecting", gone: "Gone", refused: "Refused" }[state];
    fill(status, paused && state === "live" ? (waiting ? `Paused, ${plural(waiting, "new change")}` : "Paused") : word, why ? h("small", {}, " " + why) : null);
    status.dataset.state = state;
  }
  let state = "connecting", why = "";
  function setState(s, w = "") {
    state = s;
    why = w;
    if (s === "gone") {
      fill(news, note("warn", "The hub no longer has the changes after the last one shown. The list starts over."));
      restart(true);
      return;
    }
    showState(s, w);
  }

  function append(batch) {
    if (batch.diverged) fill(news, note("warn", "The hub has lost its newest changes, for example because a backup was restored. Changes may repeat."));
    const changes = batch.changes;
    if (changes.length === 0) return;
    total += changes.length;
    entries = entries.length + changes.length > maxEntries * 2 ? entries.concat(changes).slice(-maxEntries) : (entries.push(...changes), entries);
    if (Date.now() - new Date(changes.at(-1).datetime) < 5000) arrivals.push([performance.now(), changes.length]);
    if (paused) showState(state, why);
    schedule();
  }

  // soon restarts after a pause in typing.
  function soon() {
    clearTimeout(debounce);
    debounce = setTimeout(() => restart(), 300);
  }

  async function restart(keepNews = false) {
    clearTimeout(debounce);
    current?.abort();
    const control = current = new AbortController();
    signal.addEventListener("abort", () => control.abort(), { once: true });
    if (!keepNews) fill(news);
    const f = filter();
    const chosen = new URLSearchParams();
    for (const [name, value] of Object.entries(f)) for (const v of [value].flat()) if (v) chosen.append(name, v);
    if (!parameters.get("at")) history.replaceState(null, "", "#changes" + (chosen.size ? "?" + chosen : ""));
    showState(state = "connecting");
    try {
      const narrow = f.prefix || f.type.length || f.change.length;
      const about = await recentCursor(narrow ? 1000 : maxRows / 2, control.signal);
      if (control.signal.aborted) return;
      entries = [];
      total = rendered = extra = 0;
      arrivals = [];
      list.replaceChildren();
      empty();
      await follow(set, about, f, { batch: (b) => { if (!control.signal.aborted) append(b); }, state: (s, w) => { if (!control.signal.aborted) setState(s, w); } }, control.signal);
    } catch (e) {
      if (!control.signal.aborted) setState("refused", e.message);
    }
  }

  // recentCursor returns the cursor before the n newest changes. It retries while the hub is unreachable.
  async function recentCursor(n, s) {
    for (;;) {
      try {
        return (await get(`sets/${set}`, { recent: n }, { signal: s })).recent;
      } catch (e) {
        if (s.aborted || e.status >= 400 && e.status < 500) throw e;
        showState("away", e.message);
        await new Promise((done) => setTimeout(done, 1000));
      }
    }
  }

  // showOlder appends the newest changes that match the filter and are older than those in the
  // list. It searches in growing windows of positions until it finds some, or reaches the start
  // of the log or the limit of the parameter recent.
  async function showOlder() {
    const position = (cursor) => Number(cursor.split("-")[0]);
    const bottom = () => Number(list.lastChild?.querySelector(".position")?.textContent.slice(1));
    const oldest = bottom(), furthest = 10000, f = filter();
    if (!oldest) return;
    togglePause(true);
    older.disabled = true;
    try {
      let head = position((await get(`sets/${set}`, {}, { signal })).head);
      let found = [], upto = oldest, bound = false, start = false; // positions below upto have not been read
      for (let window = maxRows / 2; found.length === 0 && !bound && !start; window *= 4) {
        const back = Math.min(Math.max(head - upto, 0) + 1 + window, furthest);
        const now = await get(`sets/${set}`, { recent: back }, { signal });
        head = position(now.head);
        let at = position(now.recent), since = now.recent;
        bound = back === furthest;
        start = at === 0 || at > head - back;
        const first = at + 1;
        while (at < upto - 1) { // a page of large changes ends early
          const page = await get(`sets/${set}/changes`, { since, limit: Math.min(window, furthest), ...f }, { signal });
          found.push(...page.changes.filter((e) => e.position < upto));
          if (page.changes.length === 0 || position(page.cursor) <= at) break;
          at = position(page.cursor);
          since = page.cursor;
        }
        upto = Math.min(upto, first);
      }
      if (bottom() === oldest) { // otherwise the list was restarted
        const rows = found.slice(-maxRows / 2).reverse().map((e) => row(e));
        list.append(...rows);
        extra += rows.length;
        if (rows.length === 0) {
          fill(news, note("warn", start ? "There are no older changes, or none match the filter." :
            "None of the newest 10,000 changes that are older match the filter. Programs can read further back, see Follow."));
        }
      }
    } catch (e) {
      fill(news, note("bad", e.message));
    }
    older.disabled = false;
  }

  function togglePause(stop = !paused) {
    if (paused === stop) return;
    paused = stop;
    pauseButton.textContent = paused ? "Resume" : "Pause";
    pauseButton.setAttribute("aria-pressed", String(paused));
    showState(state, why);
    if (!paused) {
      extra = 0;
      schedule();
    }
  }

  addEventListener("keydown", (e) => {
    if (e.key === "p" && !e.ctrlKey && !e.metaKey && !e.altKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName) && !document.querySelector("dialog[open]")) togglePause();
  }, { signal });
  signal.addEventListener("abort", () => { clearInterval(ticker); clearTimeout(debounce); cancelAnimationFrame(frame); });
  if (parameters.get("at")) showOne(single, set, parameters.get("at"), signal);
  restart();
}

// showOne shows the change with a datetime above the list, for permalinks.
async function showOne(element, set, datetime, signal) {
  try {
    const page = await get(`sets/${set}/changes`, { since: datetime, limit: 1 }, { signal });
    const entry = page.changes[0];
    if (entry?.datetime !== datetime) {
      fill(element, note("warn", `This set has no change at ${datetime}.`));
      return;
    }
    fill(element, h("section", { class: "card one", "aria-label": "One change" },
      h("h2", {}, "Change #" + count(entry.position)), whole(entry), h("p", {}, h("a", { href: "#changes" }, "Close"))));
  } catch (e) {
    if (!signal.aborted) fill(element, note("warn", e.status === 410 ? "The hub no longer has this change." : e.message));
  }
}
