// The attempts of a job, and what each restart cost and gained.

import { cost, gain } from "./course.js";
import { el, rows } from "./dom.js";
import { card, table } from "./parts.js";
import { clock, duration, few, nowS, number } from "./words.js";

export function attemptsCard(attempts, restarts) {
  const of = new Map(restarts.map((each) => [each.attempt, each]));
  const reported = restarts.some((each) => each.step !== null || each.iteration_s !== null);
  const columns = [
    ["Attempt", (each) => String(each.attempt)], ["Placed", (each) => clock(each.placed_s, true)],
    ["Ran for", (each) => (each.started_s === null ? "–" : duration((each.ended_s ?? nowS()) - each.started_s))],
    [
      "Outcome",
      (each) => (each.outcome ? `${outcome(each, of)}${each.exit_code ? ` (exit code ${each.exit_code})` : ""}` : "runs"),
    ],
    ["GPUs", (each) => (each.gpus === undefined ? "–" : String(each.gpus))],
    ["Machines", (each) => few(each.machines, reported ? 1 : 2)],
    ...reported ? [
      ["Resumed at", (each) => (of.get(each.attempt)?.step == null ? "–" : `step ${number(of.get(each.attempt).step)}`)],
      ["Restart cost", (each) => cost(of.get(each.attempt))],
      ["Iteration before and after", (each) => gain(of.get(each.attempt))],
    ] : [],
  ];
  const heads = columns.map(([text]) => ({ text }));
  const listing = table("Attempts", heads, { className: "stacked" });
  rows(
    listing.body, attempts, (each) => each.attempt, (each) => [each, of.get(each.attempt)],
    (each) => el(
      "tr", { role: "row" },
      columns.map(([head, text], at) => el(
        "td", { role: "cell", class: at > 2 ? "tags" : "", "data-head": head }, text(each),
      )),
    ),
  );
  return card("Attempts", "", listing.node);
}

// The service says that an attempt was moved; the next one tells whether it has as many GPUs.
function outcome(attempt, restarts) {
  return attempt.outcome === "moved" ? restarts.get(attempt.attempt + 1)?.reason ?? "moved" : attempt.outcome;
}
