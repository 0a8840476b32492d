// What the description of a set says about its documents. Everybody who follows the set sees
// it. Whoever may publish to the set can change it.
import { h, fill, note } from "./dom.js";
import { get, request, hasTokens } from "./api.js";
import * as session from "./session.js";

// members are all that a description has. A PUT replaces all of them, so those that the
// form does not show are sent back as they are.
const members = ["title", "describedby", "changelist", "resourcelist", "resourcedump", "changedump", "inventory", "push", "sitemap", "private", "lastmod", "indexnow", "framework", "source", "every", "cloudevents"];

// settings are the members that the form shows: the values that each may have, the first
// by default, and what they mean.
const settings = [
  { name: "push", label: "Push channel", choices: [["on", "named in the Capability List"], ["off", "not named"]],
    help: "Some clients that only read lists, such as rs-aggregator, refuse a set if they do not know one of its capabilities. Followers by push do not need the name in the list." },
  { name: "sitemap", label: "Search engines", choices: [["false", "robots.txt does not name the Resource List"], ["true", "robots.txt names the Resource List"]],
    help: "It is named only if everybody may follow the set and the hub knows all its resources." },
  { name: "lastmod", label: "lastmod in lists", choices: [["source", "as the source gave it"], ["datetime", "when the hub accepted the change"], ["seconds", "when the hub accepted the change, in whole seconds"]],
    help: "Readers of ResourceSync 1.0 need a lastmod that ascends: the second choice. Readers that know no fractions of a second need the third." },
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
    may ? h("div", { class: "buttons" }, button) : h("p", {}, "Sign in with a token that may publish to this set to change this."));
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
