// The frame of all pages: navigation, search, keys, theme, sign-in, and the line that says what changed.
import { address, gangAddress, go, html, render, route, useEffect, useRef, useState, VIEW_KEYS, VIEWS } from "./parts.js";
import { cluster, listen, signIn, start } from "./cluster.js";
import { GangPage, MapPage, QueuesPage, repaint, RoomPage, TryPage, WaitingPage } from "./pages.js";
import { TimePage } from "./time.js";

const PAGES = { map: MapPage, waiting: WaitingPage, gang: GangPage, room: RoomPage, time: TimePage, queues: QueuesPage, try: TryPage };
const NAMES = { map: "Map", waiting: "Waiting", gang: "Gangs", room: "Room", time: "Time", queues: "Queues", try: "Try" };
const KEYS = [["/", "search gangs and hosts"], ["m w g r h q t", "open Map, Waiting, Gangs, Room, Time, Queues, Try"], ["[ ]", "in Time: the decision before, and after"], ["arrows", "move in the list of domains; right opens, left closes"], ["Enter", "choose"], ["Esc", "close, or go up"], ["?", "this list"]];

function Search({ box }) {
  const [text, setText] = useState("");
  const words = text.trim().toLowerCase();
  const found = !words ? [] : [
    ...[...cluster.gangs.values()].filter(({ gang }) => `${gang.namespace}/${gang.name}`.toLowerCase().includes(words)).slice(0, 6).map(({ id, gang }) => ({ key: `g${id}`, text: `${gang.kind} ${gang.namespace}/${gang.name}: ${gang.state}`, to: gangAddress(gang) })),
    ...cluster.maps.slice(0, 1).flatMap((map) => { const hosts = []; for (let n = 0; n < map.hosts.length && hosts.length < 6; n++) if (map.hosts[n].toLowerCase().includes(words)) hosts.push({ key: `h${n}`, text: `host ${map.hosts[n]}`, to: address("map", { host: map.hosts[n] }) }); return hosts; }),
  ];
  const close = () => { setText(""); box.current?.blur(); };
  return html`<div class="search" role="search"><label><span class="soft">Search </span><input ref=${box} type="search" value=${text} aria-label="Search gangs and hosts" onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => { if (event.key === "Escape") close(); if (event.key === "Enter" && found[0]) { location.hash = found[0].to; close(); } }} /></label>
    ${!!found.length && html`<ul class="found">${found.map((one) => html`<li key=${one.key}><a href=${one.to} onClick=${close}>${one.text}</a></li>`)}</ul>`}</div>`;
}

function App() {
  const [, again] = useState(0), box = useRef(null), keys = useRef(null);
  useEffect(() => {
    let asked = false;
    const redraw = (change) => { repaint(change); if (asked) return; asked = true; setTimeout(() => { asked = false; again((n) => n + 1); }, 100); };
    const forget = listen(redraw), moved = () => again((n) => n + 1);
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      const view = VIEWS.find((name) => VIEW_KEYS[name] === event.key);
      if (event.key === "/") box.current?.focus();
      else if (event.key === "?") keys.current?.showModal();
      else if (event.key === "Escape" && location.hash !== "#/map") go("map", {});
      else if (view) go(view, {});
      else return;
      event.preventDefault();
    };
    addEventListener("hashchange", moved); addEventListener("keydown", pressed);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", moved);
    return () => { forget(); removeEventListener("hashchange", moved); removeEventListener("keydown", pressed); };
  }, []);
  const { view, params } = route(), Page = PAGES[view];
  useEffect(() => { document.title = `${NAMES[view]} · Bayplan`; }, [view]);
  if (cluster.needsToken) return html`<${SignIn} />`;
  const waiting = [...cluster.gangs.values()].filter((entry) => entry.pending).length;
  const flip = () => { const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; root.dataset.theme = dark ? "light" : "dark"; localStorage.setItem("bayplan-theme", root.dataset.theme); again((n) => n + 1); };
  return html`<header><strong>Bayplan</strong><nav aria-label="Views">${VIEWS.map((name) => html`<a key=${name} href=${address(name)} aria-current=${name === view ? "page" : undefined}>${NAMES[name]}${name === "waiting" && waiting ? ` (${waiting})` : ""}</a>`)}</nav>
      <div class="right"><${Search} box=${box} /><button onClick=${flip}>Light or dark</button><button onClick=${() => keys.current.showModal()}>Keys</button></div></header>
    <div class=${`status ${cluster.problem ? "bad" : ""}`} role="status" aria-live="polite">${cluster.problem || cluster.notes.join("; ") || cluster.said || (cluster.connected ? "Up to date." : "Connecting …")}</div>
    <main>${cluster.ready ? html`<${Page} params=${params} />` : html`<p class="loading">${cluster.problem || "Reading the cluster …"}</p>`}</main>
    <dialog ref=${keys} aria-label="Keys"><table><tbody>${KEYS.map(([key, text]) => html`<tr key=${key}><th scope="row"><kbd>${key}</kbd></th><td>${text}</td></tr>`)}</tbody></table><form method="dialog"><button>Close</button></form></dialog>`;
}

function SignIn() {
  const box = useRef(null);
  return html`<main><h1>Sign in</h1><p>Give a token of the cluster, for instance from <code>kubectl create token</code>. It is kept in this tab only.</p>
    <form onSubmit=${(event) => { event.preventDefault(); signIn(box.current.value); }}><label>Token <input ref=${box} type="password" autocomplete="off" /></label> <button>Sign in</button></form></main>`;
}

const chosen = localStorage.getItem("bayplan-theme");
if (chosen) document.documentElement.dataset.theme = chosen;
globalThis.bayplanCluster = cluster;
render(html`<${App} />`, document.getElementById("app"));
start();
