// The page shown without access, and how to log in.

import { logIn } from "./api.js";
import { el, fill } from "./dom.js";
import { refusal } from "./parts.js";
import { signInCard } from "./sign_in.js";

export function accessPage(scope, main, said = "") {
  const bad = el("div"), token = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const form = el("form", { class: "row-form", on: { submit: async (event) => {
    event.preventDefault();
    try {
      await logIn({ token: token.value.trim() });
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
      signInCard(),
      el("h2", {}, "On your own machine"),
      el(
        "p", {}, "Open the link that ", el("code", {}, "cranny serve"), " printed when it was started. It works once, ",
        "and looks like this:",
      ),
      el("pre", { tabindex: "0" }, `${location.origin}/#/login?code=…`),
      el(
        "p", {}, "If it was used already, create a token in a shell on that machine, and paste it below. ",
        "Or start the service again: jobs keep running, and it prints a new link.",
      ),
      el("pre", { tabindex: "0" }, "cranny token create me --role admin"),
      el("h2", {}, "On a shared service"),
      el("p", {}, "Ask its administrator for a token."),
      form, el("p", { class: "hint" }, "The browser keeps a session of 12 hours, not the token."), bad,
    ),
  );
  return "Access";
}
