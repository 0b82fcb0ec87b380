// Where each machine of the map is drawn: racks flow from left to right, the machines of a rack stand in columns.

const CELLS = [46, 42, 38, 34, 30, 26, 22, 20, 18, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4];
const SQUARES = [16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2];
const MODEST = 400; // large cells may not take more height than this
const WIDEST = 4; // times as wide as high
const DEPTHS = [8, 16, 4, 2, 32, 128, 512]; // machines in a column of a rack

// The largest cells that fit; of those the arrangement that is least high.
export function arrange(racks, most, width, tallest, bars = true) {
  const across = Math.min(most, 16), down = Math.ceil(most / across);
  for (const cell of CELLS) {
    const head = cell >= 18 ? 17 : 0;
    const bar = bars ? (cell >= 18 ? 6 : cell >= 8 ? 4 : 2) : 0;
    const gap = cell >= 18 ? 10 : cell >= 8 ? 3 : 1;
    const size = (wide) => ({
      wide: across * wide + (bar ? bar + 1 : 0), high: down * cell + head, gap, named: cell >= 6,
    });
    const made = least(racks, width, cell > 26 ? Math.min(tallest, MODEST) : tallest, size(cell));
    if (!made) continue;
    // Where there is width to spare cells get wider than high.
    for (let wide = WIDEST * cell; wide > cell; wide -= 1) {
      const wider = least(racks, width, made.height, size(wide));
      if (wider) return { ...wider, width, cell, wide, across, head, bar, gpus: true };
    }
    return { ...made, width, cell, wide: cell, across, head, bar, gpus: true };
  }
  let made;
  for (const cell of SQUARES) {
    made = least(
      racks, width, cell > 2 ? tallest : Infinity,
      { wide: cell, high: cell, gap: cell >= 5 ? 1 : 0, named: false },
    );
    if (made) return { ...made, width, cell, wide: cell, across: 1, head: 0, bar: 0, gpus: false };
  }
  return { places: [], labels: [], height: 0, width, cell: 2, wide: 2, across: 1, head: 0, bar: 0, gpus: false };
}

function least(racks, width, tallest, size) {
  let best = null;
  for (const depth of DEPTHS) {
    const made = flow(racks, width, size, depth);
    if (made && made.height <= tallest && (!best || made.height < best.height - 1)) best = made;
  }
  return best;
}

function flow(racks, width, { wide, high, gap, named }, depth) {
  const label = named && racks.length > 1 ? 19 : 0, between = racks.length > 1 ? Math.max(gap * 2.4, 4) : 0;
  // Racks are as wide as their names at least, so that the names of narrow racks can be read.
  const blocks = racks.map(({ machines, nameWidth = 0 }) => {
    const columns = Math.max(1, Math.ceil(machines.length / depth)), deep = Math.ceil(machines.length / columns);
    const narrowest = label && nameWidth;
    return {
      machines, deep, width: Math.max(columns * (wide + gap) - gap, narrowest),
      height: deep * (high + gap) - gap + label,
    };
  });
  const widest = Math.max(...blocks.map((block) => block.width), 1);
  if (widest > width) return null;
  const fit = Math.floor((width + between) / (widest + between));
  const count = Math.ceil(racks.length / Math.ceil(racks.length / fit)); // as many racks in each row as in the others
  const spare = racks.length > fit ? Math.min(
    (width - count * widest) / Math.max(count - 1, 1), between * 2.5,
  ) : between;
  const places = [], labels = [];
  let x = 0, y = 0, tall = 0;
  blocks.forEach((block, rack) => {
    if (rack > 0 && rack % count === 0) {
      x = 0;
      y += tall + between + 2;
      tall = 0;
    }
    if (label) labels.push({ rack, x, y, width: block.width });
    block.machines.forEach((machine, index) => {
      const column = Math.floor(index / block.deep), row = index % block.deep;
      places.push({
        machine, x: Math.round(x + column * (wide + gap)), y: Math.round(y + label + row * (high + gap)),
        wide, high,
      });
    });
    x += widest + spare;
    tall = Math.max(tall, block.height);
  });
  return { places, labels, height: y + tall };
}
