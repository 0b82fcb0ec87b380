// Sign-in by an OpenID provider. The page keeps a verifier in the storage of this tab, without which the code that
// comes back is worth nothing: neither a stolen link nor one that another browser began opens a session here.

import { ask } from "./api.js";
import { el, fill } from "./dom.js";
import { refusal } from "./parts.js";

const KEY = "cranny-verifier";
const REASONS = {
  expired: "This sign-in has expired, was used before, or the service was started again meanwhile: begin it again.",
  refused: "You are signed in at the provider, but have no access to this service. Ask its administrator.",
  unreachable: "The provider of the sign-in does not answer: try again later, or use a token.",
  invalid: "The provider did not confirm this sign-in: begin it again. The log of the service has the reason.",
};

export function reasonOf(word) {
  return Object.hasOwn(REASONS, word) ? REASONS[word] : "";
}

// The verifier of the sign-in that this tab has begun, once.
export function takeVerifier() {
  try {
    const kept = sessionStorage.getItem(KEY) ?? undefined;
    sessionStorage.removeItem(KEY);
    return kept;
  } catch {
    return undefined;
  }
}

async function begin(bad) {
  try {
    const { url, verifier, origin } = await ask("oidc/login", { method: "POST" });
    if (origin !== location.origin) {
      fill(bad, el("p", { class: "notice bad" }, "Sign in at ", el("a", { href: `${origin}/` }, origin), "."));
      return;
    }
    sessionStorage.setItem(KEY, verifier);
    location.assign(url);
  } catch (error) {
    fill(bad, refusal(error));
  }
}

// The button, if the service was started with a provider.
export function signInCard() {
  const name = document.querySelector("meta[name=sign-in]")?.content ?? "";
  if (!name) return null;
  const bad = el("div");
  const button = el("button", {
    class: "button primary", id: "sign-in", type: "button", on: { click: async () => {
      button.disabled = true;
      await begin(bad);
      button.disabled = false;
    } },
  }, `Sign in with ${name}`);
  return el("div", {}, el("p", {}, button), bad);
}
