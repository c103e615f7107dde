"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const colours = ["#3b82f6", "#10b981", "#f59e0b", "#8b5cf6", "#ef4444", "#06b6d4", "#84cc16", "#ec4899", "#94a3b8"];
const paths = new Map(data.scopes.map((row) => [row.scope, row.path || "in no scope"]));
const path = (scope) => paths.get(scope) || "in no scope";
let chosen = 0, plot = null, waste = null, place = null;

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0, value = Math.abs(bytes);
  while (value >= 1024 && unit < 4) { value /= 1024; unit++; }
  const text = unit === 0 ? String(value) : value.toPrecision(value >= 1000 ? 4 : 3);
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
function colour_of(scope) {
  const names = device().timeline.by_scope.map((band) => band.name);
  const found = names.indexOf(path(scope));
  return colours[(found < 0 ? names.length : found) % colours.length];
}
const device = () => data.devices[chosen];

function figures() {
  const stats = device().stats, bar = element("div", undefined, { class: "bar" });
  const parts = [["live", stats.allocated, "#3b82f6"], ["in limbo", stats.active - stats.allocated, "var(--limbo)"], ["cached", stats.reserved - stats.active, "var(--line)"]];
  for (const [name, bytes, colour] of parts)
    if (bytes > 0) bar.append(element("span", undefined, { style: `flex:${bytes};background:${colour}`, title: `${name}: ${size(bytes)}` }));
  at("bar").replaceChildren(bar);
  const shown = [["live", size(stats.allocated)], ["peak live", size(stats.allocated_peak)], ["in limbo", size(stats.active - stats.allocated)], ["reserved", size(stats.reserved)], ["peak reserved", size(stats.reserved_peak)], ["cached", size(stats.reserved - stats.active)], ["largest free range", size(stats.largest_free)], ["live blocks", stats.live_block_count], ["mallocs", stats.malloc_count], ["from the cache", stats.hit_count], ["driver calls", stats.driver_call_count], ["out of memory", stats.out_of_memory_count]];
  at("figures").replaceChildren(...shown.map(([name, value]) => { const box = element("div"); box.append(element("dt", name), element("dd", String(value))); return box; }));
  const short = data.shortage && data.shortage.device === device().device ? data.shortage : null;
  at("failed").hidden = device().failures.length === 0 && !short;
  at("shortage").replaceChildren(...(short ? explained(short) : []));
  table(at("failures"), ["when", "asked for", "live then", "reserved then", "scope"], device().failures.map((it) => [`${it.seconds.toFixed(3)} s`, size(it.requested), size(it.live), size(it.reserved), path(it.scope)]));
}

// The last request that found no memory: a bar of what there was, the request below it to scale, and words.
function explained(it) {
  const parts = [["live", it.allocated, "#3b82f6"], ["in limbo", it.active - it.allocated, "var(--limbo)"], ["cached", it.cached, "#94a3b8"], ["used elsewhere", it.used_elsewhere || 0, "#a855f7"], ["free on the device", it.device_free || 0, "var(--free)"]].filter((part) => part[1] > 0);
  const most = Math.max(parts.reduce((sum, part) => sum + part[1], 0), it.requested, 1);
  const bar = (list) => {
    const row = element("div", undefined, { class: "row" });
    for (const [name, bytes, colour] of list) row.append(element("span", undefined, { style: `width:${(100 * bytes) / most}%;background:${colour}`, title: `${name}: ${size(bytes)}` }));
    return row;
  };
  const key = element("p", undefined, { class: "hint" });
  for (const [name, bytes, colour] of parts) key.append(element("span", undefined, { class: "key", style: `background:${colour}` }), `${name} ${size(bytes)} \u00a0 `);
  const asked = element("p", `asked for: ${size(it.requested)}${it.limit ? `; limit: ${size(it.limit)}` : ""}; largest free range: ${size(it.largest_free)}`, { class: "hint" });
  const found = [bar(parts), key, bar([["asked for", it.requested, "#ef4444"]]), asked, element("p", it.message)];
  const lists = [[["stream", "freed blocks wait for it"], it.waiting.map((row) => [`0x${row.stream.toString(16)}`, size(row.bytes)])], [["scope", "live then"], it.scopes.map((row) => [row.path || "in no scope", size(row.live_bytes)])]];
  for (const [names, rows] of lists) if (rows.length) { const list = element("table"); table(list, names, rows); found.push(list); }
  return found;
}

function draw() {
  const line = device().timeline, bands = line[at("bands").value];
  if (plot) plot.destroy();
  plot = null;
  at("moment").replaceChildren();
  at("wasted").hidden = true;
  at("peaks").replaceChildren(...line.peaks.map((where, rank) => {
    const button = element("button", `${rank ? "" : "peak "}${size(line.live[where])} at ${line.seconds[where].toFixed(3)} s`, { type: "button" });
    button.onclick = () => choose(where);
    return button;
  }));
  if (line.seconds.length < 2 || !bands.length) {
    at("timeline").replaceChildren(element("p", "No history was kept: cuddy_record_history(), or cuddy.memory.record_history(), before what is to be seen."));
    return;
  }
  // Stacked: each band is drawn over all below it.
  const sums = new Array(line.seconds.length).fill(0);
  const stacked = bands.map((band) => band.bytes.map((bytes, index) => (sums[index] += bytes)));
  const text = getComputedStyle(document.body).color, faint = "rgba(128,128,128,.25)";
  const series = [{ label: "seconds", value: (_, value) => (value === null ? "" : value.toFixed(6)) }];
  const columns = [line.seconds];
  for (let index = bands.length - 1; index >= 0; index--) {
    const colour = colours[index % colours.length];
    series.push({ label: bands[index].name, stroke: colour, fill: colour + "cc", width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (_, value, __, where) => (where === null ? "" : size(bands[index].bytes[where])) });
    columns.push(stacked[index]);
  }
  series.push({ label: "reserved", stroke: text, width: 1.5, dash: [6, 4], paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (_, value) => (value === null ? "" : size(value)) });
  columns.push(line.reserved);
  const axis = { stroke: text, grid: { stroke: faint }, ticks: { stroke: faint } };
  plot = new uPlot({
    width: Math.max(300, at("timeline").clientWidth), height: 360, series, cursor: { sync: { key: "time" } },
    scales: { x: { time: false } },
    axes: [{ ...axis, values: (_, values) => values.map((value) => `${value} s`) }, { ...axis, size: 80, incrs: Array.from({ length: 50 }, (_, power) => 2 ** power), values: (_, values) => values.map((value) => size(value)) }],
    hooks: { draw: [(it) => mark(it, line)] },
  }, columns, (at("timeline").replaceChildren(), at("timeline")));
  at("wasted").hidden = false;
  drawWaste(line, axis);
  plot.over.addEventListener("click", () => { if (plot.cursor.idx !== null) choose(plot.cursor.idx); });
}
// The share of what is reserved that is not live, in percent; nothing where nothing is reserved.
const wasted = (line) => line.reserved.map((bytes, index) => (bytes > 0 ? Math.max(0, 100 * (1 - line.live[index] / bytes)) : null));
function drawWaste(line, axis) {
  if (waste) waste.destroy();
  waste = new uPlot({
    width: Math.max(300, at("waste").clientWidth), height: 150, cursor: { sync: { key: "time" } },
    series: [{ label: "seconds", value: (_, value) => (value === null ? "" : value.toFixed(6)) }, { label: "not live", stroke: "#ef4444", fill: "#ef444433", width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (_, value) => (value === null ? "" : `${value.toFixed(1)} %`) }],
    scales: { x: { time: false }, y: { range: [0, 100] } },
    axes: [{ ...axis, values: (_, values) => values.map((value) => `${value} s`) }, { ...axis, size: 80, values: (_, values) => values.map((value) => `${value} %`) }],
  }, [line.seconds, wasted(line)], at("waste"));
}
function mark(it, line) {
  const context = it.ctx;
  context.save();
  context.fillStyle = getComputedStyle(document.body).color;
  for (const where of line.peaks) {
    const x = it.valToPos(line.seconds[where], "x", true), y = it.valToPos(line.live[where], "y", true);
    context.beginPath(); context.arc(x, y, 4 * devicePixelRatio, 0, 7); context.fill();
  }
  if (place !== null) {
    const x = it.valToPos(line.seconds[place], "x", true);
    context.fillRect(x, it.bbox.top, devicePixelRatio, it.bbox.height);
  }
  context.restore();
}
function choose(where) {
  const line = device().timeline;
  place = Math.max(0, Math.min(where, line.seconds.length - 1));
  if (plot) plot.redraw(false);
  const when = line.seconds[place], head = element("p", `At ${when.toFixed(6)} s: ${size(line.live[place])} live, ${size(line.reserved[place])} reserved.`);
  const list = element("table");
  const live = living(when);
  if (live) {
    live.sort((a, b) => b[1] - a[1]);
    table(list, ["largest blocks then", "bytes", "scope"], live.slice(0, 12).map(([address, bytes, scope]) => [`0x${address.toString(16)}`, size(bytes), path(scope)]));
  } else {
    const bands = line.by_scope.map((band) => [band.name, band.bytes[place]]).filter((row) => row[1]).sort((a, b) => b[1] - a[1]);
    table(list, ["scope", "live then"], bands.map(([name, bytes]) => [name, size(bytes)]));
  }
  at("moment").replaceChildren(head, list);
}
// The blocks that were live at a moment; null where the page has not the events for it.
function living(when) {
  const events = device().events;
  if (!events.length) return null;
  const blocks = new Map();
  for (const [address, , cells] of device().segments) {
    let start = address;
    for (const [bytes, , state, , scope] of cells) { if (state === "live") blocks.set(start, [start, bytes, scope]); start += bytes; }
  }
  for (let index = events.length - 1; index >= 0 && events[index][0] > when; index--) {
    const [, freed, address, bytes, scope] = events[index];
    if (freed) blocks.set(address, [address, bytes, scope]); else blocks.delete(address);
  }
  return [...blocks.values()];
}

function map() {
  const where = at("map"), rows = [];
  const segments = [...device().segments].sort((a, b) => total(b) - total(a)).slice(0, 60);
  const widest = Math.max(1, ...segments.map(total));
  for (const [address, pool, cells] of segments) {
    const bytes = total([address, pool, cells]);
    rows.push(element("div", `0x${address.toString(16)}  ${size(bytes)}${pool ? `  pool ${pool}` : ""}`, { class: "address" }));
    const row = element("div", undefined, { class: "row", style: `width:${Math.max(4, (100 * bytes) / widest)}%` });
    let start = address;
    for (const [length, requested, state, stream, scope, run, label] of merged(cells, bytes)) {
      const says = `0x${start.toString(16)}: ${size(length)}, ${state}${state === "live" ? `, ${size(requested)} asked for, ${path(scope)}${run ? ` (run ${run})` : ""}` : ""}, stream 0x${stream.toString(16)}${label ? `: ${label}` : ""}`;
      const cell = element("span", undefined, { class: state, style: `flex:${length}${state === "live" ? `;background:${colour_of(scope)}` : ""}`, title: says, tabindex: state === "live" ? "0" : "-1" });
      cell.onmouseenter = cell.onfocus = () => (at("block").textContent = says);
      row.append(cell);
      start += length;
    }
    rows.push(row);
  }
  if (device().segments.length > 60) rows.push(element("p", `and ${device().segments.length - 60} smaller segments`, { class: "hint" }));
  where.replaceChildren(...rows);
}
const total = (segment) => segment[2].reduce((sum, cell) => sum + cell[0], 0);
// Blocks too small to be seen are drawn together.
function merged(cells, bytes) {
  const least = bytes / 1500, found = [];
  for (const cell of cells) {
    const last = found[found.length - 1];
    if (last && cell[0] < least && last[0] < least && last[2] === cell[2] && last[4] === cell[4]) { last[0] += cell[0]; last[1] += cell[1]; }
    else found.push([...cell]);
  }
  return found;
}

function tables() {
  const scopes = [...data.scopes].sort((a, b) => b.peak_bytes - a.peak_bytes);
  table(at("scopes"), ["scope", "runs", "live", "blocks", "peak", "over time", "allocations"], scopes.slice(0, 200).map((it) => [it.path || "all", it.runs, size(it.live_bytes), it.live_count, size(it.peak_bytes), size(it.total_bytes), it.total_count]));
  const groups = new Map(), free = new Map();
  for (const [, , cells] of device().segments)
    for (const [bytes, requested, state, , scope, run, label] of cells) {
      if (state === "live") {
        const key = `${scope} ${run} ${label}`, group = groups.get(key) || { scope, run, label, bytes: 0, count: 0, largest: 0 };
        group.bytes += requested; group.count++; group.largest = Math.max(group.largest, requested);
        groups.set(key, group);
      } else if (state === "free") {
        const power = Math.floor(Math.log2(Math.max(1, bytes))), seen = free.get(power) || [0, 0];
        free.set(power, [seen[0] + 1, seen[1] + bytes]);
      }
    }
  const live = [...groups.values()].sort((a, b) => b.bytes - a.bytes).slice(0, 100);
  table(at("leaks"), ["scope", "run", "label", "blocks", "bytes", "largest"], live.map((it) => [path(it.scope), it.run || "", it.label, it.count, size(it.bytes), size(it.largest)]));
  table(at("free"), ["from", "ranges", "bytes"], [...free].sort((a, b) => b[0] - a[0]).map(([power, [count, bytes]]) => [size(2 ** power), count, size(bytes)]));
}

function show() { place = null; if (!data.devices.length) { at("figures").replaceChildren(element("p", "No device was in use.")); return; } figures(); draw(); map(); tables(); }
at("about").textContent = `Taken ${new Date(data.time_us / 1000).toLocaleString()} by Cuddy ${data.library}; ${data.noted} events noted${data.lost ? `, the first ${data.lost} of them lost` : ""}.`;
at("device").replaceChildren(...data.devices.map((it, index) => element("option", String(it.device), { value: index })));
at("device").onchange = () => { chosen = Number(at("device").value); show(); };
at("bands").onchange = draw;
const dark = () => document.documentElement.dataset.theme === "dark";
const theme = (on) => { document.documentElement.dataset.theme = on ? "dark" : "light"; };
theme(matchMedia("(prefers-color-scheme: dark)").matches);
at("theme").onclick = () => { theme(!dark()); show(); };
addEventListener("keydown", (event) => {
  if (event.target.matches?.("select, input") || !data.devices.length) return;
  const line = device().timeline, step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) { choose((place ?? 0) + step); event.preventDefault(); }
  if (event.key === "p" && line.peaks.length) choose(line.peaks[(line.peaks.indexOf(place) + 1) % line.peaks.length]);
});
addEventListener("resize", () => {
  if (!plot) return;
  plot.setSize({ width: Math.max(300, at("timeline").clientWidth), height: 360 });
  waste.setSize({ width: Math.max(300, at("waste").clientWidth), height: 150 });
});
show();
document.documentElement.dataset.ready = "yes";
