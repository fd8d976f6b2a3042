// What every module uses: markup, hooks, and addresses. An address is "#/view?name=value".
import { h, render } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { render, useEffect, useRef, useState };

export const VIEW_KEYS = { map: "m", waiting: "w", gang: "g", room: "r", time: "h", queues: "q", try: "t" };
export const VIEWS = Object.keys(VIEW_KEYS);

export function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const view = VIEWS.includes(path) ? path : "map";
  return { view, params: Object.fromEntries(new URLSearchParams(query || "")) };
}

export function address(view, params = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(kept).toString();
  return `#/${view}${query ? "?" + query : ""}`;
}

export function go(view, params, replace = false) {
  const to = address(view, params);
  if (to === location.hash) return;
  if (replace) { history.replaceState(null, "", to); dispatchEvent(new HashChangeEvent("hashchange")); }
  else location.hash = to;
}

export const gangName = (gang) => `${gang.namespace}/${gang.kind}/${gang.name}`;
export const gangAddress = (gang) => address("gang", { gang: gangName(gang) });
export const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
