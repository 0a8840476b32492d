// The signed-in user. The token is only in the session storage of the tab, never in a cookie, a
// URL or another tab.
import { h, fill, time } from "./dom.js";
import { Problem, request } from "./api.js";

const key = "rshub token";
const hasTokens = document.body.dataset.tokens === "true"; // repeated in api.js, which may run after this module
const listeners = new Set();
let me = { name: "", operate: false, tokens: hasTokens };

export const token = () => sessionStorage.getItem(key) ?? "";
export const caller = () => me;

// changed registers a callback for sign-ins.
export const changed = (listener) => listeners.add(listener);

// load reads the caller from the hub. It forgets an invalid token.
export async function load() {
  try {
    me = await (await request("caller", { quiet: true })).json();
  } catch (p) {
    if (p.status === 401 && token()) {
      forget();
      await load();
      open(`You were signed out: ${p.message}`);
      return;
    }
    if (!(p instanceof Problem)) throw p;
  }
  show();
}

function forget() {
  sessionStorage.removeItem(key);
  me = { name: "", operate: false, tokens: hasTokens };
}

function signOut() {
  forget();
  location.reload(); // so that nothing remains that requires the token
}

// refused is called with the problem of each failed request. It opens the dialog if the token is the cause.
export function refused(problem, used) {
  if (!hasTokens || problem.status !== 401 && problem.status !== 403) return;
  if (problem.status === 401 && used && used === token()) {
    forget();
    show();
    open(`You were signed out: ${problem.message}.`);
  } else if (problem.status === 403) {
    open(`${problem.message}. Sign in with another token.`);
  }
}

// show displays the caller at the top of the page.
function show() {
  const who = document.getElementById("who");
  if (!hasTokens) return;
  if (!token()) {
    fill(who, h("button", { type: "button", class: "quiet", onclick: () => open() }, "Sign in"));
    return;
  }
  const details = [me.operate ? "may operate the hub" : null, me.expires ? ["token expires ", time(me.expires)] : null].filter(Boolean);
  fill(who, h("span", { class: "name", title: me.operate ? "may operate the hub" : null }, me.name || "signed in", me.expires ? h("small", {}, ...details.at(-1)) : null),
    h("button", { type: "button", class: "quiet", onclick: signOut }, "Sign out"));
}

let dialog;

// open opens the sign-in dialog. why is a reason to show, or empty.
export function open(why = "") {
  if (dialog?.open) {
    if (why) dialog.querySelector("#why").textContent = why;
    return;
  }
  const reason = h("p", { id: "why", class: "note bad", role: "alert" }, why);
  const input = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "why" });
  const go = h("button", { class: "main" }, "Sign in");
  const form = h("form", { method: "dialog", onsubmit: enter },
    h("h2", { id: "sign-in" }, "Sign in"),
    h("p", { class: "dim" }, "With a token of this hub. It stays in this tab until you close it or sign out."),
    reason, h("label", { for: "token" }, "Token"), input,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go));
  async function enter(event) {
    event.preventDefault();
    const entered = input.value.trim();
    if (!entered) return;
    go.disabled = true;
    const before = token();
    sessionStorage.setItem(key, entered);
    try {
      me = await (await request("caller", { quiet: true })).json();
      dialog.close();
      show();
      for (const listener of listeners) listener();
    } catch (p) {
      if (before) sessionStorage.setItem(key, before);
      else sessionStorage.removeItem(key);
      reason.textContent = p.status === 401 ? `The hub refused this token: ${p.message}.` : p.message;
      input.select();
    } finally {
      go.disabled = false;
    }
  }
  dialog?.remove();
  dialog = h("dialog", { "aria-labelledby": "sign-in" }, form);
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}
