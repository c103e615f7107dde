// The map: every segment with its blocks, now or at the chosen moment, in rows of equal length; the pages too.
const PAGE = 2 << 20, ROW = 20, GAP = 4, LEFT = 128;
const zooms = { device: null, row: 0, least: 0, most: 0 };
let rows = [], focus = null;

// What there was of addresses: the segments of now, and what only earlier blocks lay in.
const spaces = new Map();
function spacesOf(it) {
  if (spaces.has(it)) return spaces.get(it);
  const found = it.segments.map(([start, pool, cells]) => ({ start, end: start + cells.reduce((sum, cell) => sum + cell[0], 0), pool, gone: false }));
  found.sort((a, b) => a.start - b.start);
  const lost = [];
  for (const [address, bytes] of [...it.moments.blocks].sort((a, b) => a[0] - b[0])) {
    if (within(found, address)) continue;
    const start = address - (address % PAGE), end = Math.ceil((address + bytes) / PAGE) * PAGE, last = lost[lost.length - 1];
    if (last && start <= last.end) last.end = Math.max(last.end, end);
    else lost.push({ start, end, pool: 0, gone: true });
  }
  // They end where a segment of now begins.
  for (const space of lost) {
    const next = found.find((other) => other.start > space.start), before = found.findLast((other) => other.start <= space.start);
    if (next) space.end = Math.min(space.end, next.start);
    if (before) space.start = Math.max(space.start, before.end);
  }
  const all = [...found, ...lost].sort((a, b) => a.start - b.start);
  spaces.set(it, all);
  return all;
}
function within(list, address) {
  let low = 0, high = list.length;
  while (low < high) { const middle = (low + high) >> 1; if (list[middle].end <= address) low = middle + 1; else high = middle; }
  return low < list.length && list[low].start <= address ? list[low] : null;
}

// What is drawn: address, bytes, state, scope, and what is known besides.
function cells() {
  const found = [];
  if (place === null) {
    for (const [start, , list] of device().segments) {
      let address = start;
      for (const [bytes, requested, state, stream, scope, run, label, stack] of list) {
        if (state !== "free") found.push({ address, bytes, state, scope, stack, requested, stream, run, label });
        address += bytes;
      }
    }
  } else for (const [address, bytes, scope, stack] of living()) found.push({ address, bytes, state: "live", scope, stack });
  return found.sort((a, b) => a.address - b.address);
}

// How many bytes a row has: a power of two, at first such that all is seen in some thirty rows.
function measure(list) {
  if (zooms.device === device()) return;
  const all = list.reduce((sum, space) => sum + space.end - space.start, 0);
  const most = 2 ** Math.ceil(Math.log2(Math.max(PAGE, ...list.map((space) => space.end - space.start))));
  let row = PAGE;
  while (row < most && list.reduce((sum, space) => sum + Math.ceil((space.end - space.start) / row), 0) > 30) row *= 2;
  Object.assign(zooms, { device: device(), row, least: Math.max(1 << 16, 2 ** Math.ceil(Math.log2(all / 1500))), most });
}
function zoom(by) {
  zooms.row = Math.max(Math.min(zooms.row * by, zooms.most), Math.min(zooms.least, zooms.most));
  map();
}

function map() {
  if (!data.devices.length) return;
  const line = device().timeline, then = place !== null;
  const all = spacesOf(device()), list = all.filter((space) => !space.gone || then);
  measure(all);
  const shown = cells();
  at("when").textContent = at("when-sites").textContent = then ? `at ${line.seconds[place].toFixed(6)} s` : "now";
  rows = [];
  let first = 0;
  for (const space of list) {
    while (first < shown.length && shown[first].address + shown[first].bytes <= space.start) first++;
    const empty = first >= shown.length || shown[first].address >= space.end;
    if (space.gone && empty) continue;
    for (let start = space.start; start < space.end; start += zooms.row)
      rows.push({ start, end: Math.min(space.end, start + zooms.row), space, head: start === space.start, blocks: [] });
  }
  rows.length = Math.min(rows.length, 1500);
  for (const row of rows) row.y = 0;
  let y = 0;
  for (const row of rows) { if (row.head && y) y += GAP * 2; row.y = y; y += ROW; }
  let from = 0;
  for (const block of shown) {
    while (from < rows.length && rows[from].end <= block.address) from++;
    for (let row = from; row < rows.length && rows[row].start < block.address + block.bytes; row++) rows[row].blocks.push(block);
  }
  const canvas = at("map"), width = Math.max(300, canvas.parentElement.clientWidth - 2), ratio = devicePixelRatio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${y + 2}px`;
  canvas.width = width * ratio;
  canvas.height = (y + 2) * ratio;
  focus = null;
  paint(canvas, width, ratio);
  at("block").textContent = "\u00a0";
  tell(shown, line, then);
}

function paint(canvas, width, ratio) {
  const context = canvas.getContext("2d"), scale = (width - LEFT) / zooms.row;
  const free = colour("free"), limbo = colour("limbo"), text = colour("faint"), back = colour("back");
  const colourOf = new Map();
  const fill = ({ bytes, scope, state }) => {
    if (state !== "live") return limbo;
    const key = at("bands").value === "by_size" ? bytes : -scope;
    if (!colourOf.has(key)) colourOf.set(key, colour_of(bytes, scope));
    return colourOf.get(key);
  };
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "11px ui-monospace, monospace";
  context.textBaseline = "middle";
  for (const row of rows) {
    const left = LEFT, height = ROW - 3;
    context.fillStyle = text;
    if (row.head || zooms.row >= 1 << 20) context.fillText(hex(row.start), 0, row.y + height / 2 + 1);
    context.fillStyle = free;
    context.fillRect(left, row.y, (row.end - row.start) * scale, height);
    // Blocks narrower than a pixel share one: a pixel is drawn once a colour.
    let drawn = -1, last = null;
    for (const block of row.blocks) {
      const begin = Math.max(block.address, row.start), end = Math.min(block.address + block.bytes, row.end);
      const x = left + (begin - row.start) * scale, wide = (end - begin) * scale, paint = fill(block);
      if (wide < 1 && Math.floor(x) === drawn && paint === last) continue;
      drawn = Math.floor(x);
      last = paint;
      context.fillStyle = paint;
      context.fillRect(x, row.y, Math.max(wide > 3 ? wide - 0.75 : wide, 0.75), height);
    }
    // The bounds of pages, where they can be told apart.
    if (data.pages && PAGE * scale >= 5) {
      context.fillStyle = back;
      for (let page = Math.ceil((row.start + 1) / PAGE) * PAGE; page < row.end; page += PAGE) context.fillRect(left + (page - row.start) * scale - 0.25, row.y + height - 4, 1, 4);
    }
    if (focus && row.blocks.includes(focus)) {
      const begin = Math.max(focus.address, row.start), end = Math.min(focus.address + focus.bytes, row.end);
      context.strokeStyle = colour("text");
      context.lineWidth = 2;
      context.strokeRect(left + (begin - row.start) * scale, row.y + 0.5, Math.max((end - begin) * scale, 2), height - 1);
    }
  }
}

// The key of colours, and how many pages have nothing live: those can be mapped elsewhere, or go back.
function tell(shown, line, then) {
  const bands = line[at("bands").value].map((band, index) => [band.name, colours[index % colours.length]]);
  const keys = [...bands, ...(then ? [["not live", "var(--free)"]] : [["in limbo", "var(--limbo)"], ["free", "var(--free)"]])];
  at("keys").replaceChildren(...keys.flatMap(([name, paint]) => [element("span", undefined, { class: "key", style: `background:${paint}` }), `${name}\u2002 `]));
  const reserved = then ? line.reserved[place] : device().stats.reserved;
  const words = [`A row is ${size(zooms.row)}`];
  if (data.pages) {
    let used = 0, last = -1;
    for (const { address, bytes } of shown) {
      const begin = Math.max(Math.floor(address / PAGE), last + 1), end = Math.floor((address + bytes - 1) / PAGE);
      if (end >= begin) { used += end - begin + 1; last = end; }
    }
    const held = Math.round(reserved / PAGE);
    words.push(`of ${held} pages of 2 MiB ${Math.max(0, held - used)} have nothing live in them`);
  }
  const { least } = device().moments;
  if (then && least) words.push(`blocks of less than ${size(least)} are left out`);
  if (then) words.push("what is not live was free, in limbo or not mapped then: history does not tell");
  at("pages").textContent = `${words.join("; ")}.`;
}

// What is said of a block: what, whose, and where it was asked for.
function says(it) {
  const words = [`${hex(it.address)}: ${size(it.bytes)}, ${it.state}`];
  if (it.requested) words.push(`${size(it.requested)} asked for`);
  if (it.state === "live") words.push(path(it.scope) + (it.run ? ` (run ${it.run})` : ""));
  if (it.stream) words.push(`stream ${hex(it.stream)}`);
  if (it.label) words.push(it.label);
  const { stacks, frames } = device().sites, stack = stacks[it.stack]?.frames ?? [];
  if (stack.length) words.push(stack.slice(0, 4).map((frame) => frames[frame].join(" ")).join(" \u2190 "));
  return words.join(", ");
}
function point(block) {
  focus = block;
  const canvas = at("map");
  paint(canvas, parseFloat(canvas.style.width), devicePixelRatio);
  at("block").textContent = block ? says(block) : "\u00a0";
}
function under(event) {
  const canvas = at("map"), box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const row = rows.find((it) => y >= it.y && y < it.y + ROW);
  if (!row || x < LEFT) return null;
  const address = row.start + ((x - LEFT) * zooms.row) / (box.width - LEFT), near = zooms.row / (box.width - LEFT);
  return row.blocks.find((block) => block.address <= address + near && block.address + block.bytes > address - near) ?? null;
}
// The next block, or the one before.
function step(by) {
  const all = [...new Set(rows.flatMap((row) => row.blocks))];
  if (!all.length) return;
  const next = all[(all.indexOf(focus) + by + all.length) % all.length];
  point(next);
  const row = rows.find((it) => it.blocks.includes(next)), frame = at("map").parentElement;
  if (row && (row.y < frame.scrollTop || row.y + ROW > frame.scrollTop + frame.clientHeight)) frame.scrollTop = row.y - ROW;
}
