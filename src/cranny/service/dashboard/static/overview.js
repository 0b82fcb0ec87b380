// The first page: key numbers, the map, what waits and why, moves that pay, and how it has been going.

import { ask } from "./api.js";
import { Chart } from "./chart.js";
import { el, fill, rows, say } from "./dom.js";
import { JobTable, KIND_NAMES, showCounts, STATUSES } from "./job_table.js";
import { mapCard } from "./map_card.js";
import { movesCard } from "./moves_card.js";
import { choice, jobLink, table } from "./parts.js";
import * as store from "./store.js";
import { change, clock, counted, duration, nowS, number, percent } from "./words.js";

const SHOWN = 12;
const LEAST_S = 120;
const RANGES = [[15, "15 min"], [60, "1 h"], [360, "6 h"], [1440, "24 h"]];

function numbers(scope) {
  const tiles = [
    "GPUs held", "Machines used", "Fragmentation", "Running", "Waiting", "Largest that fits now",
    "Policy",
  ].map((name) => {
    const value = el("dd", { class: "value" }), note = el("dd", { class: "note" });
    return {
      node: el("div", { class: "tile" }, el("dt", {}, name), value, note),
      show: (text, more) => { say(value, text); say(note, more); },
    };
  });
  const [held, used, holes, running, waiting, largest, policy] = tiles;
  scope.watch(store.cluster, (now) => {
    const { counts } = now;
    held.show(`${number(now.held_gpus)} / ${number(now.gpus)}`, percent(now.held_gpus / now.gpus));
    used.show(number(now.used_machines), `${counted(now.free_gpus, "GPU")} free`);
    holes.show(percent(now.fragmentation, 1), "of used machines' GPUs");
    running.show(
      number(counts.running),
      counts.starting + counts.stopping ? `${counts.starting} starting, ${counts.stopping} stopping` : "",
    );
    waiting.show(number(counts.waiting), counts.failed ? `${number(counts.failed)} failed so far` : "");
    largest.show(counted(now.largest_startable_gpus, "GPU"), "");
    policy.show(
      now.policy.name,
      `${now.policy.order}${now.policy.period_s ? `, every ${duration(now.policy.period_s)}` : ""}`,
    );
  });
  return el("dl", { class: "tiles", "aria-label": "Key numbers" }, tiles.map((tile) => tile.node));
}

function charts(scope) {
  const drawn = [
    new Chart(
      "Utilisation",
      [{
        name: "GPUs held", colour: "c1", area: true,
        value: (point) => (point.gpus ? point.held_gpus / point.gpus : null),
      }],
      { share: true },
    ),
    new Chart(
      "Fragmentation",
      [{ name: "free GPUs on used machines", colour: "c0", area: true, value: (point) => point.fragmentation }],
      { share: true },
    ),
    new Chart(
      "Jobs",
      [
        { name: "running", colour: "c2", value: (point) => point.running },
        { name: "waiting", colour: "c4", value: (point) => point.waiting },
      ],
    ),
  ];
  let minutes = 60;
  const history = new store.Resource(async () => {
    const [{ gpus, points }, now] = await Promise.all([ask("history", { query: { minutes } }), ask("cluster")]);
    // Points come when something happens: the last one is how it is now.
    return [
      ...points.map((point) => ({ gpus, ...point })),
      { ...now, at_s: now.now_s, waiting: now.counts.waiting, running: now.counts.running },
    ];
  }, { gap: 2000 });
  const show = (points) => {
    const toS = nowS(), fromS = Math.max(
      toS - minutes * 60, Math.min(points[0].at_s, toS - LEAST_S),
    ); // a service that has just begun
    for (const chart of drawn) chart.show(points, fromS, toS);
  };
  scope.watch(history, show);
  scope.every(15_000, () => history.touch());
  const range = choice("Time shown", RANGES, minutes, (chosen) => {
    minutes = chosen;
    history.touch(0);
  });
  return el("div", { class: "charts" }, range.node, drawn.map((chart) => chart.node));
}

function latest(scope) {
  const list = el("ol", { class: "changes" });
  let planned = false;
  const show = () => {
    planned = false;
    const events = store.changes.list.slice(0, 8);
    fill(
      list,
      events.length ? events.map((event) => el(
        "li", {}, el("time", {}, clock(event.at_s, true)),
        el(
          "span", {},
          event.job ? el("a", { href: `#/jobs/${encodeURIComponent(event.job)}` }, change(event)) : change(event),
        ),
      )) : el("li", { class: "hint" }, "Nothing has happened yet."),
    );
  };
  const soon = () => {
    if (!planned) setTimeout(show, 250);
    planned = true;
  };
  store.changes.watchers.add(soon);
  scope.ends.push(() => store.changes.watchers.delete(soon));
  show();
  return el("section", { class: "card pad", "aria-label": "Latest changes" }, el("h2", {}, "Latest changes"), list);
}

function jobsCard(scope, map) {
  const place = el("div"), more = el("p", { class: "more" });
  let shown = null, ends = () => {};
  const pick = (kind) => {
    ends();
    shown = new JobTable(kind, (job) => map.light(job));
    const list = store.jobs({ status: STATUSES[kind], limit: SHOWN, newest: kind === "over" ? true : undefined });
    const mine = shown;
    fill(place, mine.place);
    ends = list.watch(({ jobs, total }) => {
      if (mine !== shown) return;
      mine.show(jobs);
      fill(
        more,
        total > jobs.length ? el(
          "a", { href: `#/jobs?show=${kind}` },
          `All ${counted(total, `${KIND_NAMES[kind].toLowerCase()} job`)}`,
        ) : "",
      );
    });
  };
  const tabs = choice("Jobs shown", Object.entries(KIND_NAMES), "waiting", pick);
  scope.watch(store.cluster, ({ counts }) => {
    showCounts(tabs.buttons, counts);
  });
  scope.every(5000, () => shown?.tick());
  scope.ends.push(() => ends());
  pick("waiting");
  return el(
    "section", { class: "card pad", "aria-label": "Jobs" },
    el("div", { class: "head" }, el("h2", {}, "Jobs"), tabs.node), place, more,
  );
}

// Recommend-only: what cranny would have done, and what that would have saved.
function advice(scope) {
  const holder = el("div");
  const listing = table(
    "Recommended placements, newest first",
    [{ text: "When" }, { text: "Job" }, { text: "Recommendation" }],
  );
  const saved = el("p", { class: "readout" });
  const found = new store.Resource(() => ask("recommendations", { query: { limit: SHOWN / 2 } }), { gap: 1000 });
  let watching = false;
  scope.watch(store.cluster, ({ mode }) => {
    if (mode !== "recommend" || watching) return;
    watching = true;
    fill(holder, el("section", { class: "card pad" }, el("h2", {}, "Recommended placements"), saved, listing.node));
    scope.watch(found, ({ recommendations, saved: sum }) => {
      say(
        saved,
        `Over ${counted(sum.jobs ?? 0, "job")} this would have saved ` +
          `${counted(sum.machines ?? 0, "machine")} and ${duration(sum.wait_s ?? 0)} of waiting.`,
      );
      rows(
        listing.body,
        [...recommendations].sort((one, other) => other.seq - one.seq), (each) => each.seq, (each) => each.seq,
        (each) => el(
          "tr", {}, el("td", {}, clock(each.at_s)), el("td", {}, jobLink(each.job)),
          el("td", { class: "why" }, each.text.split("\n")[0]),
        ),
      );
    });
  });
  return holder;
}

export function overview(scope, main) {
  const about = el("p", { class: "kicker" });
  scope.watch(
    store.cluster,
    (now) => say(
      about,
      [
        now.name, now.description,
        now.mode === "recommend" ? "recommend only: nothing is started" : "",
      ].filter(Boolean).join(" · "),
    ),
  );
  const cluster = mapCard(scope);
  fill(
    main, el("h1", { class: "unseen", tabindex: "-1" }, "Overview"), about, numbers(scope),
    el(
      "div", { class: "split" },
      el("div", { class: "stack" }, cluster.node, jobsCard(scope, cluster.map), movesCard(scope), advice(scope)),
      el("div", { class: "stack" }, charts(scope), latest(scope)),
    ),
  );
  return "Overview";
}
