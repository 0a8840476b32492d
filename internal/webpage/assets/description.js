// The settings for documents in the description of a set. Followers of the set see them, and
// publishers can change them.
import { h, fill, note } from "./dom.js";
import { get, request, hasTokens } from "./api.js";
import * as session from "./session.js";

// All members of a description. A PUT replaces the whole description, so save sends the members
// that are not in the form unchanged.
const members = ["title", "describedby", "changelist", "resourcelist", "resourcedump", "changedump", "inventory", "push", "sitemap", "private", "lastmod", "indexnow", "framework", "source", "every", "cloudevents"];

// The members in the form. The first choice is the default.
const settings = [
  { name: "push", label: "Push channel", choices: [["on", "listed in the Capability List"], ["off", "not listed"]],
    help: "Some clients that only read lists, such as rs-aggregator, refuse sets with unknown capabilities. Push works either way." },
  { name: "sitemap", label: "Search engines", choices: [["false", "robots.txt does not list the Resource List"], ["true", "robots.txt lists the Resource List"]],
    help: "It is listed only while anyone may follow the set and the set is complete." },
  { name: "lastmod", label: "lastmod in lists", choices: [["source", "the value of the source"], ["datetime", "time at which the hub accepted the change"], ["seconds", "the same in whole seconds"]],
    help: "Readers of ResourceSync 1.0 need the second choice, because they expect ascending values. Readers that cannot parse fractions of a second need the third." },
];

const value = (s, now) => String(now[s.name] ?? s.choices[0][0]);

export async function description(element, set, parameters, signal, now) {
  const may = !hasTokens || session.token() !== "";
  const state = h("div", { role: "status" });
  const field = (s) => h("div", { class: "setting" }, h("label", { for: "set-" + s.name }, s.label),
    h("select", { id: "set-" + s.name, name: s.name, disabled: !may, "aria-describedby": "help-" + s.name }, s.choices.map(([v, text]) => h("option", { value: v, selected: v === value(s, now) }, text))),
    h("p", { class: "dim small", id: "help-" + s.name }, s.help));
  const button = h("button", { class: "main" }, "Save");
  const form = h("form", { class: "card", onsubmit: save }, settings.map(field),
    may ? h("div", { class: "buttons" }, button) : h("p", {}, "To change these settings, sign in with a token that may publish to this set."));
  fill(element, form, state);

  async function save(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      const is = await get(`sets/${set}`, {}, { signal });
      const wanted = Object.fromEntries(members.filter((name) => is[name] !== undefined).map((name) => [name, is[name]]));
      for (const s of settings) wanted[s.name] = form.elements[s.name].value;
      wanted.sitemap = wanted.sitemap === "true";
      const saved = await (await request(`sets/${set}`, { method: "PUT", body: wanted, signal, quiet: true })).json();
      for (const s of settings) {
        now[s.name] = saved[s.name];
        form.elements[s.name].value = value(s, saved);
      }
      fill(state, note("", "Saved."));
    } catch (e) {
      if (!signal.aborted) fill(state, note("bad", e.message));
    } finally {
      button.disabled = false;
    }
  }
}
