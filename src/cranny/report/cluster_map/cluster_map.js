// The map of racks, machines and GPUs on a canvas. Only machines that changed are painted again.
//
// The dashboard imports these modules; the report inlines them, so that imports stand on one line each and no two
// modules use one name at their top level.

import { arrange } from "./arrange.js";
import { shades } from "./colours.js";
import { paintMachine, rackFont, rackName } from "./paint.js";

export class ClusterMap {
  // The page gives: showTip(found, event) and hideTip() for the text beside the pointer, announce(node) for screen
  // readers, open(job, node) for clicks and Enter, and whether machines have a bar for the load of their uplink.
  constructor(canvas, { showTip, hideTip, announce, open = null, tallest = 660, bars = true }) {
    Object.assign(
      this,
      {
        canvas, showTip, hideTip, announce, open, tallest, bars, nodes: [], racks: [], shares: new Map(), lit: null,
        ghosts: new Map(), painted: [], cursor: -1, layout: null,
      },
    );
    const on = (type, act) => canvas.addEventListener(type, act);
    on("pointermove", (event) => this.hover(event));
    on("pointerdown", (event) => this.hover(event));
    on("pointerleave", () => this.leave());
    on("click", (event) => this.click(event));
    on("keydown", (event) => this.key(event));
    on("blur", () => this.move(-1));
  }

  resize() {
    if (this.layout && this.canvas.clientWidth !== this.layout.width) this.redraw(true);
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
      const pen = this.canvas.getContext("2d");
      pen.font = rackFont();
      for (const rack of this.racks) rack.nameWidth = Math.min(Math.ceil(pen.measureText(rack.name).width), 120);
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
      const tallest = width < 500 ? this.tallest * 1.5 : this.tallest;
      this.layout = arrange(this.racks, most, width - 4, tallest, this.bars);
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
    this.canvas.style.cursor = found && this.open ? "pointer" : "";
    if (!found) {
      this.leave();
      return;
    }
    this.showTip({ ...found, proposed: this.ghosts.get(found.place.machine)?.has(found.slot) ?? false }, event);
    this.light(found.job);
  }

  leave() {
    this.hideTip();
    this.light(null);
  }

  click(event) {
    const found = this.at(event);
    if (!found || !this.open) return;
    this.hideTip();
    this.open(found.job, found.node);
  }

  key(event) {
    if (!this.layout) return;
    const { places } = this.layout, now = places.find((place) => place.machine === this.cursor);
    if (event.key === "Enter" && now) this.open?.(null, this.nodes[this.cursor]);
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
    if (machine >= 0) this.announce(this.nodes[machine]);
  }
}
