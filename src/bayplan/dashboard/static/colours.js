// The colour and the letter of a host in each layer. Colours are told apart by lightness too, and every state
// that matters has a letter, so that nothing is said by colour alone.
export const LAYERS = { free: "free GPUs", gang: "gangs", queue: "queues", health: "health", zones: "NUMA zones", reserved: "reserved" };
export const HIDDEN = 0xffffffff;
const READY = 1, SCHEDULABLE = 2, RESERVED = 4;
const SET = [[0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [213, 94, 0], [240, 228, 66], [120, 94, 240], [148, 103, 60], [90, 160, 60], [170, 68, 153], [100, 143, 255]];
const NONE = { light: [222, 227, 231], dark: [52, 62, 71] };
const GREY = { light: [120, 130, 138], dark: [140, 150, 158] };
const BAD = { light: [120, 0, 60], dark: [255, 120, 170] };
const WARN = { light: [176, 110, 0], dark: [245, 190, 80] };

export function theme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

// used → free: dark to light in one hue, reversed in the dark theme.
function ramp(part, mode) {
  const [from, to] = mode === "dark" ? [[24, 40, 52], [130, 214, 200]] : [[16, 62, 86], [196, 233, 226]];
  return from.map((value, n) => Math.round(value + (to[n] - value) * part));
}
const hash = (text) => { let n = 7; for (let i = 0; i < text.length; i++) n = (n * 31 + text.charCodeAt(i)) >>> 0; return n; };
export const gangColour = (id) => SET[(id * 7) % SET.length];

export function paint(layer, map, gangs, host, mode) {
  const { free, total, flags, gang, zones } = map.layers;
  const state = flags[host];
  const letter = !(state & READY) ? "x" : !(state & SCHEDULABLE) ? "c" : "";
  if (layer === "health") return letter === "x" ? [BAD[mode], "x"] : letter ? [WARN[mode], "c"] : [ramp(0.75, mode), ""];
  if (letter === "x") return [BAD[mode], "x"];
  if (layer === "free") return [total[host] ? ramp(free[host] / total[host], mode) : NONE[mode], letter || String(free[host])];
  if (layer === "reserved") return state & RESERVED ? [WARN[mode], "R"] : [NONE[mode], letter];
  if (layer === "zones") { const all = zones[host] >> 4; return all ? [ramp((zones[host] & 15) / all, mode), String(zones[host] & 15)] : [NONE[mode], ""]; }
  const id = gang[host];
  if (!id) return [NONE[mode], letter];
  if (id === HIDDEN) return [GREY[mode], "?"];
  if (layer === "gang") return [gangColour(id), letter || (gangs.get(id)?.gang.name || "?")[0].toUpperCase()];
  const entry = gangs.get(id)?.gang;
  const queue = entry?.clusterQueue || entry?.queue || "";
  return queue ? [SET[hash(queue) % SET.length], queue[0].toUpperCase()] : [GREY[mode], "-"];
}

export function legend(layer, mode) {
  const health = [[BAD[mode], "x", "not ready"], [WARN[mode], "c", "cordoned"]];
  if (layer === "free") return [[ramp(0, mode), "0", "all in use"], [ramp(1, mode), "8", "all free"], ...health.slice(0, 1)];
  if (layer === "health") return [[ramp(0.75, mode), "", "ready"], ...health];
  if (layer === "reserved") return [[WARN[mode], "R", "reserved for a pending gang"], [NONE[mode], "", "not reserved"]];
  if (layer === "zones") return [[ramp(1, mode), "2", "zones with free resources"], [NONE[mode], "", "reports no zones"]];
  return [[SET[0], "A", `one colour and letter for each ${layer}`], [NONE[mode], "", "no gang"], [GREY[mode], layer === "gang" ? "?" : "-", layer === "gang" ? "a gang you may not see" : "in no queue"], ...health.slice(0, 1)];
}
