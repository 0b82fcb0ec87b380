// Shortcuts, and the list of them. Single keys can be turned off, against accidental input.

import { el, fill } from "./dom.js";

const OFF = "cranny-keys-off";
const LIST = [
  ["o", "Overview", () => go("#/")],
  ["j", "Jobs", () => go("#/jobs")],
  ["t", "Timeline", () => go("#/timeline")],
  ["w", "What if", () => go("#/what-if")],
  ["m", "To the map", () => document.querySelector("canvas.map")?.focus()],
  ["/", "Find a job or a machine", () => document.getElementById("find-text").focus()],
  ["d", "Change between light, dark and automatic", () => document.getElementById("theme").click()],
  ["?", "This list", () => openKeys()],
];
const ON_MAP = [
  ["arrows", "On the map: from machine to machine"], ["Enter", "On the map: open the machine"],
  ["Esc", "Leave a field, close this list"],
];

function go(hash) {
  location.hash = hash;
}

function openKeys() {
  const dialog = document.getElementById("keys");
  if (!dialog.open) dialog.showModal();
}

export function startKeys(button) {
  const dialog = document.getElementById("keys");
  const on = el("input", { type: "checkbox", id: "keys-on", on: { change: () => {
    if (on.checked) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "yes");
  } } });
  on.checked = !localStorage.getItem(OFF);
  fill(
    dialog, el("h2", { id: "keys-title" }, "Keyboard shortcuts"),
    el(
      "dl", { class: "keys" },
      [...LIST, ...ON_MAP].map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)]),
    ),
    el("p", {}, el("label", { class: "check" }, on, "Use single-key shortcuts")),
    el("form", { method: "dialog" }, el("button", { class: "button" }, "Close")),
  );
  button.addEventListener("click", openKeys);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target.matches?.("input, textarea, select")) event.target.blur();
    if (localStorage.getItem(OFF) || dialog.open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches?.("input, textarea, select, [contenteditable]")) return;
    const found = LIST.find(([key]) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found[2]();
  });
}
