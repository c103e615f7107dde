"use strict";
// What all parts of the page use. It draws what the command has made of a snapshot: `data`.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const colours = ["#3b82f6", "#10b981", "#f59e0b", "#8b5cf6", "#ef4444", "#06b6d4", "#84cc16", "#ec4899", "#94a3b8"];
const paths = new Map(data.scopes.map((row) => [row.scope, row.path || "in no scope"]));
const path = (scope) => paths.get(scope) || "in no scope";
const hex = (number) => `0x${number.toString(16)}`;
// The device that is shown, and the point of its timeline that is chosen: null is now.
let chosen = 0, place = null;
const device = () => data.devices[chosen];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0, value = Math.abs(bytes);
  while (value >= 1024 && unit < 4) { value /= 1024; unit++; }
  const text = unit === 0 ? String(value) : value.toPrecision(value >= 999.5 ? 4 : 3);
  return `${bytes < 0 ? "-" : ""}${text} ${units[unit]}`;
}
function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function table(where, heads, rows) {
  const top = element("tr");
  top.append(...heads.map((text) => element("th", text)));
  const lines = rows.map((row) => { const line = element("tr"); line.append(...row.map((text) => element("td", text))); return line; });
  if (!lines.length) { const line = element("tr"); line.append(element("td", "nothing")); lines.push(line); }
  where.replaceChildren(top, ...lines);
}
// What is live is coloured as in the timeline: by scope, or by size.
const sizes = [[64 << 10, "up to 64 KiB"], [1 << 20, "up to 1 MiB"], [16 << 20, "up to 16 MiB"], [256 << 20, "up to 256 MiB"], [Infinity, "larger"]];
function colour_of(bytes, scope) {
  const by = at("bands").value, names = device().timeline[by].map((band) => band.name);
  const found = names.indexOf(by === "by_size" ? sizes.find(([most]) => bytes <= most)[1] : path(scope));
  return colours[(found < 0 ? names.length - 1 : found) % colours.length];
}
