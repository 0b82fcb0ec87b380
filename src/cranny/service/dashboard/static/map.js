// The map of racks, machines and GPUs on a canvas. Only machines that changed are painted again.

import { arrange } from "./arrange.js";
import { shades } from "./colours.js";
import { el, say } from "./dom.js";
import { machine as paintMachine, rackName } from "./paint.js";
import { whenTheme } from "./theme.js";
import { hideTip, showTip } from "./tip.js";
import { counted, few, gbps } from "./words.js";

const LABEL = "Map of the cluster. Arrow keys go from machine to machine, Enter opens one; " +
  "the table below has the same facts.";

export class ClusterMap {
  constructor(scope, { tallest = 660, open = () => {} } = {}) {
    this.canvas = el(
      "canvas",
      { class: "map", tabindex: "0", role: "application", "aria-label": LABEL, "aria-describedby": "map-said" },
    );
    this.said = el("p", { id: "map-said", class: "unseen", "aria-live": "polite" });
    Object.assign(
      this,
      {
        tallest, open, nodes: [], racks: [], shares: new Map(), lit: null, ghosts: new Map(), painted: [],
        cursor: -1, layout: null,
      },
    );
    const on = (type, act) => scope.listen(this.canvas, type, act);
    on("pointermove", (event) => this.hover(event));
    on("pointerleave", () => this.leave());
    on("click", (event) => this.click(event));
    on("keydown", (event) => this.key(event));
    on("blur", () => this.move(-1));
    scope.sizes(
      this.canvas,
      () => { if (this.layout && this.canvas.clientWidth !== this.layout.width) this.redraw(true); },
    );
    whenTheme(scope, () => this.redraw());
  }

  show(nodes) {
    const alike = (node, at) => node.rack === this.nodes[at].rack && node.gpus === this.nodes[at].gpus;
    const same = nodes.length === this.nodes.length && nodes.every(alike);
    this.nodes = nodes;
    if (same && this.layout) this.update();
    else {
      const racks = new Map();
      nodes.forEach((node, machine) => {
        if (!racks.has(node.rack)) racks.set(node.rack, { name: node.rack, machines: [] });
        racks.get(node.rack).machines.push(machine);
      });
      this.racks = [...racks.values()];
      this.redraw(true);
    }
  }

  showLinks(links) {
    this.shares = new Map(links.filter((link) => link.tier > 0).map((link) => [
      link.node, link.use_gbps / link.gbps,
    ]));
    if (this.layout && this.printRacks() !== this.paintedRacks) this.redraw();
  }

  printRacks() {
    return this.racks.map((rack) => Math.round((this.shares.get(rack.name) ?? -1) * 100)).join();
  }

  light(job) {
    if (this.lit === job) return;
    this.lit = job;
    this.redraw();
  }

  // Show where a job would go: for each machine the GPUs that it would hold.
  showGhosts(placement) {
    this.ghosts = new Map();
    placement?.machines.forEach((machine, rank) => {
      if (!this.ghosts.has(machine)) this.ghosts.set(machine, new Set());
      const taken = this.ghosts.get(machine), { slots } = this.nodes[machine];
      // A plan may leave open which GPUs of a machine it takes: show the first free ones.
      taken.add(placement.gpus[rank] ?? slots.findIndex((job, slot) => job === null && !taken.has(slot)));
    });
    this.redraw();
  }

  print(machine) {
    const node = this.nodes[machine];
    return `${node.state}|${node.slots.join()}|${Math.round(100 * node.uplink_use_gbps / node.uplink_gbps)}`;
  }

  redraw(afresh = false) {
    const width = this.canvas.clientWidth;
    this.canvas.hidden = !this.nodes.length;
    if (!width || !this.nodes.length) return;
    if (afresh || !this.layout) {
      const most = Math.max(...this.nodes.map((node) => node.gpus), 1);
      this.layout = arrange(this.racks, most, width - 4, width < 500 ? this.tallest * 1.5 : this.tallest);
      this.layout.width = width;
    }
    const ratio = devicePixelRatio || 1, height = Math.ceil(this.layout.height) + 4;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(ratio, ratio);
    this.pen.translate(2, 2);
    this.paintedRacks = this.printRacks();
    for (const label of this.layout.labels) rackName(
      this.pen, label, this.racks[label.rack].name, this.shares.get(this.racks[label.rack].name),
    );
    this.painted = [];
    this.update();
  }

  update() {
    for (const place of this.layout.places) {
      const print = this.print(place.machine);
      if (this.painted[place.machine] === print) continue;
      this.painted[place.machine] = print;
      this.paint(place);
    }
    this.canvas.dataset.ready = "yes";
  }

  paint(place) {
    const { pen } = this;
    pen.clearRect(place.x, place.y, place.wide, place.high);
    const ghosts = this.ghosts.get(place.machine);
    paintMachine(
      pen, this.nodes[place.machine], place, this.layout, { lit: this.lit, ghosts, dim: this.ghosts.size > 0 },
    );
    if (place.machine === this.cursor) {
      pen.strokeStyle = shades().ink;
      pen.lineWidth = 2;
      pen.strokeRect(place.x - 0.5, place.y - 0.5, place.wide + 1, place.high + 1);
    }
  }

  at(event) {
    if (!this.layout) return null;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left - 2;
    const y = event.clientY - box.top - 2;
    const place = this.layout.places.find((each) =>
      x >= each.x && x < each.x + each.wide && y >= each.y && y < each.y + each.high);
    if (!place) return null;
    const { cell, wide, across, head, gpus } = this.layout, node = this.nodes[place.machine];
    const column = Math.floor((x - place.x) / wide), row = Math.floor((y - place.y - head) / cell);
    const slot = gpus && column < across && row >= 0 ? row * across + column : -1;
    return { node, slot, job: node.slots[slot] ?? null, place };
  }

  hover(event) {
    const found = this.at(event);
    this.canvas.style.cursor = found ? "pointer" : "";
    if (!found) {
      this.leave();
      return;
    }
    const { node, slot, job } = found, would = this.ghosts.get(node.machine)?.has(slot);
    const held = job ?? (slot >= 0 && slot < node.gpus ? `GPU ${slot} is free` : node.name);
    const top = would ? "the job would get this GPU" : held;
    showTip([top, ...this.facts(node).map((line) => [line])], event.clientX, event.clientY);
    this.light(job);
  }

  facts(node) {
    const jobs = [...new Set(node.slots.filter((each) => each !== null))];
    return [
      [node.name, node.rack, node.gpu_type, node.state === "up" ? "" : node.state].filter(Boolean).join(", "),
      `${node.gpus - node.free} of ${counted(node.gpus, "GPU")} held${jobs.length ? ` by ${few(jobs, 4)}` : ""}`,
      `uplink ${gbps(node.uplink_use_gbps)} of ${gbps(node.uplink_gbps)}`,
    ];
  }

  leave() {
    hideTip();
    this.light(null);
  }

  click(event) {
    const found = this.at(event);
    if (!found) return;
    hideTip();
    this.open(found.job, found.node);
  }

  key(event) {
    if (!this.layout) return;
    const { places } = this.layout, now = places.find((place) => place.machine === this.cursor);
    if (event.key === "Enter" && now) this.open(null, this.nodes[this.cursor]);
    else if (event.key === "Home") this.move(places[0].machine);
    else if (event.key === "End") this.move(places.at(-1).machine);
    else if (event.key.startsWith("Arrow")) this.move(now ? this.beside(now, event.key.slice(5)) : places[0].machine);
    else return;
    event.preventDefault();
  }

  // The nearest machine in a direction; sideways steps count less than steps along.
  beside(now, direction) {
    const [alongX, alongY] = { Left: [-1, 0], Right: [1, 0], Up: [0, -1], Down: [0, 1] }[direction];
    let best = now, least = Infinity;
    for (const place of this.layout.places) {
      const dx = place.x - now.x;
      const dy = place.y - now.y;
      const along = dx * alongX + dy * alongY;
      const aside = Math.abs(dx * alongY) + Math.abs(dy * alongX);
      if (along > 0 && along + 3 * aside < least) [best, least] = [place, along + 3 * aside];
    }
    return best.machine;
  }

  move(machine) {
    if (machine === this.cursor) return;
    this.cursor = machine;
    this.redraw(); // the frame round a machine reaches over its neighbours
    if (machine >= 0) say(this.said, this.facts(this.nodes[machine]).join("; "));
  }
}
