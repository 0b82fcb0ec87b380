// Colours: of the theme as the canvas needs them, and one for each job.

const probe = document.createElement("i");
const NAMES = ["ink", "soft", "card", "page", "rule", "grid", "hole", "blank", "alarm", "link", "strong", "track",
  "heat-0", "heat-1", "heat-2", "heat-3", "heat-4", "heat-5", "heat-6"];
let read = null;

// The canvas knows no CSS variables: let the browser compute them, once for each theme.
export function shades() {
  if (read) return read;
  probe.hidden = true;
  document.body.append(probe);
  read = {};
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    read[name] = getComputedStyle(probe).color;
  }
  const style = getComputedStyle(document.documentElement);
  read.font = getComputedStyle(document.body).fontFamily;
  const asked = matchMedia("(prefers-color-scheme: dark)").matches;
  read.dark = style.colorScheme === "dark" || (style.colorScheme !== "light" && asked);
  probe.remove();
  known.clear();
  return read;
}

export function forgetShades() {
  read = null;
}

const known = new Map();

// The number of a job, which is in its id; other ids get one from their letters.
function numberOf(id) {
  const numbered = /^job-(\d+)$/.exec(id);
  if (numbered) return Number(numbered[1]);
  let hash = 2166136261;
  for (const letter of id) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
  return hash % 100_000;
}

// Jobs that come one after the other often stand side by side. Hues a golden angle apart are far from each other for
// neighbours; where they come close again (8, 13, 21, ... jobs later) the lightness, which goes round in five steps,
// differs.
const GOLDEN = 137.50776;

// The fill of a job's GPUs, and the ink that can be read on it.
export function jobColour(id) {
  const { dark } = shades();
  if (!known.has(id)) {
    const number = numberOf(id), hue = (205 + number * GOLDEN) % 360;
    const light = (dark ? 50 : 62) + (number % 5 - 2) * 6, full = dark ? 44 : 50;
    known.set(
      id,
      {
        fill: `hsl(${hue.toFixed(1)} ${full}% ${light}%)`,
        ink: luminance(hue, full / 100, light / 100) > 0.179 ? "#000" : "#fff",
      },
    );
  }
  return known.get(id);
}

function luminance(hue, full, light) {
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    const value = light - full * Math.min(light, 1 - light) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * part(0) + 0.7152 * part(8) + 0.0722 * part(4);
}

// How hot a share of a capacity is, from 0 (nothing) to 6 (full), with the steps of the network report.
export function heat(share) {
  if (!(share > 0.0005)) return 0;
  return [0.1, 0.25, 0.5, 0.75, 0.95].filter((step) => share >= step).length + 1;
}
