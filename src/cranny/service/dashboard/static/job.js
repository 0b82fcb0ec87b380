// The page of one job: why it is where it is or why it waits, its ranks, its traffic, its logs.

import { ask, segment } from "./api.js";
import { circlesCard } from "./circles.js";
import { el, fill, rows, say } from "./dom.js";
import { logsCard } from "./logs.js";
import { action, card, facts, machineLink, status, table } from "./parts.js";
import { evidence } from "./price.js";
import * as store from "./store.js";
import { trafficCard } from "./traffic.js";
import { ago, clock, counted, duration, few, HELD, nowS, OVER, until } from "./words.js";

// Write ranks that follow each other as a range: 0–3, 8.
export function ranges(numbers) {
  const parts = [];
  for (const each of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else parts.push([each, each]);
  }
  return parts.map(([from, to]) => (from === to ? String(from) : `${from}–${to}`)).join(", ");
}

function ranksCard(placement) {
  const machines = new Map();
  placement.names.forEach((name, rank) => {
    if (!machines.has(name)) machines.set(name, { ranks: [], gpus: [] });
    machines.get(name).ranks.push(rank);
    machines.get(name).gpus.push(placement.gpus[rank]);
  });
  const known = placement.gpus.length > 0; // unknown for jobs of another scheduler
  const heads = [{ text: "Machine" }, { text: "Ranks" }, { text: "GPUs" }];
  const listing = table("Ranks on each machine", known ? heads : heads.slice(0, 2));
  rows(
    listing.body, [...machines], ([name]) => name, (each) => each,
    ([name, held]) => el(
      "tr", {}, el("th", { scope: "row" }, machineLink(name)), el("td", {}, ranges(held.ranks)),
      known ? el("td", {}, ranges([...held.gpus].sort((one, other) => one - other))) : null,
    ),
  );
  const spare = placement.spare?.length ? ` ${counted(placement.spare.length, "spare GPU")} held without a rank.` : "";
  return card(
    "Ranks",
    `${counted(placement.names.length, "rank")} on ${counted(machines.size, "machine")}.${spare}`,
    listing.node,
  );
}

function attemptsCard(attempts) {
  const heads = ["Attempt", "Placed", "Ran for", "Outcome", "Machines"].map((text) => ({ text }));
  const listing = table("Attempts", heads, { className: "stacked" });
  const cells = (each) => [
    String(each.attempt), clock(each.placed_s, true),
    each.started_s === null ? "–" : duration((each.ended_s ?? nowS()) - each.started_s),
    each.outcome ? `${each.outcome}${each.exit_code ? ` (exit code ${each.exit_code})` : ""}` : "runs",
    few(each.machines, 2),
  ];
  rows(
    listing.body, attempts, (each) => each.attempt, (each) => each,
    (each) => el(
      "tr", { role: "row" },
      cells(each).map((text, at) => el(
        "td", { role: "cell", class: at > 2 ? "tags" : "", "data-head": heads[at].text }, text,
      )),
    ),
  );
  return card("Attempts", "", listing.node);
}

function about(job) {
  const shape = [job.tp > 1 ? `tp ${job.tp}` : "", job.pp > 1 ? `pp ${job.pp}` : ""].filter(Boolean).join(", ");
  return facts([
    ["User", job.user], ["Queue", job.queue], ["GPUs", job.gpus], ["Model", job.model],
    ["Collective", job.collective], ["Parallelism", shape], ["Priority", job.priority || null],
    ["Submitted", `${clock(job.submitted_s, true)} (${ago(job.submitted_s)})`],
    [
      "Started",
      job.started_s === null ? null
        : `${clock(job.started_s, true)}, after ${duration(job.started_s - job.submitted_s)} of waiting`,
    ],
    ["Ended", job.ended_s === null ? null : clock(job.ended_s, true)],
    ["Ran for", job.started_s === null ? null : duration((job.ended_s ?? nowS()) - job.started_s)],
    [
      "Expected end",
      job.expected_end_s === null ? null : `${until(job.expected_end_s)}, at ${clock(job.expected_end_s)}`,
    ],
    ["Estimated duration", job.duration_s === null ? null : duration(job.duration_s)],
    ["Deadline", job.deadline_s === null || job.deadline_s === undefined ? null : clock(job.deadline_s)],
    ["Retries left", job.retries_left || null], ["Exit code", job.exit_code],
  ]);
}

// Which rank is where is said once, in the table of ranks.
const WHERE = / \([^()]*: ranks? [^()]*\)/;

function why(said) {
  const title = said.kind === "placed" ? "Why here" : said.kind === "over" ? "How it ended" : "Why it waits";
  return card(
    title, "",
    el("p", { class: "finding" }, said.reason.replace(WHERE, "") || "No explanation yet."),
    evidence(said),
    said.status === "waiting" && said.predicted_start_s ? el(
      "p", { class: "predicted" },
      `Predicted start: ${until(said.predicted_start_s)}, at ${clock(said.predicted_start_s, true)}.`,
    ) : null,
    said.next_step ? el("p", { class: "next" }, el("strong", {}, "What would help: "), said.next_step) : null,
  );
}

export function jobPage(scope, main, [id]) {
  const title = el("h1", { tabindex: "-1" }, id);
  const under = el("p", { class: "kicker" });
  const buttons = el("div", { class: "buttons" });
  const bad = el("div");
  const known = el("div");
  const reason = el("div");
  const ranks = el("div");
  const tries = el("div");
  const trafficPlace = el("div");
  const rings = el("div");
  const written = el("div");
  const logs = logsCard(scope, id), traffic = trafficCard();
  const cares = (event) => event.job === id || [
    "placed", "ended", "stopped", "cancelled", "policy",
  ].includes(event.kind);
  const detail = new store.Resource(() => ask(`jobs/${segment(id)}`), { cares: (event) => event.job === id });
  const explained = new store.Resource(() => ask(`jobs/${segment(id)}/explain`), { gap: 1000, cares });
  logs.node.hidden = true;
  let shownPlacement = "", role = null, now = null, mode = null;
  const showTraffic = async (job) => {
    const print = JSON.stringify(HELD.includes(job.status) ? job.placement : null);
    if (print === shownPlacement) return;
    shownPlacement = print;
    fill(trafficPlace);
    fill(rings);
    if (print === "null") return;
    try {
      const said = await ask(`jobs/${segment(id)}/traffic`);
      if (!scope.open) return;
      fill(trafficPlace, traffic.node);
      traffic.show(said);
      if (said.circles?.length) fill(rings, circlesCard(said.circles));
    } catch (error) {
      fill(trafficPlace, card("Traffic of one iteration", error.message));
    }
  };
  const showButtons = () => {
    if (!now || !role || !mode) return;
    const may = role.role === "admin" || (role.role === "user" && role.user === now.user);
    const ours = mode === "run" || now.status === "waiting"; // jobs of another scheduler are cancelled there
    const shown = may && ours && !OVER.includes(now.status);
    if (shown && !buttons.firstChild) fill(
      buttons,
      action(
        "Cancel the job", bad, `jobs/${segment(id)}/cancel`,
        { className: "button danger", confirm: `Cancel ${id}?`, done: () => detail.touch(0) },
      ),
    );
    else if (!shown) fill(buttons);
  };
  scope.watch(store.me, (me) => {
    role = me;
    showButtons();
  });
  scope.watch(store.cluster, (said) => {
    ({ mode } = said);
    showButtons();
  });
  scope.watch(detail, (job) => {
    now = job;
    say(title, job.name || job.id);
    fill(under, status(job.status), ` · ${job.id}`);
    fill(known, card("The job", "", about(job)));
    fill(ranks, job.placement ? ranksCard(job.placement) : null);
    fill(
      tries,
      job.attempts.length > (HELD.includes(job.status) ? 1 : 0) ? attemptsCard(job.attempts) : null,
    );
    if (!written.firstChild) fill(
      written,
      card("Job file as submitted", "", el("pre", { tabindex: "0" }, JSON.stringify(job.spec, null, 2))),
    );
    logs.node.hidden = job.attempts.length === 0;
    if (job.attempts.length) logs.show(job);
    showTraffic(job);
    showButtons();
  });
  scope.watch(explained, (said) => fill(reason, why(said)));
  fill(
    main,
    el("div", { class: "title" }, el("div", {}, title, under), buttons), bad,
    el(
      "div", { class: "split even" }, el("div", { class: "stack" }, reason, known, ranks, tries),
      el("div", { class: "stack" }, logs.node, trafficPlace, rings, written),
    ),
  );
  return id;
}
