// Starts the dashboard: one page at a time, chosen by the part of the address after #.

import { accessPage } from "./access.js";
import { ask, keepSession, logIn, segment, session, whenSessionChanges } from "./api.js";
import { el, fill, say } from "./dom.js";
import { goElsewhere } from "./elsewhere.js";
import { recent, Stream } from "./events.js";
import { jobPage } from "./job.js";
import { jobsPage } from "./jobs.js";
import { startKeys } from "./keys.js";
import { machinePage } from "./machine.js";
import { overview } from "./overview.js";
import { reasonOf, takeVerifier } from "./sign_in.js";
import * as store from "./store.js";
import { startTheme } from "./theme.js";
import { timelinePage } from "./timeline.js";
import { hideTip } from "./tip.js";
import { whatIfPage } from "./whatif.js";
import { change, counted } from "./words.js";

const PAGES = [
  [/^\/?$/, overview, "overview"],
  [/^\/jobs$/, jobsPage, "jobs"],
  [/^\/jobs\/([^/]+)$/, jobPage, "jobs"],
  [/^\/machines\/([^/]+)$/, machinePage, "overview"],
  [/^\/timeline$/, timelinePage, "timeline"],
  [/^\/what-if$/, whatIfPage, "what-if"],
];
const main = document.getElementById("content");
const trouble = document.getElementById("trouble");
const live = document.getElementById("live");
const said = document.getElementById("said");
const leave = document.getElementById("leave");
const who = document.getElementById("who");
const ENDED = "Your session has ended: 12 hours have passed, you logged out elsewhere, or its token was revoked.";
const USED = "This login link was used before, issued before the last restart of the service, or begun in another browser.";
const RECENT = 20; // changes that a page shows which came before it was opened
let scope = new store.Scope(), denied = false, welcome = false, first = true;

function missing(_, place) {
  fill(place, el("h1", { tabindex: "-1" }, "No such page"), el("p", {}, el("a", { href: "#/" }, "To the overview")));
  return "No such page";
}

// The names in an address; none if it was cut off in the middle of a letter.
function partsOf(match) {
  try {
    return match.slice(1).map(decodeURIComponent);
  } catch (error) {
    if (error instanceof URIError) return null;
    throw error;
  }
}

function show() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  scope.end();
  scope = new store.Scope();
  hideTip();
  fill(trouble);
  const found = PAGES.find(([pattern]) => pattern.test(path));
  const parts = found ? partsOf(path.match(found[0])) : null, asked = new URLSearchParams(query);
  const used = asked.get("link") === "used" ? USED : reasonOf(asked.get("sign-in"));
  const title = denied ? accessPage(scope, main, denied === true ? used : denied)
    : (parts ? found[1] : missing)(scope, main, parts, asked);
  document.title = `${title} · cranny`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === found?.[2]) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!first) {
    scrollTo(0, 0);
    main.querySelector("h1")?.focus({ preventScroll: true }); // tells a screen reader that the page changed
  }
  first = false;
}

// Log in by a one-time link. Its code stands behind the #, so that it is neither sent in an address nor kept in one.
async function useLink() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  if (path !== "/login") return false;
  let next = "#/";
  try {
    await logIn({ code: new URLSearchParams(query).get("code") ?? "", verifier: takeVerifier() });
  } catch (error) {
    if (error.status === 401) next = "#/?link=used";
    else fill(trouble, el("div", { class: "notice bad" }, error.message));
  }
  history.replaceState(null, "", next);
  return true;
}

// Called by the first refused request, or by the event stream.
function deny(text) {
  if (denied) return;
  denied = welcome || text.includes("session") ? ENDED : true;
  leave.hidden = who.hidden = true;
  show();
}

store.whenTrouble((resource, error) => {
  if (error.status === 401) deny(error.message);
  else if (trouble.source === follow) return; // where another service is says more than that this one is gone
  else fill(trouble, el("div", { class: "notice bad" }, error.message));
  trouble.source = resource;
}, (resource) => {
  welcome = true;
  if (trouble.source === resource) fill(trouble);
});

// Changes are said aloud, but many at once only as a number.
let unsaid = [];
function announce(event) {
  if (unsaid.push(event) > 1) return;
  setTimeout(() => {
    const many = `${counted(unsaid.length, "change")}, the last: ${change(unsaid.at(-1))}`;
    said.textContent = unsaid.length > 3 ? many : unsaid.map(change).join("; ");
    unsaid = [];
  }, 1500);
}

const STATES = { connecting: "connecting", live: "live", reconnecting: "reconnecting …", denied: "no access" };
const GONE = 4; // tries to reconnect, after some seconds, when another service is looked for
let broken = false;

async function follow() {
  const notice = await goElsewhere();
  if (notice === null || live.dataset.state !== "reconnecting") return;
  fill(trouble, notice);
  trouble.source = follow;
}

const stream = new Stream({
  onEvent(event) {
    if (event.kind === "audit") return; // for `cranny audit`; it changes nothing on any page
    store.noteChange(event);
    store.changed(event);
    announce(event);
  },
  onState(state) {
    live.dataset.state = state;
    say(live.querySelector(".text"), STATES[state]);
    if (state === "live" && broken) store.touchAll();
    if (state === "live" && trouble.source === follow) {
      fill(trouble);
      trouble.source = null;
    }
    if (state === "reconnecting" && stream.tries >= GONE) follow();
    if (state === "denied") deny("");
    broken = state === "reconnecting";
  },
});

// What happened last, asked until it is known, and from there on whatever happens.
async function begin() {
  try {
    const { events, seq } = await recent(RECENT);
    events.forEach(store.noteChange);
    stream.last = String(seq);
    if (trouble.source === begin) fill(trouble);
  } catch (error) {
    if (error.status !== 401) {
      fill(trouble, el("div", { class: "notice bad" }, error.message));
      trouble.source = begin;
      setTimeout(begin, store.RETRY_MS);
      return;
    }
  }
  stream.run(); // says that access is denied, if it is
}

// Go where a name leads: a machine if it is one, otherwise a job.
function startFind() {
  const form = document.getElementById("find"), text = document.getElementById("find-text");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = text.value.trim();
    if (!name) return;
    const machine = (store.nodes.value ?? []).some((node) => node.name === name);
    const job = /^\d+$/.test(name) ? `job-${name}` : name;
    location.hash = machine ? `#/machines/${segment(name)}` : `#/jobs/${segment(job)}`;
    text.value = "";
  });
  text.addEventListener("focus", () => {
    const names = (store.nodes.value ?? []).map((node) => node.name);
    const jobs = new Set((store.nodes.value ?? []).flatMap((node) => node.slots.filter((job) => job !== null)));
    fill(
      document.getElementById("find-names"),
      [...jobs, ...names].slice(0, 2500).map((name) => el("option", { value: name })),
    );
  });
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
leave.addEventListener("click", async () => {
  try {
    await ask("session", { method: "DELETE" });
    keepSession(null);
    location.reload();
  } catch (error) {
    fill(trouble, el("div", { class: "notice bad" }, error.message));
  }
});
addEventListener("hashchange", async () => {
  if (await useLink()) location.reload();
  else show();
});
whenSessionChanges(() => {
  if (session() === null) deny("session");
  else location.reload();
});
startTheme(document.getElementById("theme"));
startKeys(document.getElementById("help"));
startFind();
await useLink();
store.me.watch(({ user, role }) => say(who, `${user}, ${role}`));
show();
begin();
