// The same hosts as a tree grid: what the map shows, for keyboards and screen readers. Only visible rows exist.
import { html, useEffect, useRef, useState } from "./parts.js";
import { lowerBound } from "./layout.js";

const ROW = 26;

export function rowsOf(map, open) {
  const rows = [], depth = map.levels.length, count = map.hosts.length;
  const add = (level, first, last) => {
    if (level === depth) { for (let host = first; host < last; host++) rows.push({ level, name: map.hosts[host], first: host, last: host + 1, leaf: true }); return; }
    const { starts, names } = map.levels[level];
    for (let n = lowerBound(starts, first); n < starts.length && starts[n] < last; n++) {
      const end = n + 1 < starts.length ? starts[n + 1] : count, key = `${level}:${starts[n]}`;
      rows.push({ level, name: names[n], first: starts[n], last: end, key, open: open.has(key) });
      if (open.has(key)) add(level + 1, starts[n], end);
    }
  };
  add(0, 0, count);
  return rows;
}

export function Tree({ map, at, onFocus, onPick }) {
  const [open, setOpen] = useState(new Set());
  const [top, setTop] = useState(0);
  const [row, setRow] = useState(0);
  const ref = useRef(null), wantsFocus = useRef(false);
  const rows = rowsOf(map, open), index = Math.min(row, rows.length - 1);
  useEffect(() => { if (at == null) return; const wanted = new Set(open); map.levels.forEach((level, n) => { const found = lowerBound(level.starts, at + 1) - 1; wanted.add(`${n}:${level.starts[found]}`); }); setOpen(wanted); const next = rowsOf(map, wanted).findIndex((one) => one.leaf && one.first === at); if (next >= 0) { setRow(next); ref.current.scrollTop = Math.max(0, (next - 5) * ROW); } }, [at, map.hosts]);
  useEffect(() => { if (wantsFocus.current) { ref.current.querySelector('[tabindex="0"]')?.focus(); wantsFocus.current = false; } });
  const move = (to) => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    const box = ref.current;
    if (next * ROW < box.scrollTop) box.scrollTop = next * ROW;
    if ((next + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (next + 1) * ROW - box.clientHeight;
    setTop(box.scrollTop); setRow(next); wantsFocus.current = true;
    onFocus?.(rows[next]);
  };
  const flip = (one, to) => { const next = new Set(open); if (to) next.add(one.key); else next.delete(one.key); setOpen(next); wantsFocus.current = true; };
  const pressed = (event) => {
    const one = rows[index];
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -rows.length, End: rows.length };
    if (event.key in steps) move(index + steps[event.key]);
    else if (event.key === "ArrowRight" && one && !one.leaf) one.open ? move(index + 1) : flip(one, true);
    else if (event.key === "ArrowLeft" && one) { if (!one.leaf && one.open) flip(one, false); else { let up = index; while (up > 0 && rows[up].level >= one.level) up--; move(up); } }
    else if ((event.key === "Enter" || event.key === " ") && one) onPick?.(one);
    else return;
    event.preventDefault();
  };
  const first = Math.max(0, Math.floor(top / ROW) - 2), shown = rows.slice(first, first + 20);
  const sums = (one) => { let free = 0, total = 0; for (let host = one.first; host < one.last; host++) { free += map.layers.free[host]; total += map.layers.total[host]; } return [free, total]; };
  return html`<div class="tree" role="treegrid" aria-label="Domains and hosts" aria-rowcount=${rows.length} ref=${ref} onScroll=${(event) => setTop(event.target.scrollTop)} onKeyDown=${pressed}>
    <div role="presentation" style=${{ height: `${rows.length * ROW}px`, position: "relative" }}><div role="rowgroup" style=${{ position: "absolute", left: 0, right: 0, top: `${first * ROW}px` }}>
      ${shown.map((one, n) => { const number = first + n, [free, total] = sums(one); return html`<div class="row" role="row" key=${`${one.level}:${one.first}`} tabindex=${number === index ? 0 : -1} aria-level=${one.level + 1} aria-rowindex=${number + 1} aria-expanded=${one.leaf ? undefined : one.open} aria-selected=${number === index}
          onClick=${() => { setRow(number); onFocus?.(one); if (one.leaf) onPick?.(one); else flip(one, !one.open); }}>
        <span role="gridcell" style=${{ paddingLeft: `${one.level}rem` }}>${one.leaf ? "" : one.open ? "▾ " : "▸ "}${one.name}</span><span role="gridcell" class="right-text">${free} of ${total} free</span><span role="gridcell" class="right-text">${one.leaf ? flagText(map.layers.flags[one.first]) : one.last - one.first}</span></div>`; })}
    </div></div></div>`;
}

export const flagText = (flags) => (!(flags & 1) ? "not ready" : !(flags & 2) ? "cordoned" : flags & 4 ? "reserved" : "");
