// The state of the cluster in this page: read once, then kept up to date by the stream.
const listeners = new Set();
export const cluster = {
  ready: false, problem: "", needsToken: false, connected: false, said: "",
  version: 0, now: 0, notes: [], maps: [], gangs: new Map(), queues: {}, topologies: [], view: {},
  stats: { events: 0, resets: 0 },
};
let cursor = "";
let token = sessionStorage.getItem("bayplan-token") || "";

export function listen(callback) { listeners.add(callback); return () => listeners.delete(callback); }
function tell(change) { for (const callback of listeners) callback(change); }

export async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(`/api/v1/${path}`, { ...options, headers, cache: "no-store" });
  if (answer.status === 401) { cluster.needsToken = true; tell(null); }
  if (!answer.ok) {
    let message = `${answer.status}`;
    try { message = (await answer.json()).message; } catch { /* not JSON: the status has to do */ }
    throw Object.assign(new Error(message), { status: answer.status });
  }
  return answer;
}

export function signIn(text) {
  token = text.trim();
  sessionStorage.setItem("bayplan-token", token);
  cluster.needsToken = false;
  tell(null);
}

const ARRAYS = { "<u4": Uint32Array, "<u2": Uint16Array, u1: Uint8Array };

export function unpack(layers, buffer, offset, count) {
  const found = {};
  for (const [name, type] of Object.entries(layers)) {
    const bytes = ARRAYS[type].BYTES_PER_ELEMENT * count;
    found[name] = new ARRAYS[type](buffer.slice(offset, offset + bytes));
    offset += bytes;
  }
  return found;
}

async function readAll() {
  const answer = await ask("state");
  const state = await answer.json();
  const maps = await Promise.all(state.maps.map(async (map, number) => {
    const body = await (await ask(`maps/${number}?version=${state.version}`)).arrayBuffer();
    return { ...map, layers: unpack(state.layers, body, 0, map.hosts.length), changes: 0 };
  }));
  cursor = answer.headers.get("Bayplan-Cursor");
  Object.assign(cluster, {
    ready: true, problem: "", version: state.version, now: state.now, notes: state.notes, maps,
    gangs: new Map(state.gangs.map((entry) => [entry.id, entry])),
    queues: state.queues, topologies: state.topologies, view: state.view,
  });
  cluster.stats.resets += 1;
  tell({ all: true });
}

function applyChange(change) {
  const dirty = change.maps.map((part, number) => {
    const map = cluster.maps[number];
    if (!part) return [];
    for (const [name, layer] of Object.entries(map.layers)) {
      const values = part[name];
      part.hosts.forEach((host, index) => { layer[host] = values[index]; });
    }
    for (const host of part.hosts) delete map.more[host];
    Object.assign(map.more, part.more);
    map.changes += 1;
    return part.hosts;
  });
  const said = [];
  for (const id of change.gone) cluster.gangs.delete(id);
  for (const entry of change.gangs) {
    const before = cluster.gangs.get(entry.id);
    if (!before || before.gang.state !== entry.gang.state) said.push(`${entry.gang.namespace}/${entry.gang.name} is ${entry.gang.state}`);
    cluster.gangs.set(entry.id, entry);
  }
  if (change.order) {
    const known = cluster.gangs;
    cluster.gangs = new Map(change.order.filter((id) => known.has(id)).map((id) => [id, known.get(id)]));
  }
  for (const name of ["queues", "topologies", "notes"]) if (change[name]) cluster[name] = change[name];
  cluster.version = change.version;
  cluster.now = change.now;
  if (said.length) cluster.said = said.length > 3 ? `${said.slice(0, 3).join(", ")} and ${said.length - 3} more` : said.join(", ");
  tell({ dirty });
}

// A fetch stream instead of EventSource, which cannot send a token.
async function follow() {
  const answer = await ask(`stream?since=${encodeURIComponent(cursor)}`, { headers: { Accept: "text/event-stream" } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  cluster.connected = true;
  cluster.problem = "";
  tell(null);
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const event = { name: "", data: "", id: "" };
      for (const line of text.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7);
        else if (line.startsWith("data: ")) event.data += line.slice(6);
        else if (line.startsWith("id: ")) event.id = line.slice(4);
      }
      text = text.slice(end + 2);
      if (!event.name) continue;
      cluster.stats.events += 1;
      if (event.name === "change") { applyChange(JSON.parse(event.data)); cursor = event.id; }
      else { await reader.cancel(); cursor = ""; return; } // reset or denied: read everything again
    }
  }
}

export async function start() {
  const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
  for (let pause = 0.25; ; ) {
    try {
      if (!cursor) await readAll();
      await follow();
      pause = 0.25;
    } catch (error) {
      if (error.status && error.status !== 503 && error.status !== 429) cursor = "";
      cluster.problem = error.status ? error.message : "The server does not answer; trying again.";
    }
    cluster.connected = false;
    tell(null);
    if (document.hidden) pause = Math.max(pause, 2);
    await wait(pause);
    pause = Math.min(pause * 2, 5);
    while (cluster.needsToken) await wait(0.25);
  }
}
