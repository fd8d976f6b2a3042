// The map: one pixel per host in an off-screen picture, drawn enlarged; borders, names and letters on top.
import { html, useEffect, useRef, useState } from "./parts.js";
import { LAYERS, legend, paint, theme } from "./colours.js";
import { place } from "./layout.js";

const LETTER_PIXELS = 12, NAME_PIXELS = 70, BOX_PIXELS = 26, GRID_PIXELS = 5;

export class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.small = document.createElement("canvas");
    this.view = { scale: 1, x: 0, y: 0 };
    this.lit = null;
    this.glow = [];
    this.frames = [];
    this.asked = false;
  }
  show(map, gangs, layer) {
    const moved = !this.map || this.map.hosts !== map.hosts;
    Object.assign(this, { map, gangs, layer });
    if (moved) {
      this.layout = place(map);
      this.small.width = this.layout.width; this.small.height = this.layout.height;
      this.image = new ImageData(this.layout.width, this.layout.height);
      this.cells = new Map();
      this.fit();
    }
    this.repaint();
  }
  light(hosts, glow = []) {
    const same = !this.lit && !hosts;
    this.lit = hosts; this.glow = glow;
    if (same) this.draw(); else this.repaint();
  }
  fit() {
    const { width, height } = this.canvas.getBoundingClientRect();
    this.fitted = true;
    if (!width || !this.layout) return;
    const scale = Math.min(width / this.layout.width, height / this.layout.height);
    this.view = { scale, x: (width - this.layout.width * scale) / 2, y: (height - this.layout.height * scale) / 2 };
    this.draw();
  }
  repaint(hosts = null) {
    if (!this.image) return;
    const mode = theme(), { data, width } = this.image, { x, y } = this.layout;
    const one = (host) => {
      const [colour] = paint(this.layer, this.map, this.gangs, host, mode);
      const faint = this.lit && !this.lit.has(host) ? 70 : 255, at = 4 * (y[host] * width + x[host]);
      data[at] = colour[0]; data[at + 1] = colour[1]; data[at + 2] = colour[2]; data[at + 3] = faint;
    };
    if (hosts) for (const host of hosts) one(host);
    else for (let host = 0; host < x.length; host++) one(host);
    this.stale = true;
    this.draw();
  }
  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      const began = performance.now();
      this.drawNow();
      this.frames.push(performance.now() - began);
      if (this.frames.length > 1000) this.frames.shift();
    });
  }
  drawNow() {
    if (!this.image) return;
    if (this.stale) { this.small.getContext("2d").putImageData(this.image, 0, 0); this.stale = false; }
    const box = this.canvas.getBoundingClientRect(), dots = devicePixelRatio || 1;
    const wide = Math.round(box.width * dots), high = Math.round(box.height * dots);
    if (this.canvas.width !== wide || this.canvas.height !== high) { this.canvas.width = wide; this.canvas.height = high; if (this.fitted) { const s = Math.min(box.width / this.layout.width, box.height / this.layout.height); this.view = { scale: s, x: (box.width - this.layout.width * s) / 2, y: (box.height - this.layout.height * s) / 2 }; } }
    const pen = this.canvas.getContext("2d"), { scale, x, y } = this.view;
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, box.width, box.height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.small, x, y, this.layout.width * scale, this.layout.height * scale);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    if (wide && high) pen.drawImage(this.lines(box, dots), 0, 0);
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    this.drawMarks(pen, box);
  }
  // Borders and names in a picture of their own: they are drawn again only when the view moves, not with every host.
  lines(box, dots) {
    const { scale, x, y } = this.view, key = [scale, x, y, this.canvas.width, this.canvas.height, theme()].join();
    if (this.linesKey === key && this.linesOf === this.layout) return this.over;
    this.over ||= document.createElement("canvas");
    this.over.width = this.canvas.width; this.over.height = this.canvas.height;
    const pen = this.over.getContext("2d");
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    this.drawLines(pen, box);
    this.linesKey = key; this.linesOf = this.layout;
    return this.over;
  }
  drawLines(pen, box) {
    const style = getComputedStyle(document.documentElement), { scale, x, y } = this.view;
    const back = style.getPropertyValue("--bg"), text = style.getPropertyValue("--text"), line = style.getPropertyValue("--soft");
    const inside = (b) => x + (b.x + b.w) * scale > 0 && x + b.x * scale < box.width && y + (b.y + b.h) * scale > 0 && y + b.y * scale < box.height;
    if (scale >= GRID_PIXELS) {
      pen.strokeStyle = back; pen.lineWidth = Math.min(3, scale / 8); pen.beginPath();
      for (let n = Math.max(0, Math.floor(-x / scale)); n <= Math.min(this.layout.width, (box.width - x) / scale); n++) { pen.moveTo(x + n * scale, 0); pen.lineTo(x + n * scale, box.height); }
      for (let n = Math.max(0, Math.floor(-y / scale)); n <= Math.min(this.layout.height, (box.height - y) / scale); n++) { pen.moveTo(0, y + n * scale); pen.lineTo(box.width, y + n * scale); }
      pen.stroke();
    }
    this.layout.boxes.forEach((boxes, level) => {
      if (!boxes.length || boxes[0].w * scale < 6) return;
      pen.strokeStyle = line; pen.lineWidth = level === 0 ? 1.5 : 0.75; pen.beginPath();
      for (const b of boxes) if (inside(b)) pen.rect(x + (b.x - 0.3) * scale, y + (b.y - 0.3) * scale, (b.w + 0.6) * scale, (b.h + 0.6) * scale);
      pen.stroke();
      pen.fillStyle = text; pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "bottom"; pen.textAlign = "left";
      for (const b of boxes) if (b.w * scale > BOX_PIXELS && inside(b) && (b.text ||= pen.measureText(b.name).width) < b.w * scale) pen.fillText(b.name, x + b.x * scale, y + (b.y - 0.35) * scale);
    });
  }
  drawMarks(pen, box) {
    const { scale, x, y } = this.view;
    if (!this.glow.length && scale < LETTER_PIXELS) return;
    const style = getComputedStyle(document.documentElement), text = style.getPropertyValue("--text");
    pen.strokeStyle = style.getPropertyValue("--focus"); pen.lineWidth = 3; pen.textAlign = "left";
    for (const one of this.glow) for (const b of this.boxesOf(one.first, one.last)) {
      pen.strokeRect(x + (b.x - 0.3) * scale, y + (b.y - 0.3) * scale, (b.w + 0.6) * scale, (b.h + 0.6) * scale);
      pen.fillStyle = text; pen.font = "bold 12px system-ui, sans-serif"; pen.textBaseline = "top"; pen.fillText(one.label, x + b.x * scale, y + (b.y + b.h + 0.3) * scale + 4);
    }
    if (scale >= LETTER_PIXELS) this.drawLetters(pen, box, text);
  }
  boxesOf(first, last) {
    for (const boxes of this.layout.boxes) { const found = boxes.filter((b) => b.first === first && b.last === last); if (found.length) return found; }
    const one = { x: this.layout.x[first], y: this.layout.y[first], w: 1, h: 1 };
    return last - first === 1 ? [one] : [];
  }
  drawLetters(pen, box, text) {
    const { scale, x, y } = this.view, mode = theme();
    pen.textAlign = "center"; pen.textBaseline = "middle";
    for (let host = 0; host < this.layout.x.length; host++) {
      const left = x + this.layout.x[host] * scale, top = y + this.layout.y[host] * scale;
      if (left + scale < 0 || top + scale < 0 || left > box.width || top > box.height) continue;
      const [colour, letter] = paint(this.layer, this.map, this.gangs, host, mode);
      const dim = this.lit && !this.lit.has(host);
      pen.fillStyle = dim ? text : colour[0] * 0.3 + colour[1] * 0.59 + colour[2] * 0.11 > 140 ? "#000" : "#fff";
      pen.font = `${Math.min(16, scale * 0.6)}px system-ui, sans-serif`;
      const ranks = this.lit?.get?.(host);
      pen.fillText(ranks || letter, left + scale / 2, top + scale / 2);
      if (scale >= NAME_PIXELS) { pen.font = "11px system-ui, sans-serif"; pen.fillText(this.map.hosts[host], left + scale / 2, top + scale - 9, scale - 6); }
    }
  }
  hostAt(px, py) {
    const cx = Math.floor((px - this.view.x) / this.view.scale), cy = Math.floor((py - this.view.y) / this.view.scale);
    if (!this.at || this.at.layout !== this.layout) {
      this.at = { layout: this.layout, cells: new Map() };
      for (let host = 0; host < this.layout.x.length; host++) this.at.cells.set(this.layout.y[host] * this.layout.width + this.layout.x[host], host);
    }
    return cx < 0 || cx >= this.layout.width ? undefined : this.at.cells.get(cy * this.layout.width + cx);
  }
  zoom(factor, px, py) {
    const v = this.view, scale = Math.min(160, Math.max(0.3, v.scale * factor));
    this.view = { scale, x: px - (px - v.x) * scale / v.scale, y: py - (py - v.y) * scale / v.scale };
    this.fitted = false;
    this.draw();
  }
  pan(dx, dy) { this.view.x += dx; this.view.y += dy; this.fitted = false; this.draw(); }
  zoomTo(first, last) {
    let left = Infinity, right = 0, top = Infinity, bottom = 0;
    for (let host = first; host < last; host++) { left = Math.min(left, this.layout.x[host]); right = Math.max(right, this.layout.x[host] + 1); top = Math.min(top, this.layout.y[host]); bottom = Math.max(bottom, this.layout.y[host] + 1); }
    const box = this.canvas.getBoundingClientRect();
    const scale = Math.min(box.width / (right - left + 4), box.height / (bottom - top + 4), 120);
    this.view = { scale, x: (box.width - (left + right) * scale) / 2, y: (box.height - (top + bottom) * scale) / 2 };
    this.fitted = false;
    this.draw();
  }
}

// props: map, gangs, layer, lit (Map host → text, or null), glow, focus ([first, last]), onHover, onPick, changed
export function MapCanvas({ map, gangs, layer, lit, glow, focus, onHover, onPick, subscribe }) {
  const ref = useRef(null), picture = useRef(null);
  useEffect(() => {
    picture.current = new Picture(ref.current);
    const resized = new ResizeObserver(() => picture.current.draw());
    resized.observe(ref.current);
    globalThis.bayplanPicture = picture.current;
    return () => resized.disconnect();
  }, []);
  useEffect(() => { picture.current.show(map, gangs, layer); }, [map, map.hosts, layer, theme()]);
  useEffect(() => { picture.current.gangs = gangs; }, [gangs]);
  useEffect(() => { picture.current.light(lit, glow || []); }, [lit, glow]);
  useEffect(() => { if (focus) picture.current.zoomTo(...focus); }, [focus?.[0], focus?.[1], map.hosts]);
  useEffect(() => subscribe?.((dirty) => { picture.current.gangs = gangs; picture.current.repaint(dirty); }), [subscribe, map]);
  useEffect(() => {
    const canvas = ref.current;
    let held = null, moved = 0;
    const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    const on = {
      wheel: (event) => { event.preventDefault(); picture.current.zoom(event.deltaY < 0 ? 1.25 : 0.8, ...at(event)); },
      pointerdown: (event) => { held = at(event); moved = 0; canvas.setPointerCapture(event.pointerId); },
      pointermove: (event) => {
        const here = at(event);
        if (held) { picture.current.pan(here[0] - held[0], here[1] - held[1]); moved += Math.abs(here[0] - held[0]) + Math.abs(here[1] - held[1]); held = here; }
        else onHover?.(picture.current.hostAt(...here));
      },
      pointerup: (event) => { if (held && moved < 4) onPick?.(picture.current.hostAt(...at(event))); held = null; },
      pointerleave: () => onHover?.(undefined),
    };
    for (const [name, call] of Object.entries(on)) canvas.addEventListener(name, call, { passive: false });
    return () => { for (const [name, call] of Object.entries(on)) canvas.removeEventListener(name, call); };
  }, [map, onHover, onPick]);
  const zoom = (factor) => () => { const box = ref.current.getBoundingClientRect(); picture.current.zoom(factor, box.width / 2, box.height / 2); };
  const label = `Map of ${map.hosts.length} hosts${map.name ? ` of the topology ${map.name}` : ""}, coloured by ${LAYERS[layer]}. The list of domains beside it has the same content.`;
  return html`<div>
    <div class="stage"><canvas ref=${ref} role="img" aria-label=${label}></canvas></div>
    <div class="tools"><button onClick=${zoom(1.5)} aria-label="Zoom in">+</button><button onClick=${zoom(0.67)} aria-label="Zoom out">−</button><button onClick=${() => picture.current.fit()}>Whole cluster</button></div>
    <${Legend} layer=${layer} />
  </div>`;
}

function Legend({ layer }) {
  const mode = theme();
  return html`<ul class="legend" aria-label="Legend">${legend(layer, mode).map(([colour, letter, text]) => html`<li key=${text}><${Swatch} colour=${colour} letter=${letter} />${text}</li>`)}</ul>`;
}

function Swatch({ colour, letter }) {
  const ref = useRef(null);
  useEffect(() => {
    const pen = ref.current.getContext("2d");
    pen.fillStyle = `rgb(${colour.join(",")})`; pen.fillRect(0, 0, 22, 22);
    pen.fillStyle = colour[0] * 0.3 + colour[1] * 0.59 + colour[2] * 0.11 > 140 ? "#000" : "#fff";
    pen.font = "14px sans-serif"; pen.textAlign = "center"; pen.textBaseline = "middle"; pen.fillText(letter, 11, 12);
  });
  return html`<canvas ref=${ref} width="22" height="22" aria-hidden="true"></canvas>`;
}
