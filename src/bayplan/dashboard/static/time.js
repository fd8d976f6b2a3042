// The past, from the journal: curves, a slider over its entries, decisions, and the map at one of them.
import { address, gangAddress, go, html, plural, useEffect, useState } from "./parts.js";
import { ask, cluster, unpack } from "./cluster.js";
import { LAYERS } from "./colours.js";
import { MapCanvas } from "./map.js";
import { Curves, useAnswer } from "./answers.js";

const clock = (now) => new Date(1000 * now).toLocaleString("en-GB", { hour12: false });
const WAIT_MS = 150; // a slider that is being moved asks for the last of its positions only

async function momentAt(sequence) {
  const state = await (await ask(`time/${sequence}`)).json();
  const maps = await Promise.all(state.maps.map(async (map, number) => {
    const body = await (await ask(`time/${sequence}/maps/${number}`)).arrayBuffer();
    return { ...map, layers: unpack(state.layers, body, 0, map.hosts.length) };
  }));
  return { ...state, maps, gangs: new Map(state.gangs.map((entry) => [entry.id, entry])) };
}

function useMoment(sequence) {
  const [found, setFound] = useState({});
  useEffect(() => {
    if (!sequence) return;
    let current = true;
    const timer = setTimeout(() => momentAt(sequence).then((value) => current && setFound({ value }), (error) => current && setFound({ error: error.message })), WAIT_MS);
    return () => { current = false; clearTimeout(timer); };
  }, [sequence]);
  return found;
}

async function neighbour(sequence, query) {
  const [found] = await (await ask(`time/decisions?${query}=${sequence}&limit=1`)).json();
  return found?.sequence;
}

const Lines = ({ lines }) => html`<ul>${lines.map((line, n) => html`<li key=${n}><a href=${gangAddress(line)}>${line.kind} ${line.namespace}/${line.name}</a>: ${line.text}</li>`)}</ul>`;

export function TimePage({ params }) {
  const { value: known, error } = useAnswer("time", cluster.version);
  const last = known?.last || 0, first = known?.first || 0;
  const at = Math.min(last, Math.max(first, Number(params.at) || last));
  const moment = useMoment(at), layer = params.layer in LAYERS ? params.layer : "gang";
  const recent = useAnswer(at ? `time/decisions?before=${at + 1}&limit=20` : "").value;
  const set = (change) => go("time", { ...params, ...change }, true);
  const step = (query) => neighbour(at, query).then((to) => to && set({ at: to }));
  useEffect(() => {
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      if (event.key === "[") step("before"); else if (event.key === "]") step("after");
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [at]);
  if (error) return html`<h1>Time</h1><p role="alert">${error}</p>`;
  if (!known) return html`<h1>Time</h1><p>Reading …</p>`;
  if (!last) return html`<h1>Time</h1><p>${known.note || "The journal is empty."}</p>`;
  const { value } = moment, waiting = value ? [...value.gangs.values()].filter((entry) => entry.pending) : [];
  const map = value && (value.maps.find((one) => one.name === params.topology) || value.maps[0]);
  return html`<h1>Time</h1>${known.note && html`<p role="note">${known.note}</p>`}
    ${known.points.length > 1 && html`<${Curves} points=${known.points.map((point) => point.slice(1))} />`}
    <div class="tools"><label class="wide">Entry of the journal <input type="range" min=${first} max=${last} value=${at} onInput=${(event) => set({ at: event.target.value })} aria-valuetext=${value ? `entry ${at}, ${clock(value.now)}` : `entry ${at}`} /></label>
      <button onClick=${() => step("before")}>Previous decision</button><button onClick=${() => step("after")}>Next decision</button><button onClick=${() => set({ at: "" })}>Now</button>
      <label>Colour by <select value=${layer} onChange=${(event) => set({ layer: event.target.value })}>${Object.entries(LAYERS).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label></div>
    ${moment.error && html`<p role="alert">${moment.error}</p>`}
    <div class="columns"><section aria-label="The map at this entry" data-sequence=${value?.sequence}>
      ${value && html`<p>Entry ${value.sequence} of ${last}, ${clock(value.now)}: ${plural(value.gangs.size - waiting.length, "gang")} placed, ${plural(waiting.length, "gang")} waiting.</p>`}
      ${map && html`<${MapCanvas} map=${map} gangs=${value.gangs} layer=${layer} lit=${null} />`}
    </section><aside><h2>Decided at this entry</h2>
      ${value?.lines.length ? html`<${Lines} lines=${value.lines} />` : html`<p class="soft">No decision: it records a change or the outcome of a write.</p>`}
      <h2>Decisions up to it</h2>${(recent || []).slice().reverse().map((one) => html`<div key=${one.sequence} class="card"><a href=${address("time", { ...params, at: one.sequence })}>Entry ${one.sequence}, ${clock(one.now)}</a><${Lines} lines=${one.lines} /></div>`)}
    </aside></div>`;
}

export function GangHistory({ name }) {
  const { value, error } = useAnswer(name ? `history/${name.split("/").map(encodeURIComponent).join("/")}` : "", cluster.version);
  if (error) return html`<h2>History</h2><p class="soft">${error}</p>`;
  if (!value?.length) return html`<h2>History</h2><p class="soft">The journal says nothing about it.</p>`;
  return html`<h2>History</h2><div class="scroll"><table><thead><tr><th>When</th><th class="number">Entry</th><th>What</th></tr></thead><tbody>${value.map((line, n) => html`<tr key=${n}><td>${clock(line.now)}</td><td class="number"><a href=${address("time", { at: line.sequence })}>${line.sequence}</a></td><td>${line.text}</td></tr>`)}</tbody></table></div>`;
}
