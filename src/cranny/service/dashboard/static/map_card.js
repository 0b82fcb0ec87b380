// The map with its headline, its key, and the same facts as a table.

import { heat } from "./colours.js";
import { el, rows, say } from "./dom.js";
import { ClusterMap } from "./cluster_map.js";
import { isForeign, jobLink, machineLink, table } from "./parts.js";
import * as store from "./store.js";
import { whenTheme } from "./theme.js";
import { hideTip, showTip } from "./tip.js";
import { counted, few, gbps, number, percent } from "./words.js";
import { segment } from "./api.js";

const LABEL = "Map of the cluster. Arrow keys go from machine to machine, Enter opens one; " +
  "the table below has the same facts.";
const HEADS = [
  { text: "Machine" }, { text: "Rack" }, { text: "State" }, { text: "GPUs held", numeric: true },
  { text: "Jobs" }, { text: "Uplink", numeric: true },
];

function headline(nodes) {
  const used = nodes.filter((node) => node.free < node.gpus);
  const held = nodes.reduce((sum, node) => sum + node.gpus - node.free, 0);
  const all = nodes.reduce((sum, node) => sum + node.gpus, 0), idle = used.reduce((sum, node) => sum + node.free, 0);
  const down = nodes.filter((node) => node.state !== "up").length;
  const hot = nodes.filter((node) => heat(node.uplink_use_gbps / node.uplink_gbps) === 6).length;
  const parts = [
    `${number(held)} of ${counted(all, "GPU")} held on ${number(used.length)} of ${counted(nodes.length, "machine")}`,
    `${counted(idle, "free GPU")} in fragments`, hot ? `${counted(hot, "machine")} with a full uplink` : "",
    down ? `${number(down)} down` : "",
  ];
  return `${parts.filter(Boolean).join("; ")}.`;
}

function key() {
  const sample = (name, text) => el("span", {}, el("i", { class: `key-${name}`, "aria-hidden": "true" }), text);
  return el(
    "div", { class: "key" }, sample("job", "GPU held by a job; one colour a job"),
    sample("hole", "fragment: free GPU on a used machine"), sample("blank", "idle machine"),
    sample("down", "drained / failed"),
    el(
      "span", {},
      el(
        "span", { class: "ramp", "aria-hidden": "true" },
        [1, 2, 3, 4, 5, 6].map((step) => el("i", { class: `h${step}` })),
      ),
      "uplink load, none to full",
    ),
  );
}

function row(node) {
  const jobs = [...new Set(node.slots.filter((job) => job !== null))];
  return el(
    "tr", {}, el("th", { scope: "row" }, machineLink(node.name)), el("td", {}, node.rack), el("td", {}, node.state),
    el("td", { class: "number" }, `${node.gpus - node.free} of ${node.gpus}`),
    el("td", { class: "tags" }, jobs.map((job) => jobLink(job))),
    el(
      "td", { class: "number" },
      `${gbps(node.uplink_use_gbps)} (${percent(node.uplink_use_gbps / node.uplink_gbps)})`,
    ),
  );
}

function facts(node) {
  const jobs = [...new Set(node.slots.filter((each) => each !== null))];
  return [
    [
      node.name, node.rack, node.gpu_type,
      node.state === "up" ? "" : `${node.state}${node.why ? `: ${node.why}` : ""}`,
    ].filter(Boolean).join(", "),
    `${node.gpus - node.free} of ${counted(node.gpus, "GPU")} held${jobs.length ? ` by ${few(jobs, 4)}` : ""}`,
    `uplink ${gbps(node.uplink_use_gbps)} of ${gbps(node.uplink_gbps)}`,
  ];
}

function hoverLines({ node, slot, job, proposed }) {
  const held = job ?? (slot >= 0 && slot < node.gpus ? `GPU ${slot} is free` : node.name);
  return [proposed ? "the job would get this GPU" : held, ...facts(node).map((line) => [line])];
}

function clusterMap(scope, tallest, said) {
  const canvas = el(
    "canvas",
    { class: "map", tabindex: "0", role: "application", "aria-label": LABEL, "aria-describedby": "map-said" },
  );
  const map = new ClusterMap(canvas, {
    tallest, hideTip,
    showTip: (found, event) => showTip(hoverLines(found), event.clientX, event.clientY),
    announce: (node) => say(said, facts(node).join("; ")),
    open: (job, node) => {
      location.hash = job && !isForeign(job) ? `#/jobs/${segment(job)}` : `#/machines/${segment(node.name)}`;
    },
  });
  scope.sizes(canvas, () => map.resize());
  whenTheme(scope, () => map.redraw());
  return map;
}

export function mapCard(scope, { title = "Cluster", tallest, ghosts = false } = {}) {
  const said = el("p", { id: "map-said", class: "unseen", "aria-live": "polite" });
  const map = clusterMap(scope, tallest, said);
  const readout = el("p", { class: "readout" }), listing = table("All machines", HEADS);
  const details = el("details", {}, el("summary", {}, "The map as a table"), listing.node);
  const fillTable = (nodes) => {
    if (details.open) rows(
      listing.body, nodes, (node) => node.name,
      (node) => [node.slots, node.state, Math.round(node.uplink_use_gbps * 10)], row,
    );
  };
  scope.listen(details, "toggle", () => fillTable(map.nodes));
  scope.watch(store.nodes, (nodes) => {
    map.show(nodes);
    say(readout, headline(nodes));
    fillTable(nodes);
  });
  scope.watch(store.links, (links) => map.showLinks(links));
  const node = el(
    "section", { class: "card pad map-card", "aria-label": title }, el("h2", {}, title), readout,
    map.canvas, said, ghosts ? null : key(), details,
  );
  return { node, map };
}
