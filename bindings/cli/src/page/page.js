// The page as a whole: where memory is now, the request that found none, and what keys and buttons do.
function figures() {
  const stats = device().stats, bar = element("div", undefined, { class: "bar" });
  const parts = [["live", stats.allocated, "#3b82f6"], ["in limbo", stats.active - stats.allocated, "var(--limbo)"], ["cached", stats.reserved - stats.active, "#94a3b8"]];
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
  // A limit leaves less room than the device has.
  const free = it.device_free ?? 0, below = it.limit ? it.limit - it.reserved : Infinity, limited = below < free;
  const room = [limited ? "not reserved, up to the limit" : "free on the device", Math.max(0, Math.min(free, below)), "var(--free)"];
  const parts = [["live", it.allocated, "#3b82f6"], ["in limbo", it.active - it.allocated, "var(--limbo)"], ["cached", it.cached, "#94a3b8"], ["used elsewhere", limited ? 0 : it.used_elsewhere || 0, "#a855f7"], room].filter((part) => part[1] > 0);
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

function show() {
  place = null;
  if (!data.devices.length) return at("figures").replaceChildren(element("p", "No device was in use."));
  figures();
  draw();
  choose(null);
  tables();
}
at("about").textContent = `Taken ${new Date(data.time_us / 1000).toLocaleString()} by Cuddy ${data.library}; ${data.noted} events noted${data.lost ? `, the first ${data.lost} of them lost` : ""}.`;
at("device").replaceChildren(...data.devices.map((it, index) => element("option", String(it.device), { value: index })));
at("device").onchange = () => { chosen = Number(at("device").value); show(); };
at("bands").onchange = () => { draw(); choose(place); };
const dark = () => document.documentElement.dataset.theme === "dark";
const theme = (on) => { document.documentElement.dataset.theme = on ? "dark" : "light"; };
theme(matchMedia("(prefers-color-scheme: dark)").matches);
at("theme").onclick = () => { theme(!dark()); draw(); choose(place); };
at("nearer").onclick = () => zoom(0.5);
at("farther").onclick = () => zoom(2);
at("map").onmousemove = (event) => { const block = under(event); if (block !== focus) point(block); };
at("map").onkeydown = (event) => {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!by) return;
  step(by);
  event.preventDefault();
  event.stopPropagation();
};
addEventListener("keydown", (event) => {
  if (event.target.matches?.("select, input") || event.ctrlKey || event.altKey || event.metaKey || !data.devices.length) return;
  const line = device().timeline, last = line.seconds.length - 1, step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) { choose((place ?? last) + step); event.preventDefault(); }
  if (event.key === "p" && line.peaks.length) choose(line.peaks[(line.peaks.indexOf(place) + 1) % line.peaks.length]);
  if (event.key === "n") choose(null);
  if (event.key === "b") { at("bands").selectedIndex ^= 1; at("bands").onchange(); }
  if (event.key === "+") zoom(0.5);
  if (event.key === "-") zoom(2);
});
addEventListener("resize", () => {
  map();
  if (!plot) return;
  plot.setSize({ width: Math.max(300, at("timeline").clientWidth), height: 340 });
  waste.setSize({ width: Math.max(300, at("waste").clientWidth), height: 150 });
});
show();
document.documentElement.dataset.ready = "yes";
