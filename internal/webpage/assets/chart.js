// Charts of the last hour, as SVG.
import { h, fill, compact, count, duration } from "./dom.js";
import { get } from "./api.js";

const ns = "http://www.w3.org/2000/svg";
const minutes = 60;

function s(tag, properties, ...children) {
  const e = document.createElementNS(ns, tag);
  for (const [name, value] of Object.entries(properties)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// byMinute combines the steps of an hour into minutes, the newest last. Minutes before the start
// of the hub are null.
function byMinute(values, step, combine) {
  const per = Math.round(60 / step);
  const all = Array(minutes).fill(null);
  for (let i = 0; i < values.length; i++) {
    const m = minutes - 1 - Math.floor((values.length - 1 - i) / per);
    if (m >= 0) all[m] = all[m] === null ? values[i] : combine(all[m], values[i]);
  }
  return all;
}

// roof returns a round number that is at least max.
function roof(max) {
  if (max <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= max * 0.999);
}

function bars(name, values, write, summary) {
  const width = 600, height = 120, gap = 2, wide = width / minutes;
  const top = roof(Math.max(0, ...values.map((v) => v ?? 0)));
  const drawing = s("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${summary}` });
  for (const y of [0.5, height / 2, height - 0.5]) drawing.append(s("line", { x1: 0, x2: width, y1: y, y2: y, class: "grid" }));
  values.forEach((v, i) => {
    if (v === null) return;
    const ago = minutes - 1 - i;
    const tall = v > 0 ? Math.max((v / top) * height, 1.5) : 0;
    drawing.append(s("g", {}, s("title", {}, `${ago === 0 ? "this minute" : ago + " min ago"}: ${write(v)}`),
      s("rect", { x: i * wide, y: 0, width: wide, height, class: "space" }),
      s("rect", { x: i * wide + gap / 2, y: height - tall, width: wide - gap, height: tall, class: "value" })));
  });
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("strong", {}, name), h("span", { class: "dim" }, summary)),
    h("div", { class: "plot" }, h("div", { class: "scale", "aria-hidden": "true" }, h("span", {}, write(top)), h("span", {}, write(0))), drawing),
    h("div", { class: "times", "aria-hidden": "true" }, h("span", {}, "1 h ago"), h("span", {}, "30 min ago"), h("span", {}, "now")));
}

const plus = (a, b) => a + b;

// hour returns the charts of the last hour.
export function hour(now) {
  const changes = byMinute(now.changes, now.step, plus), deliveries = byMinute(now.deliveries, now.step, plus), lag = byMinute(now.lag, now.step, Math.max);
  const sum = (values) => values.reduce((a, b) => a + (b ?? 0), 0);
  const total = (values) => `${count(sum(values))} in the last hour`;
  const most = Math.max(0, ...lag.map((v) => v ?? 0));
  return [
    bars("Changes per minute", changes, compact, total(changes)),
    bars("Deliveries per minute", deliveries, compact, total(deliveries)),
    bars("Largest lag of a follower", lag, duration, most ? `at most ${duration(most)}` : "no lag"),
    h("details", {}, h("summary", {}, "As a table"), h("div", { class: "wide-table plain" }, h("table", {},
      h("thead", {}, h("tr", {}, ["Minutes ago", "Changes", "Deliveries", "Lag"].map((n) => h("th", { scope: "col", class: "n" }, n)))),
      h("tbody", {}, changes.map((c, i) => (c === null ? null : h("tr", {}, h("td", { class: "n" }, minutes - 1 - i), h("td", { class: "n" }, count(c)), h("td", { class: "n" }, count(deliveries[i])), h("td", { class: "n" }, duration(lag[i]))))).reverse()))))];
}

// activity shows the charts of a set in an element until signal is aborted.
export async function activity(element, set, parameters, signal) {
  const drawn = h("div", { class: "charts" });
  fill(element, drawn, h("p", { class: "dim small" }, "Changes are counted for all hubs together, deliveries and lag for the hub that answered, since its start."));
  for (;;) {
    try {
      const now = await get(`sets/${set}/activity`, {}, { signal });
      const shown = drawn.querySelector("details")?.open;
      if (!drawn.contains(document.activeElement) || !drawn.firstChild) {
        fill(drawn, hour(now));
        if (shown) drawn.querySelector("details").open = true;
      }
    } catch (e) {
      if (signal.aborted) return;
      if (e.status >= 400 && e.status < 500) throw e;
    }
    await new Promise((done) => setTimeout(done, 5000));
    if (signal.aborted) return;
  }
}
