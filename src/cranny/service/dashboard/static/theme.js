// Light, dark, or as the system says.

import { forgetShades } from "./colours.js";

const KEY = "cranny-theme";
const WORDS = { auto: "Auto", light: "Light", dark: "Dark" };
const watchers = new Set();

function apply(button) {
  const theme = localStorage.getItem(KEY) ?? "auto";
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = WORDS[theme];
  button.setAttribute("aria-label", `Theme: ${WORDS[theme]}`);
  forgetShades();
  for (const redraw of watchers) redraw();
}

export function startTheme(button) {
  button.addEventListener("click", () => {
    const names = Object.keys(WORDS), now = localStorage.getItem(KEY) ?? "auto";
    localStorage.setItem(KEY, names[(names.indexOf(now) + 1) % names.length]);
    apply(button);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(button));
  apply(button);
}

export function whenTheme(scope, redraw) {
  watchers.add(redraw);
  scope.ends.push(() => watchers.delete(redraw));
}
