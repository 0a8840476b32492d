// Creates elements, and formats numbers and times. Text is inserted as text, never as HTML,
// because sources are not trusted.

// h creates an element. Properties that start with "on" are listeners, the others are
// attributes; null, undefined and false are omitted. Children are nodes, texts, or arrays of
// both.
export function h(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

// fill replaces the contents of an element.
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => whole.format(n);
export const compact = (n) => (n < 10000 ? whole.format(n) : short.format(n));

// plural formats a number with its noun.
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// rate formats a number of changes per second.
export function rate(perSecond) {
  if (!perSecond) return "0/s";
  if (perSecond >= 10) return compact(Math.round(perSecond)) + "/s";
  if (perSecond >= 0.1) return perSecond.toFixed(1) + "/s";
  return Math.max(perSecond * 60, 0.1).toFixed(1) + "/min";
}

// duration formats seconds in a suitable unit.
export function duration(seconds) {
  if (seconds < 0.001) return "0 s";
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 10) return seconds.toFixed(1) + " s";
  if (seconds < 120) return Math.round(seconds) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  if (seconds < 172800) return Math.round(seconds / 3600) + " h";
  return Math.round(seconds / 86400) + " days";
}

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
  return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "numeric" });

// time shows a datetime in the reader's time zone, with the hub's text as its title.
export function time(text) {
  const t = new Date(text);
  const label = t.toDateString() === new Date().toDateString() ? clock.format(t) : `${day.format(t)}, ${clock.format(t)}`;
  return h("time", { datetime: text, title: text }, label);
}

// ago shows the time since a datetime.
export function ago(text) {
  const seconds = (Date.now() - new Date(text)) / 1000;
  const label = seconds < 2 ? "just now" : seconds < 0 ? "soon" : duration(Math.max(seconds, 1)).replace(/\.\d/, "") + " ago";
  return h("time", { datetime: text, title: text }, label);
}

// until shows the time until a datetime.
export function until(text) {
  const seconds = (new Date(text) - Date.now()) / 1000;
  return h("time", { datetime: text, title: text }, seconds <= 0 ? "now" : "in " + duration(seconds));
}

// link links to an untrusted URL if its scheme is http or https.
export function link(url, label = url) {
  if (!/^https?:\/\//i.test(url)) return h("span", { class: "loc" }, label);
  return h("a", { class: "loc", href: url, rel: "noopener noreferrer", target: "_blank" }, label);
}

// copyable returns a text with a copy button.
export function copyable(text, label = "code") {
  const button = h("button", { type: "button", class: "copy", "aria-label": `Copy ${label}`, onclick: copy }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch { // the origin is not secure: select the text instead
      getSelection().selectAllChildren(pre);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }
  const pre = h("pre", { tabindex: "0", role: "region", "aria-label": label }, text);
  return h("div", { class: "code" }, pre, button);
}

// pill returns a word with a color, such as a state.
export const pill = (word, kind = word) => h("span", { class: "pill " + kind.replaceAll(" ", "-") }, word);

export const note = (kind, ...children) => h("p", { class: "note " + kind, role: kind === "bad" ? "alert" : null }, ...children);

// figure returns a number with its name.
export const figure = (name, value, hint) => h("div", { class: "figure" }, h("dt", {}, name), h("dd", {}, value, hint ? h("small", {}, hint) : null));
