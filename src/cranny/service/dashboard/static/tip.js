// The text beside the pointer.

import { el, fill } from "./dom.js";

const tip = document.getElementById("tip");

// Lines: the first one is the heading, those in an array are notes.
export function showTip(lines, x, y) {
  fill(
    tip,
    lines.map((line, index) => el("div", { class: Array.isArray(line) ? "note" : index === 0 ? "top" : "" }, line)),
  );
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14)}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 8))}px`;
}

export function hideTip() {
  tip.hidden = true;
}
