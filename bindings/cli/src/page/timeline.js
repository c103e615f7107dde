// Live bytes over time, the fragmentation below it, and the moment that is chosen.
let plot = null, waste = null;

function draw() {
  const line = device().timeline, bands = line[at("bands").value], failures = device().failures;
  if (plot) plot.destroy();
  plot = null;
  const jump = (text, where, kind) => {
    const button = element("button", text, { type: "button", class: kind, "data-point": where });
    button.onclick = () => choose(where);
    return button;
  };
  const now = element("button", "now", { type: "button", "data-point": "now" });
  now.onclick = () => choose(null);
  at("peaks").replaceChildren(
    ...line.peaks.map((where, rank) => jump(`${rank ? "" : "peak "}${size(line.live[where])} at ${line.seconds[where].toFixed(3)} s`, where, "peak")),
    ...failures.slice(-3).map((it) => jump(`no memory at ${it.seconds.toFixed(3)} s`, it.point, "failure")), now);
  if (line.seconds.length < 2 || !bands.length) {
    at("timeline").replaceChildren(element("p", "No history was kept: call cuddy_record_history(), or cuddy.memory.record_history(), before what is to be seen."));
    at("wasted").hidden = true;
    at("peaks").hidden = true;
    return;
  }
  at("peaks").hidden = false;
  // Stacked: each band is drawn over all below it.
  const sums = new Array(line.seconds.length).fill(0);
  const stacked = bands.map((band) => band.bytes.map((bytes, index) => (sums[index] += bytes)));
  const text = colour("text"), faint = colour("grid");
  const stepped = { paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } };
  const seconds = { label: "at", value: (_, value) => (value === null ? "\u2013" : `${value.toFixed(4)} s`) };
  const series = [seconds], columns = [line.seconds];
  for (let index = bands.length - 1; index >= 0; index--) {
    const paint = colours[index % colours.length];
    series.push({ label: bands[index].name, stroke: paint, fill: paint + "cc", width: 1, ...stepped, value: (_, __, ___, where) => (where === null ? "\u2013" : size(bands[index].bytes[where])) });
    columns.push(stacked[index]);
  }
  series.push({ label: "reserved", stroke: text, width: 1.5, dash: [6, 4], ...stepped, value: (_, value) => (value === null ? "\u2013" : size(value)) });
  columns.push(line.reserved);
  const axis = { stroke: colour("faint"), grid: { stroke: faint, width: 1 }, ticks: { stroke: faint, width: 1 } };
  const times = { ...axis, values: (_, values) => values.map((value) => `${value} s`) };
  plot = new uPlot({
    width: Math.max(300, at("timeline").clientWidth), height: 340, series, cursor: { sync: { key: "time" } },
    scales: { x: { time: false } },
    axes: [times, { ...axis, size: 80, incrs: Array.from({ length: 50 }, (_, power) => 2 ** power), values: (_, values) => values.map((value) => size(value)) }],
    hooks: { draw: [(it) => mark(it, line, failures)] },
  }, columns, (at("timeline").replaceChildren(), at("timeline")));
  at("wasted").hidden = false;
  if (waste) waste.destroy();
  waste = new uPlot({
    width: Math.max(300, at("waste").clientWidth), height: 150, cursor: { sync: { key: "time" } },
    series: [seconds, { label: "not live", stroke: "#ef4444", fill: "#ef444433", width: 1, ...stepped, value: (_, value) => (value === null ? "\u2013" : `${value.toFixed(1)} %`) }],
    scales: { x: { time: false }, y: { range: [0, 100] } },
    axes: [times, { ...axis, size: 80, values: (_, values) => values.map((value) => `${value} %`) }],
    hooks: { draw: [(it) => mark(it, line, [])] },
  }, [line.seconds, wasted(line)], at("waste"));
  for (const it of [plot, waste]) {
    it.over.addEventListener("click", () => { if (it.cursor.idx !== null) choose(it.cursor.idx); });
    it.over.addEventListener("mouseleave", () => setTimeout(told));
  }
}

// The share of what is reserved that is not live, in percent; nothing where nothing is reserved.
const wasted = (line) => line.reserved.map((bytes, index) => (bytes > 0 ? Math.max(0, 100 * (1 - line.live[index] / bytes)) : null));

// Peaks are dots, requests that found no memory are triangles, the chosen moment is a line.
function mark(it, line, failures) {
  const context = it.ctx, bytes = it === plot || plot === null || it.series.length > 2;
  context.save();
  context.beginPath();
  context.rect(it.bbox.left, it.bbox.top, it.bbox.width, it.bbox.height);
  context.clip();
  context.fillStyle = colour("text");
  for (const where of bytes ? line.peaks : []) {
    const x = it.valToPos(line.seconds[where], "x", true), y = it.valToPos(line.live[where], "y", true);
    context.beginPath(); context.arc(x, y, 4 * devicePixelRatio, 0, 7); context.fill();
  }
  if (place !== null) {
    const x = it.valToPos(line.seconds[place], "x", true);
    context.fillRect(x - devicePixelRatio / 2, it.bbox.top, 1.5 * devicePixelRatio, it.bbox.height);
  }
  context.fillStyle = "#ef4444";
  for (const { seconds } of failures) {
    const x = it.valToPos(seconds, "x", true), half = 6 * devicePixelRatio, top = it.bbox.top;
    context.beginPath(); context.moveTo(x - half, top); context.lineTo(x + half, top); context.lineTo(x, top + 2 * half); context.fill();
  }
  context.restore();
}

// Chooses a point of the timeline, or now; the map of addresses shows it too.
function choose(where) {
  const line = device().timeline;
  place = where === null || !line.seconds.length ? null : Math.max(0, Math.min(where, line.seconds.length - 1));
  for (const button of at("peaks").children) button.setAttribute("aria-pressed", String(button.dataset.point === String(place ?? "now")));
  for (const it of plot ? [plot, waste] : []) it.redraw(false);
  setTimeout(told); // not before a plot that was just made has drawn itself
  map();
  sites();
  if (place === null) return at("moment").replaceChildren();
  const head = element("p", `At ${line.seconds[place].toFixed(6)} s: ${size(line.live[place])} live, ${size(line.reserved[place])} reserved.`);
  const largest = element("table"), holders = element("table"), both = element("div", undefined, { class: "two" });
  const live = [...living()].sort((a, b) => b[1] - a[1]);
  table(largest, ["largest blocks then", "bytes", "scope"], live.slice(0, 10).map(([address, bytes, scope]) => [hex(address), size(bytes), path(scope)]));
  const bands = line.by_scope.map((band) => [band.name, band.bytes[place]]).filter((row) => row[1]).sort((a, b) => b[1] - a[1]);
  table(holders, ["scope", "live then"], bands.map(([name, bytes]) => [name, size(bytes)]));
  both.append(largest, holders);
  at("moment").replaceChildren(head, both);
}

// Without a pointer on it, the legend tells of the chosen moment.
function told() {
  if (!plot) return;
  const idx = place ?? device().timeline.seconds.length - 1;
  for (const it of [plot, waste]) it.setLegend({ idx });
}

// The blocks of the chosen moment: kept from one choice to the next, and only what changes is done.
const walk = { device: null, point: -1, live: new Set() };
function living() {
  const { blocks, changes } = device().moments;
  if (walk.device !== device()) Object.assign(walk, { device: device(), point: -1, live: new Set() });
  const toggle = (block) => { if (!walk.live.delete(block)) walk.live.add(block); };
  while (walk.point < place) changes[++walk.point].forEach(toggle);
  while (walk.point > place) changes[walk.point--].forEach(toggle);
  return [...walk.live].map((block) => blocks[block]);
}
