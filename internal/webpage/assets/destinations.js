// The destinations of a set: who the hub calls, requests that wait or were refused, and when
// those that audit were last proved equal.
import { h, fill, count, plural, duration, ago, time, until, pill, note } from "./dom.js";
import { get, request, rest } from "./api.js";
import * as session from "./session.js";

const words = { deliver: "delivery", subscribe: "verification", unsubscribe: "verification of the end", denied: "told that it ended" };

// attempts are the last requests to a callback.
const attempts = (all) => h("div", { class: "wide-table" }, h("table", {},
  h("thead", {}, h("tr", {}, ["When", "What", "Answer", "Took", "Changes", "Error"].map((n) => h("th", { scope: "col" }, n)))),
  h("tbody", {}, all.map((a) => h("tr", {}, h("td", { "data-name": "When" }, time(a.at)), h("td", { "data-name": "What" }, words[a.kind] ?? a.kind), h("td", { "data-name": "Answer" }, a.status || "none"),
    h("td", { "data-name": "Took" }, duration(a.seconds)), h("td", { "data-name": "Changes" }, a.changes ?? "–"), h("td", { "data-name": "Error" }, a.error ?? "–"))))));

// subscription is one subscription. act, if there is one, adds what operators can do.
export function subscription(s, act, open = false) {
  const last = s.attempts[0];
  const facts = [
    ["Lag", s.lag.changes ? `${plural(s.lag.changes, "change")}, ${duration(s.lag.seconds)}` : "none"],
    s.failed ? ["Failed", [plural(s.failed, "time"), " in a row"]] : null,
    s.next ? ["Next attempt", until(s.next)] : null,
    ["Last attempt", last ? [ago(last.at), last.error ? `: ${last.error}` : last.status ? `, answered ${last.status}` : ""] : "none"],
    s.gaps ? ["Gaps", plural(s.gaps, "time") + " the hub no longer had what was to be delivered"] : null,
    s.ended ? ["Ended", ago(s.ended)] : ["Lease ends", until(s.leaseEnd)],
    ["Made", [time(s.made), s.by ? ` by ${s.by}` : ""]],
    ["Cursor", h("code", {}, s.cursor)],
    ["Signed", s.signed ? "yes, with its secret" : "no: it has no secret"],
    ...Object.entries(s).filter(([name]) => name.startsWith("rs.")).map(([name, value]) => [name, [value].flat().join(", ")]),
  ].filter(Boolean);
  const history = h("details", { open }, h("summary", {}, `The last ${plural(s.attempts.length, "attempt")}`), attempts(s.attempts));
  return h("section", { class: "card subscription", "aria-label": s.callback },
    h("div", { class: "head" }, h("h2", { class: "loc" }, s.callback), pill(s.state)),
    s.why ? note("warn", s.why) : null,
    h("dl", { class: "members" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    s.attempts.length ? history : null,
    act ? act(s) : null);
}

// asked is a request that waits or was refused.
const asked = (r) => h("li", { class: "failure" },
  h("div", {}, pill(r.state), " ", h("strong", { class: "loc" }, r.callback), h("span", { class: "dim when" }, r.asked ? ["asked ", ago(r.asked)] : ago(r.last))),
  h("div", { class: "loc" }, r.mode === "unsubscribe" ? "Wants to end its subscription. " : "",
    r.error ? [r.state === "waiting" ? "Not confirmed yet, it is asked again: " : "Not confirmed: ", r.error, r.status ? `; it answered ${r.status}` : "", r.times > 1 ? ` (${plural(r.times, "time")})` : "", "."] : "The callback is about to be asked to confirm."));

// proved is a destination that has proved to hold the same as the hub.
const proved = (p) => h("li", { class: "proof" },
  h("div", {}, pill("equal", "current"), " ", h("strong", { class: "loc" }, p.name), h("span", { class: "dim when" }, "last proved ", ago(p.at))),
  h("div", { class: "dim loc" }, `${plural(p.count, "resource")}${p.prefix ? ` that begin with ${p.prefix}` : ""}, by ${p.compared}, at cursor `, h("code", {}, p.cursor), p.by ? `; told by ${p.by}` : ""));

// ask opens a dialog with a question. It returns what was entered, true without a field,
// or null.
function ask(title, text, button, field) {
  return new Promise((done) => {
    const input = field ? h("input", { id: "answer", type: "text", value: field.value, required: true, spellcheck: "false" }) : null;
    const dialog = h("dialog", { "aria-labelledby": "question", onclose: () => { dialog.remove(); done(null); } }, h("form", { method: "dialog", onsubmit: () => done(input ? input.value.trim() : true) },
      h("h2", { id: "question" }, title), h("p", {}, text), field ? [h("label", { for: "answer" }, field.label), input] : null,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { class: "main" }, button))));
    document.body.append(dialog);
    dialog.showModal();
  });
}

export async function destinations(element, set, parameters, signal) {
  const operate = session.caller().operate;
  const state = h("div", { role: "status" }), waiting = h("ul", { class: "failures" }), list = h("div", {}), proofs = h("ul", { class: "failures" });
  const more = h("button", { type: "button", onclick: () => load(next) }, "Show more subscriptions");
  const requests = h("section", {}, h("h2", {}, operate ? "Requests that wait or were refused" : "Your requests that wait or were refused"), waiting,
    h("p", { class: "dim small" }, "What was refused is known only to the hub that asked the callback, for a day."));
  more.hidden = true;
  const audits = h("section", {}, h("h2", {}, operate ? "Last proved equal" : "Your destinations that were proved equal"), proofs,
    h("p", { class: "dim small" }, "A destination that audits tells the hub when it has found nothing. This hub forgets it when it ends."));
  fill(element, state, audits, requests, operate ? h("section", {}, h("h2", {}, "Subscriptions"), list, more)
    : h("p", { class: "dim" }, "Operators see all subscriptions here. A subscriber finds the status of its subscription at the URL that its callback was told when it was asked to confirm, rs.status."));
  let next = null;

  const act = (s) => s.state === "ended" ? null : h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => change(s, "Deliver now", `retry`, "POST") }, "Retry"),
    h("button", { type: "button", onclick: async () => {
      const to = await ask("Move the subscription", `Deliveries to ${s.callback} go on from there. Changes may be repeated or left out.`, "Move", { label: "Cursor, datetime, start or now", value: s.cursor });
      if (to) change(s, "Moved", "cursor", "PUT", { cursor: to });
    } }, "Move…"),
    h("button", { type: "button", class: "danger", onclick: async () => {
      if (await ask("Remove the subscription", `${s.callback} gets no more deliveries. It is told so.`, "Remove")) change(s, "Removed", "", "DELETE");
    } }, "Remove…"));

  async function change(s, said, part, method, body) {
    try {
      await request(`sets/${set}/subscriptions/${s.id}${part ? "/" + part : ""}`, { method, body, signal });
      fill(state, note("", `${said}: the hub has taken the request and carries it out.`));
      setTimeout(() => load(), 700);
    } catch (e) {
      if (!signal.aborted) fill(state, note("bad", e.message));
    }
  }

  async function load(from) {
    try {
      const [{ requests: all }, { proofs: equal }] = await Promise.all([get(`sets/${set}/requests`, {}, { signal }), get(`sets/${set}/proofs`, {}, { signal })]);
      fill(proofs, equal.length ? equal.map(proved) : h("li", { class: "dim" }, "None."));
      fill(waiting, all.length ? all.map(asked) : h("li", { class: "dim" }, "None."));
      if (!operate) return;
      const page = await get(from ?? `sets/${set}/subscriptions`, from ? {} : { limit: 20 }, { signal });
      const opened = new Set([...list.querySelectorAll("section:has(details[open])")].map((e) => e.getAttribute("aria-label")));
      const rows = page.subscriptions.map((s) => subscription(s, act, opened.has(s.callback)));
      if (from) list.append(...rows);
      else fill(list, rows.length ? rows : h("p", { class: "dim" }, "No callback subscribes to this set."));
      next = rest(page.next);
      more.hidden = !next;
    } catch (e) {
      if (!signal.aborted) fill(state, note("bad", e.message));
    }
  }
  await load();
  const again = setInterval(() => {
    if (!document.hidden && list.children.length <= 20 && !element.contains(document.activeElement) && !document.querySelector("dialog[open]")) load();
  }, 5000);
  signal.addEventListener("abort", () => clearInterval(again));
}

// status shows a subscription to its subscriber.
export async function status(main, signal) {
  let shown = false;
  while (!signal.aborted) {
    try {
      const s = await get(new URL(location.href), {}, { signal, quiet: true });
      const opened = shown ? main.querySelector("details")?.open : true;
      if (!shown || !main.querySelector(".subscription")?.contains(document.activeElement)) fill(main, h("h1", {}, "Subscription"), h("p", { class: "title loc" }, s.topic), subscription(s, null, opened));
      shown = true;
    } catch (e) {
      if (signal.aborted) return;
      if (e.status) throw e;
    }
    await new Promise((done) => setTimeout(done, 5000));
  }
}
