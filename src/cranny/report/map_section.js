// The report's map: which job holds which GPU under one policy at one of the packed times.
const { element, number, counted, clock, showTip, hideTip, runs } = window.cranny;
const byId = (id) => document.getElementById(id);
const slider = byId("map-time"), canvas = byId("map-canvas");
let packed, run = 0, time = 0, now;

async function unpack() {
  const text = byId("map-data").textContent.trim();
  if (!text || typeof DecompressionStream === "undefined") return null;
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).json();
}

// What runs where at the chosen time: the machines as the map shows them, and how far each job is spread.
function moment() {
  const rows = packed.runs[run], cluster = packed.clusters[rows.cluster];
  const nodes = cluster.gpus.map((gpus, at) => ({
    name: cluster.machines[at], rack: cluster.racks[cluster.rack_of[at]], gpu_type: cluster.gpu_types[cluster.gpu_type[at]],
    state: "up", gpus, free: gpus, slots: new Array(gpus).fill(null),
  }));
  const spread = new Map();
  let at = 0;
  for (let row = 0; row < rows.job.length; row += 1) {
    at += rows.machine_step[row];
    if (rows.first[row] > time || rows.first[row] + rows.count[row] <= time) continue;
    const id = packed.jobs.id[rows.job[row]], slots = packed.masks[rows.mask[row]];
    for (const slot of slots) nodes[at].slots[slot] = id;
    nodes[at].free -= slots.length;
    const job = spread.get(id) ?? { model: packed.models[packed.jobs.model[rows.job[row]]], machines: new Set(), gpus: 0 };
    job.machines.add(at);
    job.gpus += slots.length;
    spread.set(id, job);
  }
  return { nodes, spread };
}

function jobLines(id) {
  const { model, machines, gpus } = now.spread.get(id);
  const lines = [element("div", "top", /^job/i.test(id) ? id : `job ${id}`)];
  if (model) lines.push(element("div", "", model));
  return [...lines, element("div", "", `${counted(gpus, "GPU")} on ${counted(machines.size, "machine")}`)];
}

const whereIs = (node) => [node.name, node.rack, node.gpu_type].filter(Boolean).join(", ");
const heldOn = (node) => `${node.gpus - node.free} of ${counted(node.gpus, "GPU")} held`;

function hoverLines({ node, slot, job }) {
  const jobs = [...new Set(node.slots.filter((each) => each !== null))];
  let lines = [];
  if (job !== null) lines = jobLines(job);
  else if (slot >= 0 && slot < node.gpus) lines = [element("div", "top", jobs.length ? `GPU ${slot} is idle` : "idle machine")];
  else if (slot < 0) lines = jobs.slice(0, 4).flatMap(jobLines);
  if (slot < 0 && jobs.length > 4) lines.push(element("div", "note", `and ${jobs.length - 4} more jobs`));
  return [...lines, element("div", "note", whereIs(node)), element("div", "", heldOn(node))];
}

const map = new ClusterMap(canvas, {
  tallest: 600, bars: false, hideTip,
  showTip: (found, event) => showTip(hoverLines(found), event.clientX, event.clientY),
  announce: (node) => { byId("map-said").textContent = `${whereIs(node)}; ${heldOn(node)}`; },
});

function describe() {
  const used = now.nodes.filter((node) => node.free < node.gpus);
  const idle = used.reduce((sum, node) => sum + node.free, 0), on = used.reduce((sum, node) => sum + node.gpus, 0);
  const share = on ? ` (${number(idle / on * 100, 1)} % of the GPUs there)` : "";
  byId("map-readout").textContent =
    `${runs[run].label}: ${number(used.length, 0)} of ${counted(now.nodes.length, "machine")} used by ` +
    `${counted(now.spread.size, "job")} that ${now.spread.size === 1 ? "holds" : "hold"} ${counted(on - idle, "GPU")}; ` +
    `${counted(idle, "GPU")} idle on used machines${share}.`;
  byId("map-clock").textContent = clock(packed.times_s[time]);
  slider.setAttribute("aria-valuetext", clock(packed.times_s[time]));
  byId("map-key-gpus").hidden = !map.layout.gpus;
  byId("map-key-machines").hidden = map.layout.gpus;
}

function refresh() {
  now = moment();
  map.show(now.nodes);
  describe();
}

unpack().then((unpacked) => {
  if (!unpacked) return;
  packed = unpacked;
  time = packed.shown;
  byId("map-missing").hidden = true;
  byId("map").hidden = false;
  slider.max = String(packed.times_s.length - 1);
  slider.value = String(time);
  run = Number(document.querySelector(".choices input:checked").value);
  slider.addEventListener("input", () => { time = Number(slider.value); refresh(); });
  for (const choice of document.querySelectorAll(".choices input")) {
    choice.addEventListener("change", () => { run = Number(choice.value); refresh(); });
  }
  refresh();
  new ResizeObserver(() => requestAnimationFrame(() => { map.resize(); describe(); })).observe(byId("map"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetShades(); map.redraw(); });
  byId("map").dataset.ready = "yes";
});
