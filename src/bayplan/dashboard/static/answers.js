// Answers of the API in pages, and the curves over time.
import { html, plural, useEffect, useRef, useState } from "./parts.js";
import { ask } from "./cluster.js";

export function useAnswer(path, again) {
  const [found, setFound] = useState({});
  useEffect(() => {
    let current = true;
    if (!path) { setFound({}); return; }
    ask(path).then((answer) => answer.json()).then((value) => current && setFound({ value, path }), (error) => current && setFound({ error: error.message, path }));
    return () => { current = false; };
  }, [path, again]);
  return found.path === path ? found : {};
}

export function Curves({ points }) {
  const ref = useRef(null);
  useEffect(() => {
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const columns = [0, 1, 2, 3, 4].map((n) => points.map((point) => point[n]));
    const share = columns[2].map((used, n) => (columns[1][n] ? (100 * used) / columns[1][n] : 0));
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 } };
    const plot = new uPlot({ width: Math.min(900, ref.current.clientWidth || 600), height: 220, scales: { x: { time: true, range: (_, low, high) => [Math.min(low, high - 60), high] }, "%": { range: [0, 100] }, n: {} },
      series: [{}, { label: "in use, %", scale: "%", stroke: colour("--bar"), width: 2 }, { label: "fragmented, %", scale: "%", stroke: colour("--over"), width: 2, dash: [6, 4] }, { label: "gangs waiting", scale: "n", stroke: colour("--text"), width: 1, dash: [2, 3] }],
      axes: [axis, { ...axis, scale: "%" }, { ...axis, scale: "n", side: 1, grid: { show: false } }] },
      [columns[0], share, columns[3].map((part) => 100 * part), columns[4]], ref.current);
    return () => plot.destroy();
  }, [points]);
  const last = points[points.length - 1];
  return html`<div ref=${ref} role="img" aria-label="Curves of allocation, fragmentation and waiting gangs"></div>${last && html`<p>Now ${last[2]} of ${last[1]} in use, ${Math.round(100 * last[3])} % fragmented, ${plural(last[4], "gang")} waiting.</p>`}`;
}
