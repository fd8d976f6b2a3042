// The pages: map, waiting, gang, room, queues, try.
import { address, gangAddress, gangName, go, html, plural, useEffect, useRef, useState } from "./parts.js";
import { ask, cluster } from "./cluster.js";
import { HIDDEN, LAYERS } from "./colours.js";
import { MapCanvas } from "./map.js";
import { Curves, useAnswer } from "./answers.js";
import { GangHistory } from "./time.js";
import { flagText, Tree } from "./tree.js";

const watchers = new Set();
export const repaint = (change) => { for (const call of watchers) call(change); };
const subscribe = (number) => (call) => {
  const heard = (change) => { if (change?.dirty?.[number]?.length) call(change.dirty[number]); };
  watchers.add(heard);
  return () => watchers.delete(heard);
};
const subscriptions = [];
const changesOf = (number) => (subscriptions[number] ||= subscribe(number));

const holdersOf = (map, host) => {
  const ids = map.more[host] || (map.layers.gang[host] ? [map.layers.gang[host]] : []);
  return ids.map((id) => (id === HIDDEN ? null : cluster.gangs.get(id)));
};
function hostsOfGang(map, id) {
  const found = new Map();
  map.layers.gang.forEach((one, host) => { if (one === id) found.set(host, ""); });
  for (const [host, ids] of Object.entries(map.more)) if (ids.includes(id)) found.set(Number(host), "");
  return found;
}
const findGang = (name) => [...cluster.gangs.values()].find((entry) => gangName(entry.gang) === name);

export function MapPage({ params }) {
  const [hover, setHover] = useState(), [focus, setFocus] = useState(null);
  const number = Math.max(0, cluster.maps.findIndex((map) => map.name === params.topology));
  const map = cluster.maps[number];
  const chosen = params.gang ? findGang(params.gang) : null;
  const about = useAnswer(chosen ? `gangs/${params.gang.split("/").map(encodeURIComponent).join("/")}` : "", cluster.version).value;
  const lit = useRef({}), key = `${params.gang || ""} ${params.host || ""} ${hover ?? ""} ${cluster.version} ${about ? 1 : 0}`;
  if (!map) return html`<h1>Map</h1><p>There is no node to show${cluster.view.nodes === false ? ": you may not list nodes" : ""}.</p>`;
  if (lit.current.key !== key) {
    let hosts = null, glow = [];
    const under = hover === undefined ? 0 : map.layers.gang[hover];
    if (chosen) {
      hosts = hostsOfGang(map, chosen.id);
      for (const pod of about?.members || []) { const host = pod.node ? map.hosts.indexOf(pod.node) : -1; if (host >= 0) hosts.set(host, hosts.get(host) ? `${hosts.get(host)},${pod.rank}` : String(pod.rank)); }
      for (const one of about?.near?.domains || []) { glow.push({ first: one.hosts[0], last: one.hosts[1], label: one.lacks ? `lacks ${one.lacks}` : "fits" }); for (let host = one.hosts[0]; host < one.hosts[1]; host++) if (!hosts.has(host)) hosts.set(host, ""); }
      if (!hosts.size) hosts = null;
    } else if (under && under !== HIDDEN) hosts = hostsOfGang(map, under);
    lit.current = { key, hosts, glow };
  }
  const layer = params.layer in LAYERS ? params.layer : "free";
  const set = (change, replace) => go("map", { ...params, ...change }, replace);
  const host = params.host ? map.hosts.indexOf(params.host) : -1;
  const seen = hover !== undefined ? hover : host;
  return html`<h1>Map</h1><div class="columns"><section aria-label="Map">
    <div class="tools">
      ${cluster.maps.length > 1 && html`<label>Topology <select value=${map.name} onChange=${(event) => set({ topology: event.target.value, host: "" })}>${cluster.maps.map((one) => html`<option key=${one.name} value=${one.name}>${one.name || "no topology"}</option>`)}</select></label>`}
      <label>Colour by <select value=${layer} onChange=${(event) => set({ layer: event.target.value })}>${Object.entries(LAYERS).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>
      ${chosen && html`<span>Gang <a href=${gangAddress(chosen.gang)}>${chosen.gang.namespace}/${chosen.gang.name}</a> <button onClick=${() => set({ gang: "" })}>Clear</button></span>`}
    </div>
    <${MapCanvas} map=${map} gangs=${cluster.gangs} layer=${layer} lit=${lit.current.hosts} glow=${lit.current.glow} focus=${focus} subscribe=${changesOf(number)} onHover=${setHover} onPick=${(picked) => picked !== undefined && set({ host: map.hosts[picked] })} />
  </section><aside>
    <h2>Domains</h2>
    <${Tree} map=${map} at=${host >= 0 ? host : null} onFocus=${(row) => setFocus([row.first, row.last])} onPick=${(row) => row.leaf && set({ host: row.name })} />
    <h2>${seen >= 0 ? `Host ${map.hosts[seen]}` : "Host"}</h2>
    ${seen >= 0 ? html`<${HostCard} map=${map} host=${seen} />` : html`<p class="soft">Point at a host, or choose one in the list.</p>`}
    ${chosen && about?.near && html`<${NearCard} near=${about.near} />`}
  </aside></div>`;
}

function HostCard({ map, host }) {
  const { free, total, flags } = map.layers, holders = holdersOf(map, host);
  return html`<div class="card"><div>${free[host]} of ${total[host]} ${map.resource} free${flagText(flags[host]) ? `; ${flagText(flags[host])}` : ""}</div>
    ${holders.map((entry, n) => (entry ? html`<div key=${entry.id}><a href=${gangAddress(entry.gang)}>${entry.gang.kind} ${entry.gang.namespace}/${entry.gang.name}</a></div>` : html`<div key=${n}>in use by another namespace</div>`))}
    ${!!(flags[host] & 16) && html`<div class="soft">also pods of no gang</div>`}</div>`;
}

function NearCard({ near }) {
  return html`<h2>Where it nearly fits</h2><div class="scroll"><table><thead><tr><th>${near.level}</th><th class="number">pods that fit</th><th class="number">lacks</th><th>in use by</th></tr></thead>
    <tbody>${near.domains.map((one) => html`<tr key=${one.domain.join("/")}><td>${one.domain.join("/")}</td><td class="number">${one.fits} of ${near.pods}</td><td class="number">${one.lacks}</td><td>${one.holders.join(", ") || "no gang"}</td></tr>`)}</tbody></table></div>`;
}

export function WaitingPage() {
  const waiting = [...cluster.gangs.values()].filter((entry) => entry.pending);
  return html`<h1>Waiting: ${plural(waiting.length, "gang")}</h1>
    ${!waiting.length ? html`<p>No gang waits.</p>` : html`<div class="scroll"><table><thead><tr><th>Gang</th><th>Queue</th><th class="number">Position</th><th class="number">Pods</th><th class="number">Priority</th><th>State</th><th>Expected start</th><th>Reason</th><th>Map</th></tr></thead>
    <tbody>${waiting.map(({ id, gang }) => html`<tr key=${id}><td><a href=${gangAddress(gang)}>${gang.kind} ${gang.namespace}/${gang.name}</a></td><td>${gang.clusterQueue || gang.queue || ""}</td><td class="number">${gang.position ? `${gang.position} of ${gang.queueLength}` : ""}</td><td class="number">${gang.pods ?? gang.minimum}</td><td class="number">${gang.priority ?? ""}</td><td>${gang.state}</td><td>${gang.expectedStart?.message ?? ""}</td><td>${gang.message}</td><td><a href=${address("map", { gang: gangName(gang) })} aria-label=${`Where ${gang.name} nearly fits`}>show</a></td></tr>`)}</tbody></table></div>`}`;
}

export function GangPage({ params }) {
  const name = params.gang || "";
  const { value, error } = useAnswer(name ? `gangs/${name.split("/").map(encodeURIComponent).join("/")}` : "", cluster.version);
  if (!name) return html`<h1>Gangs</h1><div class="scroll"><table><thead><tr><th>Gang</th><th>State</th><th class="number">Pods</th><th>Where</th></tr></thead><tbody>${[...cluster.gangs.values()].map(({ id, gang }) => html`<tr key=${id}><td><a href=${gangAddress(gang)}>${gang.kind} ${gang.namespace}/${gang.name}</a></td><td>${gang.state}</td><td class="number">${gang.pods ?? gang.minimum}</td><td>${gang.where || ""}</td></tr>`)}</tbody></table></div>`;
  const [namespace, kind, ...rest] = name.split("/");
  const title = html`<h1>${kind} ${namespace}/${rest.join("/")}</h1>`;
  if (error) return html`${title}<p role="alert">${error}</p><${GangHistory} name=${name} />`;
  if (!value) return html`${title}<p>Reading …</p>`;
  return html`${title}<p><a href=${address("map", { gang: name, layer: "gang" })}>Show it on the map</a></p>
    ${value.explanation.map((part) => html`<section key=${part.title}><h2>${part.title}</h2><pre tabindex="0">${part.lines.join("\n")}</pre></section>`)}
    ${value.near && html`<${NearCard} near=${value.near} />`}
    <${GangHistory} name=${name} />
    <h2>Pods by rank</h2>${!value.members.length ? html`<p>It has no pods.</p>` : html`<div class="scroll"><table><thead><tr><th class="number">Rank</th><th>Pod set</th><th>Pod</th><th>Node</th></tr></thead><tbody>${value.members.slice(0, 2000).map((pod) => html`<tr key=${pod.name}><td class="number">${pod.rank}</td><td>${pod.podSet}</td><td>${pod.name}</td><td>${pod.node ? html`<a href=${address("map", { host: pod.node, gang: name })}>${pod.node}</a>` : "pending"}</td></tr>`)}</tbody></table></div>`}`;
}

export function RoomPage({ params }) {
  const [typed, setTyped] = useState(params.size || "");
  const sizes = ["8", "16", "32", "64", "128", "256", ...(/^[1-9]\d{0,6}$/.test(params.size || "") ? [params.size] : [])];
  const { value, error } = useAnswer(`room?sizes=${[...new Set(sizes)].join(",")}`, cluster.version);
  return html`<h1>Room: how many gangs fit now</h1>
    <form onSubmit=${(event) => { event.preventDefault(); go("room", { size: typed }); }}><label>Another size <input inputmode="numeric" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label> <button>Count</button></form>
    ${error && html`<p role="alert">${error}</p>`}
    ${(value?.maps || []).map((map) => html`<section key=${map.topology}><h2>${map.topology || "all nodes"}: gangs by ${map.resource}</h2><div class="scroll"><table><thead><tr><th class="number">Size</th>${Object.keys(map.sizes[0].fits).map((level) => html`<th class="number" key=${level}>each in one ${level.split("/").pop()}</th>`)}</tr></thead><tbody>${map.sizes.map((row) => html`<tr key=${row.size}><td class="number">${row.size}</td>${Object.entries(row.fits).map(([level, n]) => html`<td class="number" key=${level}>${n.toLocaleString("en")}</td>`)}</tr>`)}</tbody></table></div></section>`)}
    <h2>Since this server started</h2>${value && html`<${Curves} points=${value.points} />`}`;
}

export function QueuesPage() {
  const { clusterQueues = [], localQueues = [], queues = [] } = cluster.queues;
  if (!clusterQueues.length && !localQueues.length && !queues.length) return html`<h1>Queues</h1><p>There are no queues${cluster.view.queues === false ? " that you may list" : ""}.</p>`;
  return html`<h1>Queues</h1>
    ${!!clusterQueues.length && html`<h2>Cluster queues</h2><div class="scroll"><table><thead><tr><th>Cohort and queue</th><th class="number">Waiting</th><th class="number">Admitted</th><th class="number">Share</th><th>Flavor</th><th>Resource</th><th>Use</th><th class="number">Used</th><th class="number">Nominal</th><th class="number">Borrowed</th><th>State</th></tr></thead><tbody>
      ${[...clusterQueues].sort((a, b) => `${a.cohort}/${a.name}`.localeCompare(`${b.cohort}/${b.name}`)).flatMap((queue) => (queue.quota.length ? queue.quota : [null]).map((cell, n) => html`<tr key=${`${queue.name} ${n}`}>${n ? html`<td></td><td></td><td></td><td></td>` : html`<td>${queue.cohort ? `${queue.cohort} / ` : ""}${queue.name}</td><td class="number">${queue.pending}</td><td class="number">${queue.admitted}</td><td class="number">${queue.fairSharing.weightedShare ?? "infinite"}</td>`}${cell ? html`<td>${cell.flavor}</td><td>${cell.resource}</td><td><${Use} used=${cell.used} of=${cell.nominal} /></td><td class="number">${cell.used}</td><td class="number">${cell.nominal}</td><td class="number">${cell.borrowed}</td>` : html`<td colspan="6">no quota</td>`}<td>${n ? "" : queue.active ? "active" : queue.reason}</td></tr>`))}</tbody></table></div>`}
    ${!!localQueues.length && html`<h2>Local queues</h2><div class="scroll"><table><thead><tr><th>Queue</th><th>Cluster queue</th><th class="number">Waiting</th><th class="number">Admitted</th><th>State</th></tr></thead><tbody>${localQueues.map((one) => html`<tr key=${`${one.namespace}/${one.name}`}><td>${one.namespace}/${one.name}</td><td>${one.clusterQueue}</td><td class="number">${one.pending}</td><td class="number">${one.admitted}</td><td>${one.active ? "active" : one.reason}</td></tr>`)}</tbody></table></div>`}
    ${!!queues.length && html`<h2>Queues of pod groups</h2><div class="scroll"><table><thead><tr><th>Parent and queue</th><th class="number">Priority</th><th>Resource</th><th class="number">Quota</th><th class="number">Limit</th><th class="number">Allocated</th><th class="number">Requested</th><th>State</th></tr></thead><tbody>${queues.map((one, n) => html`<tr key=${n}><td>${one.parent ? `${one.parent} / ` : ""}${one.queue}</td><td class="number">${one.priority}</td><td>${one.resource}</td><td class="number">${one.quota}</td><td class="number">${one.limit}</td><td class="number">${one.allocated}</td><td class="number">${one.requested}</td><td>${one.reason || "active"}</td></tr>`)}</tbody></table></div>`}`;
}

function Use({ used, of }) {
  const part = of ? used / of : used ? 1 : 0;
  return html`<span class="bar" role="img" aria-label=${`${Math.round(100 * part)} % of the nominal quota`}><i style=${{ width: `${Math.min(100, 100 * part)}%` }}></i>${part > 1 && html`<i class="over" style=${{ width: `${Math.min(100, 100 * (part - 1))}%` }}></i>`}</span>`;
}

export function TryPage() {
  const [text, setText] = useState(sessionStorage.getItem("bayplan-try") || ""), [found, setFound] = useState({}), [busy, setBusy] = useState(false);
  const keep = (value) => { setText(value); sessionStorage.setItem("bayplan-try", value); };
  const send = async () => {
    setBusy(true);
    try { setFound({ value: await (await ask("try", { method: "POST", headers: { "Content-Type": "application/yaml" }, body: text })).json() }); } catch (error) { setFound({ error: error.message }); }
    setBusy(false);
  };
  const drop = async (event) => { event.preventDefault(); const parts = await Promise.all([...event.dataTransfer.files].map((file) => file.text())); if (parts.length) keep(parts.join("\n---\n")); };
  const map = cluster.maps[0], lit = useRef({});
  if (lit.current.value !== found.value) {
    const hosts = new Map();
    if (map) for (const answer of found.value?.answers || []) for (const [node, pods] of Object.entries(answer.nodes)) hosts.set(map.hosts.indexOf(node), String(pods));
    lit.current = { value: found.value, hosts: hosts.size ? hosts : null };
  }
  return html`<h1>Try: what would happen to these manifests</h1><p class="soft">The answer is that of <code>bayplan plan</code>. Nothing is written.</p>
    <label for="manifests">Manifests: paste them, or drop files here</label>
    <textarea id="manifests" value=${text} onInput=${(event) => keep(event.target.value)} onDrop=${drop} onDragOver=${(event) => event.preventDefault()} spellcheck=${false}></textarea>
    <p><button onClick=${send} disabled=${busy || !text.trim()}>${busy ? "Simulating …" : "Simulate"}</button></p>
    ${found.error && html`<pre role="alert">${found.error}</pre>`}
    ${(found.value?.answers || []).map((answer) => html`<section key=${answer.title}><h2>${answer.title}</h2><pre tabindex="0">${answer.lines.join("\n")}</pre></section>`)}
    ${map && lit.current.hosts && html`<${MapCanvas} map=${map} gangs=${cluster.gangs} layer="free" lit=${lit.current.hosts} subscribe=${changesOf(0)} />`}`;
}
