// Pieces that several pages show.

import { ask, segment } from "./api.js";
import { jobColour } from "./colours.js";
import { el, fill } from "./dom.js";

// A job that the cluster's manager runs by itself has no page here.
export const isForeign = (id) => id.startsWith("foreign:");

export function jobLink(id, text = id) {
  if (isForeign(id)) return el("span", { class: "job" }, text.replace("foreign:", "other job "));
  return el(
    "a", { href: `#/jobs/${segment(id)}`, class: "job" },
    el("i", { class: "chip", "aria-hidden": "true", style: { background: jobColour(id).fill } }),
    text,
  );
}

export function machineLink(name) {
  return el("a", { href: `#/machines/${segment(name)}` }, name);
}

export function status(word) {
  return el("span", { class: `status ${word}` }, el("i", { "aria-hidden": "true" }), word);
}

export function card(title, hint, ...children) {
  return el(
    "section", { class: "card pad" }, el("h2", {}, title), hint && el("p", { class: "hint" }, hint),
    children,
  );
}

export function facts(pairs) {
  return el(
    "dl", { class: "facts" },
    pairs.filter(([, value]) => value !== null && value !== undefined && value !== "") .map(([
      name, value,
    ]) => [el("dt", {}, name), el("dd", {}, value)]),
  );
}

// A table with a caption and column heads; `numeric` columns stand to the right.
export function table(caption, heads, { className = "", unseenCaption = true } = {}) {
  const body = el("tbody", { role: "rowgroup" }); // roles are said, since on phones tables are drawn as lists
  const cells = heads.map((head) => el(
    "th", { scope: "col", role: "columnheader", class: head.numeric ? "number" : "" }, head.text,
  ));
  const node = el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table", { role: "table", class: `list ${className}` },
      el("caption", { class: unseenCaption ? "unseen" : "" }, caption),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, cells)),
      body,
    ),
  );
  return { node, body };
}

// Buttons of which one is pressed.
export function choice(label, options, chosen, choose) {
  const group = el("div", { class: "choices", role: "group", "aria-label": label });
  const buttons = new Map();
  for (const [value, text] of options) {
    const button = el("button", { type: "button", "aria-pressed": String(value === chosen), on: { click: () => {
      for (const [each, other] of buttons) other.setAttribute("aria-pressed", String(each === value));
      choose(value);
    } } }, text);
    buttons.set(value, button);
  }
  fill(group, [...buttons.values()]);
  return { node: group, buttons };
}

// A button that asks the service to do something, and shows in `place` what it says if it refuses.
export function action(
  text, place, path,
  { className = "button", confirm = "", body = () => undefined, done = () => {} } = {},
) {
  const button = el("button", { type: "button", class: className, on: { click: async () => {
    if (confirm && !window.confirm(confirm)) return;
    button.disabled = true;
    fill(place);
    try {
      done(await ask(path, { method: "POST", body: body() }));
    } catch (error) {
      fill(place, refusal(error));
    } finally {
      button.disabled = false;
    }
  } } }, text);
  return button;
}

// What the service said no to: its reason, and each wrong field on a line.
export function refusal(error) {
  return el(
    "div", { class: "notice bad", role: "alert" },
    String(error.message).split("\n").map((line) => el("p", {}, line)),
  );
}
