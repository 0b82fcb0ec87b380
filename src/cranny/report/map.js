"use strict";
// The map of the cluster: one small square a GPU, or one a machine where the cluster is large.
(() => {
  const { element, number, counted, clock, showTip, hideTip, runs } = window.cranny;
  const MAX_HEIGHT = 600;
  const MAX_LABEL = 120; // longer names of racks are cut
  const card = document.getElementById("map");
  const canvas = document.getElementById("map-canvas");
  const slider = document.getElementById("map-time");
  let map, run = 0, time = 0, layout, now, lit = -1;

  async function unpack() {
    const packed = document.getElementById("map-data").textContent.trim();
    if (!packed || typeof DecompressionStream === "undefined") return null;
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(plain).json();
  }

  // What runs where at the chosen time: for each machine, the job on each slot (-1: idle).
  function moment() {
    const rows = map.runs[run], cluster = map.clusters[rows.cluster];
    const owners = cluster.gpus.map((gpus) => new Int32Array(gpus).fill(-1));
    const spread = new Map();
    let machine = 0;
    for (let row = 0; row < rows.job.length; row += 1) {
      machine += rows.machine_step[row];
      if (rows.first[row] > time || rows.first[row] + rows.count[row] <= time) continue;
      for (const slot of map.masks[rows.mask[row]]) owners[machine][slot] = rows.job[row];
      const place = spread.get(rows.job[row]) ?? { machines: new Set(), gpus: 0 };
      place.machines.add(machine);
      place.gpus += map.masks[rows.mask[row]].length;
      spread.set(rows.job[row], place);
    }
    const held = owners.map((slots) => slots.reduce((sum, job) => sum + (job >= 0), 0));
    return { cluster, owners, held, spread };
  }

  // Where each machine is drawn. Racks flow from left to right; the machines of a rack stand in columns of eight.
  function arrange(cluster, width) {
    const racks = cluster.racks.map(() => []);
    cluster.rack_of.forEach((rack, machine) => racks[rack].push(machine));
    const most = Math.max(...cluster.gpus, 1), across = Math.min(most, 16), down = Math.ceil(most / across);
    const pen = canvas.getContext("2d");
    pen.font = labelFont();
    const label = Math.min(Math.max(...cluster.racks.map((name) => Math.ceil(pen.measureText(name).width))), MAX_LABEL);
    for (let cell = 24; cell >= 4; cell -= 1) {
      const made = flow(racks, width, across * cell, down * cell, cell >= 8 ? 2 : 1, cell >= 6 ? label : 0);
      if (made.height <= MAX_HEIGHT) return { ...made, width, cell, across, gpus: true };
    }
    let made;
    for (let cell = 16; cell >= 2; cell -= 1) {
      made = { ...flow(racks, width, cell, cell, cell >= 5 ? 1 : 0, 0), width, cell, gpus: false };
      if (made.height <= MAX_HEIGHT) break;
    }
    return made;
  }

  // Racks are as wide as their names at least (`named`; 0 for none), so that narrow racks can be told apart.
  function flow(racks, width, wide, high, gap, named) {
    const label = named && racks.length > 1 ? 15 : 0, least = label ? named : 0, between = racks.length > 1 ? Math.max(gap * 5, 3) : 0;
    const blocks = racks.map((machines) => {
      const fit = Math.max(1, Math.floor((width + gap) / (wide + gap)));
      const columns = Math.min(Math.ceil(machines.length / 8), fit) || 1;
      const rows = Math.ceil(machines.length / columns);
      return { machines, rows, width: Math.max(columns * (wide + gap) - gap, least), height: rows * (high + gap) - gap + label };
    });
    // Even rows of racks: as many in each row as in the others, with the spare width shared between them.
    const widest = Math.max(...blocks.map((block) => block.width), 1);
    const even = blocks.every((block) => block.width === widest);
    const fit = Math.max(1, Math.floor((width + between) / (widest + between)));
    const count = Math.ceil(racks.length / Math.ceil(racks.length / fit));
    const spare = even && racks.length > fit && count > 1 ? Math.min((width - count * widest) / (count - 1), 60) : between;
    const places = [], names = [];
    let x = 0, y = 0, tallest = 0;
    blocks.forEach((block, rack) => {
      if (x > 0 && (x + block.width > width + 0.5 || (even && rack % count === 0))) {
        x = 0;
        y += tallest + between + 2;
        tallest = 0;
      }
      if (label) names.push({ rack, x, y: y + 10, width: block.width });
      block.machines.forEach((machine, index) => {
        const column = Math.floor(index / block.rows), row = index % block.rows;
        places.push({ machine, x: x + column * (wide + gap), y: y + label + row * (high + gap), wide, high });
      });
      x += block.width + spare;
      tallest = Math.max(tallest, block.height);
    });
    return { places, names, height: y + tallest };
  }

  // A colour of its own for each job, the same at all times and under all policies.
  const hues = new Map();
  function jobColour(job, shades) {
    if (!hues.has(job)) {
      let hash = 2166136261;
      for (const letter of map.jobs.id[job]) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
      hash = Math.imul(hash ^ (hash >>> 15), 2246822519) >>> 0;
      hues.set(job, [hash % 360, (hash >>> 9) % 3]);
    }
    const [hue, tone] = hues.get(job);
    return `hsl(${hue} ${shades.colour} calc(${shades.light} + ${(tone - 1) * 9}%))`;
  }

  const labelFont = () => `10.5px ${getComputedStyle(document.body).fontFamily}`;

  function shades() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ink: read("--ink"), soft: read("--soft"), card: read("--card"), hole: read("--hole"), blank: read("--blank"),
      light: read("--job-light"), colour: read("--job-colour"),
    };
  }

  function hole(pen, x, y, size, colours) {
    pen.fillStyle = pen.strokeStyle = colours.hole;
    if (size < 6) return pen.fillRect(x, y, size, size);
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    pen.beginPath();
    pen.moveTo(x + 0.5, y + size - 0.5);
    pen.lineTo(x + size - 0.5, y + 0.5);
    return pen.stroke();
  }

  function blank(pen, x, y, wide, high, colours) {
    pen.strokeStyle = colours.blank;
    pen.lineWidth = 1;
    if (Math.min(wide, high) < 9 && wide === high) {
      pen.fillStyle = colours.blank;
      pen.globalAlpha = 0.45;
      pen.fillRect(x, y, wide, high);
      pen.globalAlpha = 1;
    } else pen.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
  }

  function prepare(target, width, height) {
    const ratio = window.devicePixelRatio || 1;
    target.width = Math.round(width * ratio);
    target.height = Math.round(height * ratio);
    target.style.height = `${height}px`;
    const pen = target.getContext("2d");
    pen.scale(ratio, ratio);
    return pen;
  }

  function draw() {
    const colours = shades(), { cell, across } = layout;
    const pen = prepare(canvas, canvas.clientWidth, Math.ceil(layout.height) + 1);
    pen.font = labelFont();
    pen.fillStyle = colours.soft;
    for (const name of layout.names) {
      let text = now.cluster.racks[name.rack];
      while (text.length > 1 && pen.measureText(text).width > name.width) text = `${text.slice(0, -2)}…`;
      pen.fillText(text, name.x, name.y);
    }
    for (const { machine, x, y, wide, high } of layout.places) {
      const slots = now.owners[machine], used = now.held[machine];
      if (used === 0) {
        const columns = layout.gpus ? Math.min(slots.length, across) * cell : wide;
        blank(pen, x, y, columns - (layout.gpus ? 1 : 0), high - (layout.gpus && cell >= 6 ? 1 : 0), colours);
      } else if (!layout.gpus) {
        const full = high * used / slots.length;
        pen.fillStyle = colours.hole;
        pen.fillRect(x, y, wide, high - full);
        pen.fillStyle = "#5b9bb5";
        pen.fillRect(x, y + high - full, wide, full);
        if (lit >= 0 && slots.includes(lit)) {
          pen.strokeStyle = colours.ink;
          pen.lineWidth = 2;
          pen.strokeRect(x, y, wide, high);
        }
      } else {
        slots.forEach((job, slot) => {
          const left = x + (slot % across) * cell, top = y + Math.floor(slot / across) * cell;
          const size = cell >= 5 ? cell - 1 : cell;
          if (job < 0) return hole(pen, left, top, size, colours);
          pen.fillStyle = jobColour(job, colours);
          pen.globalAlpha = lit >= 0 && lit !== job ? 0.3 : 1;
          pen.fillRect(left, top, size, size);
          pen.globalAlpha = 1;
          if (lit === job) {
            pen.strokeStyle = colours.ink;
            pen.lineWidth = 1.5;
            pen.strokeRect(left + 0.5, top + 0.5, size - 1, size - 1);
          }
          return undefined;
        });
      }
    }
  }

  function describe() {
    const used = now.held.filter((held) => held > 0).length;
    const held = now.held.reduce((sum, each) => sum + each, 0);
    const on = now.cluster.gpus.reduce((sum, gpus, machine) => sum + (now.held[machine] > 0 ? gpus : 0), 0);
    const share = on ? ` (${number((on - held) / on * 100, 1)} % of the GPUs there)` : "";
    document.getElementById("map-readout").textContent =
      `${runs[run].label}: ${number(used, 0)} of ${counted(now.held.length, "machine")} used by ` +
      `${counted(now.spread.size, "job")} that ${now.spread.size === 1 ? "holds" : "hold"} ${counted(held, "GPU")}; ` +
      `${counted(on - held, "GPU")} idle on used machines${share}.`;
    document.getElementById("map-clock").textContent = clock(map.times_s[time]);
    slider.setAttribute("aria-valuetext", clock(map.times_s[time]));
  }

  function refresh() {
    now = moment();
    layout = arrange(now.cluster, canvas.clientWidth);
    lit = -1;
    draw();
    describe();
    drawKey();
  }

  function drawKey() {
    const entry = (text, paint) => {
      const span = element("span"), box = element("canvas");
      span.append(box, text);
      paint(prepare(box, 14, 14), shades());
      return span;
    };
    const sample = (pen, colours) => {
      pen.fillStyle = layout.gpus ? `hsl(205 ${colours.colour} ${colours.light})` : "#5b9bb5";
      pen.fillRect(1, 1, 12, 12);
    };
    document.getElementById("map-key").replaceChildren(...(layout.gpus ? [
      entry("GPU held by a job; one colour a job", sample),
      entry("fragment: idle GPU on a used machine", (pen, colours) => hole(pen, 1, 1, 12, colours)),
      entry("idle machine", (pen, colours) => blank(pen, 1, 1, 12, 12, colours)),
    ] : [
      entry("machine; filled as far as its GPUs are held", sample),
      entry("share of its GPUs that is idle (fragment)", (pen, colours) => {
        pen.fillStyle = colours.hole;
        pen.fillRect(1, 1, 12, 12);
      }),
      entry("idle machine", (pen, colours) => blank(pen, 3, 3, 8, 8, colours)),
    ]));
  }

  function jobParts(job) {
    const place = now.spread.get(job), machines = place.machines.size;
    const model = map.models[map.jobs.model[job]];
    const parts = [element("div", "top", /^job/i.test(map.jobs.id[job]) ? map.jobs.id[job] : `job ${map.jobs.id[job]}`)];
    if (model) parts.push(element("div", "", model));
    parts.push(element("div", "", `${counted(place.gpus, "GPU")} on ${counted(machines, "machine")}`));
    return parts;
  }

  function hover(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const at = layout.places.find((place) =>
      x >= place.x && x < place.x + place.wide && y >= place.y && y < place.y + place.high);
    let job = -1;
    if (!at) hideTip();
    else {
      const { machine } = at, { cluster } = now, slots = now.owners[machine];
      const type = cluster.gpu_types[cluster.gpu_type[machine]];
      const rack = cluster.racks[cluster.rack_of[machine]];
      const where = element("div", "note", `${cluster.machines[machine]}${rack ? `, ${rack}` : ""}${type ? `, ${type}` : ""}`);
      const state = element("div", "", `${now.held[machine]} of ${counted(slots.length, "GPU")} held`);
      let parts;
      if (layout.gpus) {
        const slot = Math.floor((y - at.y) / layout.cell) * layout.across + Math.floor((x - at.x) / layout.cell);
        if (slot >= slots.length) parts = [];
        else if (slots[slot] >= 0) {
          job = slots[slot];
          parts = jobParts(job);
        } else parts = [element("div", "top", now.held[machine] ? `GPU ${slot} is idle` : "idle machine")];
      } else {
        const jobs = [...new Set(slots.filter((each) => each >= 0))];
        parts = jobs.slice(0, 4).flatMap(jobParts);
        if (jobs.length > 4) parts.push(element("div", "note", `and ${jobs.length - 4} more jobs`));
        if (jobs.length === 1) [job] = jobs;
      }
      showTip([...parts, where, state], event.clientX, event.clientY);
    }
    if (job !== lit) {
      lit = job;
      draw();
    }
  }

  function leave() {
    hideTip();
    if (lit < 0) return;
    lit = -1;
    draw();
  }

  unpack().then((unpacked) => {
    if (!unpacked) return;
    map = unpacked;
    time = map.shown;
    document.getElementById("map-missing").hidden = true;
    card.hidden = false;
    slider.max = String(map.times_s.length - 1);
    slider.value = String(time);
    run = Number(document.querySelector(".choices input:checked").value);
    slider.addEventListener("input", () => { time = Number(slider.value); refresh(); });
    for (const choice of document.querySelectorAll(".choices input")) {
      choice.addEventListener("change", () => { run = Number(choice.value); refresh(); });
    }
    refresh();
    canvas.addEventListener("pointermove", hover);
    canvas.addEventListener("pointerdown", hover);
    canvas.addEventListener("pointerleave", leave);
    new ResizeObserver(() => requestAnimationFrame(() => { if (canvas.clientWidth !== layout.width) refresh(); })).observe(card);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
    card.dataset.ready = "yes";
  });
})();
