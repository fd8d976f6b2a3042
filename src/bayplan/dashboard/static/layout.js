// Where each host is on the map: domains are boxes of boxes, and the smallest boxes hold hosts, one cell each.
const GAP = [1, 2, 4, 6, 8], HEAD = 1, WIDE = 1.7;

// map: { hosts, levels: [{ starts, names }] } from the widest level down.
// Returns { width, height, x, y, boxes: [per level [{ name, first, last, x, y, w, h }]] }.
export function place(map) {
  const count = map.hosts.length;
  const x = new Int32Array(count), y = new Int32Array(count);
  const boxes = map.levels.map(() => []);
  const depth = map.levels.length;
  const end = (level, n) => (n + 1 < map.levels[level].starts.length ? map.levels[level].starts[n + 1] : count);

  function hostsBox(first, last) {
    const n = last - first;
    const w = n <= 4 ? n : Math.max(1, Math.ceil(Math.sqrt(n * 1.6)));
    return { w: Math.max(1, w), h: Math.max(1, Math.ceil(n / Math.max(1, w))), first, last, inner: null };
  }
  function box(level, first, last) { // everything below a domain, as yet without a position
    if (level === depth) return hostsBox(first, last);
    const { starts } = map.levels[level];
    let n = lowerBound(starts, first);
    const inner = [];
    for (; n < starts.length && starts[n] < last; n++) {
      const part = box(level + 1, starts[n], end(level, n));
      inner.push({ ...part, level, n, first: starts[n], last: end(level, n) });
    }
    const gap = GAP[Math.min(depth - 1 - level, GAP.length - 1)];
    const area = inner.reduce((sum, one) => sum + (one.w + gap) * (one.h + gap), 0);
    const widest = Math.max(1, ...inner.map((one) => one.w)), wished = Math.sqrt(area * WIDE);
    const head = level > 0 || depth > 1 ? HEAD : 0; // a line for the names of the domains inside
    // Of a few widths, the one that leaves the least of a page empty.
    const tried = [0.8, 1, 1.2, 1.5].map((factor) => Math.max(widest, Math.round(wished * factor)));
    const size = (target) => { const { w, h } = shelves(inner, target, gap, head); return Math.max(w / WIDE, h); };
    const { w, h } = shelves(inner, tried.reduce((best, one) => (size(one) < size(best) ? one : best)), gap, head);
    return { w, h, first, last, inner };
  }
  function shelves(inner, target, gap, head) { // boxes in rows of at most this width
    let atX = 0, atY = 0, shelf = 0, w = 0;
    for (const one of inner) {
      if (atX && atX + one.w > target) { atX = 0; atY += shelf + gap + head; shelf = 0; }
      one.x = atX; one.y = atY + head;
      atX += one.w + gap; shelf = Math.max(shelf, one.h); w = Math.max(w, one.x + one.w);
    }
    return { w, h: atY + shelf + head };
  }
  function settle(part, left, top) {
    if (!part.inner) {
      for (let host = part.first; host < part.last; host++) {
        x[host] = left + ((host - part.first) % part.w);
        y[host] = top + Math.floor((host - part.first) / part.w);
      }
      return;
    }
    for (const one of part.inner) {
      boxes[one.level].push({ name: map.levels[one.level].names[one.n], first: one.first, last: one.last, x: left + one.x, y: top + one.y, w: one.w, h: one.h });
      settle(one, left + one.x, top + one.y);
    }
  }
  const whole = box(0, 0, count);
  settle(whole, 1, 1);
  return { width: whole.w + 2, height: whole.h + 2, x, y, boxes };
}

export function lowerBound(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] < wanted) low = middle + 1; else high = middle; }
  return low;
}
