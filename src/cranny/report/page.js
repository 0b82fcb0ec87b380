"use strict";
// Sorting, legend, crosshair and map of the report. No text from the data ever becomes markup: textContent only.
(() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const tip = document.getElementById("tip");
  const SVG = "http://www.w3.org/2000/svg";
  const hidden = new Set();

  function element(tag, kind, text) {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function number(value, places) {
    return value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  }

  function counted(count, noun) {
    return `${number(count, 0)} ${noun}${count === 1 ? "" : "s"}`;
  }

  function duration(seconds) {
    const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
    for (const [unit, size] of units) {
      if (seconds >= 2 * size) return `${number(seconds / size, seconds / size < 10 ? 1 : 0)} ${unit}`;
    }
    return `${Number(seconds.toPrecision(2))} s`;
  }

  function clock(seconds) {
    const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24;
    const minutes = Math.floor(seconds / 60) % 60;
    if (days) return `${days} d ${hours} h ${minutes} min`;
    if (hours) return `${hours} h ${minutes} min`;
    return minutes ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Number(seconds.toFixed(1))} s`;
  }

  // A moment: its date where the trace has dates, else the time since the first arrival.
  function moment(seconds) {
    if (data.zero_epoch_s === null) return clock(seconds);
    let ahead = 0;
    for (const [since, offset] of data.offsets) if (since <= seconds) ahead = offset;
    return new Date((data.zero_epoch_s + seconds + ahead) * 1000).toISOString().slice(0, 16).replace("T", " ");
  }

  function amount(value, format) {
    const shown = value * format.factor;
    const places = format.places ?? (Math.abs(shown) >= 100 ? 0 : Math.abs(shown) >= 10 ? 1 : 2);
    return number(shown, places) + format.suffix;
  }

  // Hover text ------------------------------------------------------------------------------------------------

  function showTip(parts, x, y) {
    tip.replaceChildren(...parts);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth - 8 ? x - box.width - 16 : x + 16;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, Math.min(y + 12, innerHeight - box.height - 8))}px`;
  }

  function hideTip() { tip.hidden = true; }

  function swatch(run) {
    return document.querySelector(`.legend [data-run="${run}"] svg`).cloneNode(true);
  }

  function tipRow(run, text) {
    const row = element("div", "row");
    row.append(swatch(run), element("span", "", data.runs[run].label), element("b", "", text));
    return row;
  }

  // Table -----------------------------------------------------------------------------------------------------

  const table = document.querySelector("table.summary");
  const body = table.tBodies[0];
  for (const head of table.querySelectorAll("th[data-column]")) {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const place = Number(head.dataset.column);
      // The first click puts the best on top; where nothing is best, the least.
      const now = head.getAttribute("aria-sort");
      const first = head.dataset.better === "higher" ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = now === first ? other : first;
      for (const each of table.querySelectorAll("[aria-sort]")) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const value = (row) => row.cells[place].dataset.value;
      const rows = [...body.rows].sort((a, b) => {
        if (place === 0) return sign * value(a).localeCompare(value(b));
        if (value(a) === "" || value(b) === "") return (value(a) === "") - (value(b) === "");
        return sign * (Number(value(a)) - Number(value(b)));
      });
      body.append(...rows);
    });
    const explain = () => {
      const text = head.dataset.explain;
      if (!text) return;
      const box = button.getBoundingClientRect();
      showTip([element("div", "top", head.dataset.title), element("div", "note", text)], box.left, box.bottom);
    };
    button.addEventListener("pointerenter", explain);
    button.addEventListener("focus", explain);
    button.addEventListener("pointerleave", hideTip);
    button.addEventListener("blur", hideTip);
  }

  // Legend ----------------------------------------------------------------------------------------------------

  const area = document.querySelector(".with-legend");
  for (const button of document.querySelectorAll(".legend button")) {
    const run = Number(button.dataset.run);
    const parts = area.querySelectorAll(`.chart [data-run="${run}"]`);
    const light = (on) => {
      area.classList.toggle("focus", on && !hidden.has(run));
      for (const part of parts) part.classList.toggle("lit", on);
    };
    button.addEventListener("click", () => {
      if (hidden.has(run)) hidden.delete(run); else hidden.add(run);
      button.setAttribute("aria-pressed", String(!hidden.has(run)));
      for (const part of parts) part.classList.toggle("off", hidden.has(run));
      light(!hidden.has(run));
    });
    button.addEventListener("pointerenter", () => light(true));
    button.addEventListener("pointerleave", () => light(false));
    button.addEventListener("blur", () => light(false));
  }

  // Charts ----------------------------------------------------------------------------------------------------

  function axes(svg) {
    const read = (name) => Number(svg.dataset[name]);
    const [left, right, top, bottom] = ["left", "right", "top", "bottom"].map(read);
    const [low, high] = [read("xLow"), read("xHigh")], log = svg.dataset.xLog === "1";
    const [under, over] = [read("yLow"), read("yHigh")];
    const clamp = (share) => Math.min(Math.max(share, 0), 1);
    return {
      top, bottom,
      value(x) {
        const share = clamp((x - left) / (right - left));
        return log ? low * (high / low) ** share : low + share * (high - low);
      },
      x(value) {
        const share = log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
        return left + clamp(share) * (right - left);
      },
      y(value) { return bottom - clamp((value - under) / (over - under)) * (bottom - top); },
    };
  }

  function cross(svg, scale, x, dots) {
    let group = svg.querySelector("g.hover");
    if (!group) {
      group = document.createElementNS(SVG, "g");
      group.setAttribute("class", "hover");
      svg.append(group);
    }
    const upright = document.createElementNS(SVG, "path");
    upright.setAttribute("class", "cross");
    upright.setAttribute("d", `M${x.toFixed(1)} ${scale.top}V${scale.bottom}`);
    group.replaceChildren(upright, ...dots.map(([run, y]) => {
      const dot = document.createElementNS(SVG, "circle");
      dot.setAttribute("class", "dot");
      dot.setAttribute("cx", x.toFixed(1));
      dot.setAttribute("cy", y.toFixed(1));
      dot.setAttribute("r", data.runs[run].strong ? 4.5 : 3.5);
      dot.style.fill = `var(--run-${run})`;
      return dot;
    }));
  }

  function uncross() {
    for (const group of area.querySelectorAll("g.hover")) group.remove();
    hideTip();
  }

  const figures = [...area.querySelectorAll("figure")].map((figure) => {
    const svg = figure.querySelector("svg.chart");
    const kind = figure.dataset.chart;
    return { svg, scale: axes(svg), timed: kind in data.time, spec: data.time[kind] ?? data.cdf[kind] };
  });

  // The slice nearest to a place in which something is known, or the next one in some direction.
  function knownPlace(figure, place, way) {
    const known = (at) => figure.spec.lines.some((line, run) => !hidden.has(run) && (line[at] ?? null) !== null);
    const count = data.times_s.length;
    for (let far = 0; far < count; far += 1) {
      for (const side of way ? [way] : [-1, 1]) {
        const at = place + side * far;
        if (at >= 0 && at < count && known(at)) return at;
      }
    }
    return null;
  }

  function shareAt(line, value) {
    let low = 0, high = line.x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      // Stored values are rounded to four digits; without some slack the last would lie outside the frame.
      if (line.x[middle] <= value * 1.001) low = middle + 1; else high = middle;
    }
    return low ? line.y[low - 1] : 0;
  }

  function readings(figure, place, value) {
    return figure.spec.lines.map((line, run) => {
      if (hidden.has(run)) return [run, null];
      if (figure.timed) return [run, line[place]];
      return [run, line.x.length ? shareAt(line, value) : null];
    }).filter(([, reading]) => reading !== null);
  }

  function point(figure, value, client, way = 0) {
    const { svg, scale, timed } = figure;
    const step = data.times_s.length > 1 ? data.times_s[1] - data.times_s[0] : 1;
    let place = Math.min(Math.max(Math.floor(value / step), 0), data.times_s.length - 1);
    if (timed) place = knownPlace(figure, place, way);
    if (place === null) return;
    const at = timed ? data.times_s[place] : value;
    figure.at = at;
    for (const each of figures) {
      if (each !== figure && !(timed && each.timed)) {
        each.svg.querySelector("g.hover")?.remove();
        continue;
      }
      const dots = readings(each, place, at).map(([run, reading]) => [run, each.scale.y(reading)]);
      cross(each.svg, each.scale, each.scale.x(at), dots);
    }
    const found = readings(figure, place, at).sort((a, b) => b[1] - a[1]);
    const format = timed ? figure.spec.format : { factor: 100, suffix: " %", places: 1 };
    const top = timed ? moment(at) : `≤ ${duration(at)}`;
    const box = svg.getBoundingClientRect();
    const x = client ? client.clientX : box.left + scale.x(at) / svg.viewBox.baseVal.width * box.width;
    showTip([element("div", "top", top), ...found.map(([run, reading]) => tipRow(run, amount(reading, format)))],
      x, client ? client.clientY : box.top + 20);
  }

  for (const figure of figures) {
    const { svg, scale } = figure;
    const width = svg.viewBox.baseVal.width;
    const follow = (event) => {
      const box = svg.getBoundingClientRect();
      point(figure, scale.value((event.clientX - box.left) / box.width * width), event);
    };
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", uncross);
    svg.addEventListener("blur", uncross);
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      const now = figure.at === undefined ? width / 2 : scale.x(figure.at);
      point(figure, scale.value(now + way * (event.shiftKey ? 25 : 2.6)), null, way);
    });
  }
  window.cranny = { element, number, counted, clock, showTip, hideTip, runs: data.runs };
})();
