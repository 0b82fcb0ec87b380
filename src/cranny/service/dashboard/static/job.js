// The page of one job: why it is where it is or why it waits, its ranks, its traffic, its logs.

import { ask, segment } from "./api.js";
import { attemptsCard } from "./attempts_card.js";
import { circlesCard } from "./circles.js";
import { el, fill, rows, say } from "./dom.js";
import { logsCard } from "./logs.js";
import { doubtedNotice, iterationsCard, paceCard, typesCard } from "./measured_cards.js";
import { action, card, facts, machineLink, status, table } from "./parts.js";
import { evidence } from "./price.js";
import * as store from "./store.js";
import { trafficCard } from "./traffic.js";
import { ago, clock, counted, duration, HELD, nowS, OVER, until } from "./words.js";

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

const MEASURED_MS = 4000; // between two looks at what a job reports, which no event announces
const SHARED_MS = 20_000;

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
  const doubted = el("div");
  const iterations = el("div");
  const paced = el("div");
  const types = el("div");
  const written = el("div");
  const logs = logsCard(scope, id), traffic = trafficCard(), course = iterationsCard();
  const cares = (event) => event.job === id || [
    "placed", "ended", "stopped", "cancelled", "policy",
  ].includes(event.kind);
  const held = () => HELD.includes(now?.status);
  // Neighbours come and go, and are shifted and measured: what they share with this job changes with them, and so
  // does what is said of it.
  const meets = (event) => cares(event) || ["moved", "shifted", "paced", "profiled", "vacated"].includes(event.kind);
  const detail = new store.Resource(() => ask(`jobs/${segment(id)}`), { cares: (event) => event.job === id });
  const explained = new store.Resource(() => ask(`jobs/${segment(id)}/explain`), { gap: 1000, cares: meets });
  const shared = new store.Resource(
    async () => (held() ? ask(`jobs/${segment(id)}/traffic`).catch(({ message }) => ({ message })) : null),
    { gap: 1000, cares: meets },
  );
  const measured = new store.Resource(
    () => ask(`jobs/${segment(id)}/measurements`), { gap: MEASURED_MS / 2, cares: (event) => event.job === id },
  );
  logs.node.hidden = true;
  let shownTraffic = "", shownStatus = "", role = null, now = null, mode = null, reported = null;
  const showTraffic = (said) => {
    const print = JSON.stringify(said);
    if (print === shownTraffic) return;
    shownTraffic = print;
    fill(rings, said?.circles?.length ? circlesCard(said.circles) : null);
    if (said?.message !== undefined) fill(trafficPlace, held() ? card("Traffic of one iteration", said.message) : null);
    else fill(trafficPlace, said && traffic.node);
    if (said?.ranks) traffic.show(said);
  };
  const showAttempts = () => fill(
    tries,
    now.attempts.length > (held() ? 1 : 0) ? attemptsCard(now.attempts, reported?.restarts ?? []) : null,
  );
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
    showAttempts();
    if (!written.firstChild) fill(
      written,
      card("Job file as submitted", "", el("pre", { tabindex: "0" }, JSON.stringify(job.spec, null, 2))),
    );
    logs.node.hidden = job.attempts.length === 0;
    if (job.attempts.length) logs.show(job);
    const print = JSON.stringify([job.status, job.placement]);
    if (print !== shownStatus) for (const each of [shared, measured]) each.touch(0);
    shownStatus = print;
    showButtons();
  });
  scope.watch(shared, showTraffic);
  scope.watch(measured, (said) => {
    reported = said;
    fill(doubted, doubtedNotice(said));
    if (said.points.length) {
      if (!iterations.firstChild) fill(iterations, course.node); // first: a chart is as wide as its place
      course.show(said);
    }
    fill(paced, paceCard(said));
    fill(types, typesCard(said));
    if (now) showAttempts();
  });
  scope.every(MEASURED_MS, () => { if (held()) measured.touch(0); });
  scope.every(SHARED_MS, () => { if (held()) shared.touch(0); });
  scope.watch(explained, (said) => fill(reason, why(said)));
  fill(
    main,
    el("div", { class: "title" }, el("div", {}, title, under), buttons), bad, doubted,
    el(
      "div", { class: "split even" }, el("div", { class: "stack" }, reason, known, ranks, types),
      el("div", { class: "stack" }, iterations, tries, paced, rings, logs.node, trafficPlace, written),
    ),
  );
  return id;
}
