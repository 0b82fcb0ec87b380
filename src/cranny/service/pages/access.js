// What a visitor without access sees, and how to get in.

import { ask } from "./api.js";
import { el, fill } from "./dom.js";
import { refusal } from "./parts.js";

export function accessPage(scope, main, said = "") {
  const bad = el("div"), token = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const form = el("form", { class: "row-form", on: { submit: async (event) => {
    event.preventDefault();
    try {
      await ask("session", { method: "POST", body: { token: token.value.trim() } });
      location.reload();
    } catch (error) {
      fill(bad, refusal(error));
    }
  } } }, el("label", { for: "token" }, "Token"), token, el("button", { class: "button primary" }, "Use this token"));
  fill(
    main,
    el(
      "section", { class: "card pad narrow" }, el("h1", { tabindex: "-1" }, "This page needs access"),
      said ? el("p", { class: "notice bad" }, said) : null,
      el(
        "p", {},
        "On your own machine: open the one-time link that the service printed when it was started. ",
        "It looks like this, and works once:",
      ),
      el("pre", {}, `${location.origin}/login?code=…`),
      el(
        "p", {},
        "On a shared service: ask whoever runs it for a token, and paste it here. ",
        "The page keeps a cookie, not the token.",
      ),
      form, bad,
    ),
  );
  return "Access";
}
