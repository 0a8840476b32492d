// The destinations of a set: callbacks, pending and refused requests to subscribe, and proofs of
// destinations that audit.
import { h, fill, count, plural, duration, ago, time, until, pill, note } from "./dom.js";
import { get, request, rest } from "./api.js";
import * as session from "./session.js";

const words = { deliver: "delivery", subscribe: "verification", unsubscribe: "verification of the end", denied: "denial" };

// attempts returns a table of the last requests to a callback.
const attempts = (all) => h("div", { class: "wide-table" }, h("table", {},
  h("thead", {}, h("tr", {}, ["Time", "Request", "Status", "Duration", "Changes", "Error"].map((n) => h("th", { scope: "col" }, n)))),
  h("tbody", {}, all.map((a) => h("tr", {}, h("td", { "data-name": "Time" }, time(a.at)), h("td", { "data-name": "Request" }, words[a.kind] ?? a.kind), h("td", { "data-name": "Status" }, a.status || "none"),
    h("td", { "data-name": "Duration" }, duration(a.seconds)), h("td", { "data-name": "Changes" }, a.changes ?? "–"), h("td", { "data-name": "Error" }, a.error ?? "–"))))));

// subscription returns the card of a subscription. act, if given, returns the buttons of operators.
export function subscription(s, act, open = false) {
  const last = s.attempts[0];
  const facts = [
    ["Lag", s.lag.changes ? `${plural(s.lag.changes, "change")}, ${duration(s.lag.seconds)}` : "none"],
    s.failed ? ["Failed", [plural(s.failed, "time"), " in a row"]] : null,
    s.next ? ["Next attempt", until(s.next)] : null,
    ["Last attempt", last ? [ago(last.at), last.error ? `: ${last.error}` : last.status ? `, status ${last.status}` : ""] : "none"],
    s.gaps ? ["Gaps", plural(s.gaps, "time") + ", because the hub no longer had the changes"] : null,
    s.ended ? ["Ended", ago(s.ended)] : ["Lease ends", until(s.leaseEnd)],
    ["Created", [time(s.made), s.by ? ` by ${s.by}` : ""]],
    ["Cursor", h("code", {}, s.cursor)],
    ["Signed", s.signed ? "yes" : "no, it has no secret"],
    ...Object.entries(s).filter(([name]) => name.startsWith("rs.")).map(([name, value]) => [name, [value].flat().join(", ")]),
  ].filter(Boolean);
  const history = h("details", { open }, h("summary", {}, `Last ${plural(s.attempts.length, "attempt")}`), attempts(s.attempts));
  return h("section", { class: "card subscription", "aria-label": s.callback },
    h("div", { class: "head" }, h("h2", { class: "loc" }, s.callback), pill(s.state)),
    s.why ? note("warn", s.why) : null,
    h("dl", { class: "members" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    s.attempts.length ? history : null,
    act ? act(s) : null);
}

// pending returns the item of a pending or refused request.
const pending = (r) => h("li", { class: "failure" },
  h("div", {}, pill(r.state), " ", h("strong", { class: "loc" }, r.callback), h("span", { class: "dim when" }, r.asked ? ["verified ", ago(r.asked)] : ago(r.last))),
  h("div", { class: "loc" }, r.mode === "unsubscribe" ? "Request to end the subscription. " : "",
    r.error ? [r.state === "waiting" ? "Not confirmed yet, will be retried: " : "Not confirmed: ", r.error, r.status ? `; status ${r.status}` : "", r.times > 1 ? ` (${plural(r.times, "time")})` : "", "."] : "The hub is about to verify the callback."));

// proof returns the item of a destination that proved equal to the hub.
const proof = (p) => h("li", { class: "proof" },
  h("div", {}, pill("equal", "current"), " ", h("strong", { class: "loc" }, p.name), h("span", { class: "dim when" }, "last proved ", ago(p.at))),
  h("div", { class: "dim loc" }, `${plural(p.count, "resource")}${p.prefix ? ` with the prefix ${p.prefix}` : ""}, by ${p.compared}, at cursor `, h("code", {}, p.cursor), p.by ? `; submitted by ${p.by}` : ""));

// ask opens a dialog. It resolves to the entered text, to true if there is no field, or to null
// if the dialog was canceled.
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
  const requests = h("section", {}, h("h2", {}, operate ? "Pending and refused requests" : "Your pending and refused requests"), waiting,
    h("p", { class: "dim small" }, "Only the hub that verified a callback knows a refusal, for a day."));
  more.hidden = true;
  const audits = h("section", {}, h("h2", {}, operate ? "Proofs" : "Proofs of your destinations"), proofs,
    h("p", { class: "dim small" }, "Destinations submit a proof after an audit without differences. This hub keeps proofs until it stops."));
  fill(element, state, audits, requests, operate ? h("section", {}, h("h2", {}, "Subscriptions"), list, more)
    : h("p", { class: "dim" }, "Operators see all subscriptions here. Subscribers see theirs at the URL rs.status, which their callback received in the verification."));
  let next = null;

  const act = (s) => s.state === "ended" ? null : h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => change(s, "Retry requested", `retry`, "POST") }, "Retry"),
    h("button", { type: "button", onclick: async () => {
      const to = await ask("Move the subscription", `Deliveries to ${s.callback} continue from there. Changes may repeat or be skipped.`, "Move", { label: "Cursor, datetime, start or now", value: s.cursor });
      if (to) change(s, "Move requested", "cursor", "PUT", { cursor: to });
    } }, "Move…"),
    h("button", { type: "button", class: "danger", onclick: async () => {
      if (await ask("Remove the subscription", `${s.callback} gets no more deliveries, and is notified.`, "Remove")) change(s, "Removal requested", "", "DELETE");
    } }, "Remove…"));

  async function change(s, done, part, method, body) {
    try {
      await request(`sets/${set}/subscriptions/${s.id}${part ? "/" + part : ""}`, { method, body, signal });
      fill(state, note("", `${done}. The hub carries it out within moments.`));
      setTimeout(() => load(), 700);
    } catch (e) {
      if (!signal.aborted) fill(state, note("bad", e.message));
    }
  }

  async function load(from) {
    try {
      const [{ requests: all }, { proofs: equal }] = await Promise.all([get(`sets/${set}/requests`, {}, { signal }), get(`sets/${set}/proofs`, {}, { signal })]);
      fill(proofs, equal.length ? equal.map(proof) : h("li", { class: "dim" }, "None."));
      fill(waiting, all.length ? all.map(pending) : h("li", { class: "dim" }, "None."));
      if (!operate) return;
      const page = await get(from ?? `sets/${set}/subscriptions`, from ? {} : { limit: 20 }, { signal });
      const opened = new Set([...list.querySelectorAll("section:has(details[open])")].map((e) => e.getAttribute("aria-label")));
      const rows = page.subscriptions.map((s) => subscription(s, act, opened.has(s.callback)));
      if (from) list.append(...rows);
      else fill(list, rows.length ? rows : h("p", { class: "dim" }, "This set has no subscriptions."));
      next = rest(page.next);
      more.hidden = !next;
    } catch (e) {
      if (!signal.aborted) fill(state, note("bad", e.message));
    }
  }
  await load();
  const refresh = setInterval(() => {
    if (!document.hidden && list.children.length <= 20 && !element.contains(document.activeElement) && !document.querySelector("dialog[open]")) load();
  }, 5000);
  signal.addEventListener("abort", () => clearInterval(refresh));
}

// status shows the subscriber the status of its subscription.
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
