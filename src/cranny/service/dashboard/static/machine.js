// The page of one machine: the jobs that hold its GPUs, its uplink, and what ran there.

import { segment } from "./api.js";
import { heat } from "./colours.js";
import { el, fill, rows } from "./dom.js";
import { action, card, facts, jobLink, table } from "./parts.js";
import * as store from "./store.js";
import { timelineCard } from "./timeline_card.js";
import { gbps, percent } from "./words.js";

const WORDS = { up: "up", drained: "drained: no new jobs are placed", failed: "failed: no jobs are placed" };

function meter(share) {
  const bar = el(
    "span",
    { class: `h${heat(share)}`, style: { width: `${Math.min(100, Math.max(0, share * 100)).toFixed(1)}%` } },
  );
  return el("span", { class: "meter", role: "img", "aria-label": `${percent(share)} of the uplink is used` }, bar);
}

export function machinePage(scope, main, [name]) {
  const known = el("div"), held = el("div"), buttons = el("div", { class: "buttons" }), bad = el("div");
  let role = null, node = null;
  const showButtons = () => {
    if (role?.role !== "admin" || !node) return;
    const verb = node.state === "up" ? "drain" : "resume";
    if (buttons.dataset.verb === verb) return;
    buttons.dataset.verb = verb;
    fill(
      buttons,
      action(
        verb === "drain" ? "Drain this machine" : "Resume this machine", bad, `nodes/${segment(name)}/${verb}`,
        { done: () => store.nodes.touch(0) },
      ),
    );
  };
  scope.watch(store.me, (me) => {
    role = me;
    showButtons();
  });
  scope.watch(store.nodes, (nodes) => {
    node = nodes.find((each) => each.name === name || String(each.machine) === name);
    if (!node) {
      fill(known, el("p", { class: "notice bad" }, `There is no machine called ${name}.`));
      return;
    }
    const share = node.uplink_use_gbps / node.uplink_gbps;
    fill(
      known,
      card(
        "The machine", "",
        facts([
          ["State", `${WORDS[node.state] ?? node.state}${node.why ? ` (${node.why})` : ""}`], ["Rack", node.rack], ["GPU type", node.gpu_type],
          ["GPUs", `${node.gpus - node.free} of ${node.gpus} held`],
          ["Uplink", el("span", {}, `${gbps(node.uplink_use_gbps)} of ${gbps(node.uplink_gbps)} `, meter(share))],
        ]),
      ),
    );
    const listing = table("The job on each GPU", [{ text: "GPU" }, { text: "Job" }]);
    rows(
      listing.body, node.slots.map((job, slot) => ({ job, slot })), (each) => each.slot, (each) => each,
      ({ job, slot }) => el(
        "tr", {}, el("th", { scope: "row" }, String(slot)), el("td", {}, job === null ? "free" : jobLink(job)),
      ),
    );
    fill(held, card("GPUs", "", listing.node));
    showButtons();
  });
  fill(
    main,
    el(
      "div", { class: "title" },
      el("div", {}, el("h1", { tabindex: "-1" }, name), el("p", { class: "kicker" }, "Machine")),
      buttons,
    ),
    bad,
    el(
      "div", { class: "split even" }, el("div", { class: "stack" }, known, held),
      el("div", { class: "stack" }, timelineCard(scope, { only: name, title: "What ran here" }).node),
    ),
  );
  return name;
}
