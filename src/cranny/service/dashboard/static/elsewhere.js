// Other services on the same log, one of which takes over when this one is gone.
// The page never takes its session along: until a standby has taken over, any program of its host may listen on its
// port. Only a certificate proves who answers there, so a page goes on by itself to https only, and says so otherwise.

import { el } from "./dom.js";

const PATIENCE_MS = 3000;

function others() {
  return (document.querySelector("meta[name=also-at]")?.content ?? "").split(" ").filter(Boolean);
}

// The first of the others that answers at all, asked without any credential; null if none does.
async function answering() {
  for (const url of others()) {
    try {
      const signal = AbortSignal.timeout(PATIENCE_MS);
      await fetch(`${url}/healthz`, { mode: "no-cors", credentials: "omit", cache: "no-store", signal });
      return url;
    } catch {
      // not this one
    }
  }
  return null;
}

// Go on with the same page where another service answers; returns what to show if the reader has to decide.
export async function goElsewhere() {
  const url = await answering();
  if (url === null) return null;
  const there = `${url}/${location.hash}`;
  if (!there.startsWith("https:")) {
    return el(
      "div", { class: "notice bad", id: "elsewhere" }, "This service does not answer; another one has taken over at ",
      el("a", { href: there }, url), ". Sessions stay with their address: log in there again.",
    );
  }
  location.replace(there);
  return null;
}
