// Call sites: the functions that asked for memory, and who called them; then the tables of scopes and blocks.
let order = "live_bytes", site = null;

// The stacks, with what is live of them at the chosen moment.
function stacksThen() {
  const { stacks } = device().sites;
  if (place === null) return stacks;
  const then = stacks.map((stack) => ({ ...stack, live_bytes: 0, live_count: 0 }));
  for (const [, bytes, , stack] of living()) { then[stack].live_bytes += bytes; then[stack].live_count++; }
  return then;
}

function sites() {
  const { frames } = device().sites, stacks = stacksThen();
  const known = stacks.length > 1;
  at("unknown").hidden = known;
  at("known").hidden = !known;
  if (!known) return;
  const functions = new Map();
  for (const stack of stacks) {
    const name = stack.frames.length ? frames[stack.frames[0]][0] : "not known";
    const sum = functions.get(name) || { name, live_bytes: 0, live_count: 0, total_bytes: 0, total_count: 0, stacks: [] };
    for (const key of ["live_bytes", "live_count", "total_bytes", "total_count"]) sum[key] += stack[key];
    sum.stacks.push(stack);
    functions.set(name, sum);
  }
  const list = [...functions.values()].filter((it) => it.total_count || it.live_count).sort((a, b) => b[order] - a[order]).slice(0, 100);
  if (!list.some((it) => it.name === site)) site = list[0]?.name ?? null;
  const heads = [["function", null], [place === null ? "live" : "live then", "live_bytes"], ["blocks", "live_count"], ["over time", "total_bytes"], ["allocations", "total_count"]];
  const most = Math.max(1, ...list.map((it) => it[order]));
  const top = element("tr");
  for (const [text, key] of heads) {
    const head = element("th");
    if (key) {
      const button = element("button", text + (key === order ? " \u2193" : ""), { type: "button", class: "plain" });
      button.onclick = () => { order = key; sites(); };
      head.append(button);
    } else head.textContent = text;
    top.append(head);
  }
  const lines = list.map((it) => {
    const line = element("tr", undefined, { class: it.name === site ? "chosen" : "" }), name = element("td");
    const button = element("button", it.name, { type: "button", class: "plain", "aria-pressed": String(it.name === site) });
    button.onclick = () => { site = it.name; sites(); };
    name.append(button, element("div", undefined, { class: "share", style: `width:${(100 * it[order]) / most}%` }));
    line.append(name, ...[size(it.live_bytes), it.live_count, size(it.total_bytes), it.total_count].map((text) => element("td", text)));
    return line;
  });
  at("functions").replaceChildren(top, ...lines);
  callers(list.find((it) => it.name === site));
}

// The callers of a function, merged by function from the inside out, those with most bytes first.
function callers(it) {
  if (!it) return at("callers").replaceChildren();
  const { frames } = device().sites, bytes = (stacks) => stacks.reduce((sum, stack) => sum + stack[order], 0);
  const amount = (value) => (order.endsWith("bytes") ? size(value) : String(value));
  const level = (stacks, depth) => {
    const groups = new Map();
    for (const stack of stacks) {
      if (depth >= stack.frames.length) continue;
      const name = frames[stack.frames[depth]][0];
      groups.set(name, [...(groups.get(name) || []), stack]);
    }
    const list = element("ul");
    for (const [name, group] of [...groups].sort((a, b) => bytes(b[1]) - bytes(a[1])).slice(0, 20)) {
      const entry = element("li"), places = [...new Set(group.map((stack) => frames[stack.frames[depth]][1]))];
      entry.append(element("b", amount(bytes(group))), ` ${name} `, element("span", places.slice(0, 3).join(", "), { class: "address" }));
      if (depth < 60) entry.append(level(group, depth + 1));
      list.append(entry);
    }
    return list;
  };
  at("callers").replaceChildren(element("h3", `${it.name}, and who called it`), level(it.stacks, 0));
}

function tables() {
  const scopes = [...data.scopes].sort((a, b) => b.peak_bytes - a.peak_bytes);
  table(at("scopes"), ["scope", "runs", "live", "blocks", "peak", "over time", "allocations"], scopes.slice(0, 200).map((it) => [it.path || "all", it.runs, size(it.live_bytes), it.live_count, size(it.peak_bytes), size(it.total_bytes), it.total_count]));
  const groups = new Map(), free = new Map(), runs = new Map(data.scopes.map((row) => [row.scope, row.runs]));
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
  table(at("leaks"), ["scope", "run", "label", "blocks", "bytes", "largest"], live.map((it) => [path(it.scope), it.run ? `${it.run} of ${runs.get(it.scope)}` : "", it.label, it.count, size(it.bytes), size(it.largest)]));
  table(at("free"), ["from", "ranges", "bytes"], [...free].sort((a, b) => b[0] - a[0]).map(([power, [count, bytes]]) => [size(2 ** power), count, size(bytes)]));
}
