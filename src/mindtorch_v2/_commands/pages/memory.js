// The page of a memory snapshot.
const NEVER = 0xFFFFFFFF;
let data, device, own, axis, cursor = 0, chosen = -1, byTime = false;
let order = new Float64Array(0);          // where each event is on the axis

function frameText(number) {
  const [name, file, line] = data.frames[number];
  return file ? `${file}:${line} ${name}` : name;
}

function headline(stack) {                // the innermost frame that is not a library's
  const frames = data.stacks[stack];
  const found = frames.find((n) => data.frames[n][1] && !/site-packages|dist-packages|\/torch\/|<frozen|\.(cpp|cc|h|cu)$|^\?\?$/.test(data.frames[n][1]));
  const brief = (n) => { const [name, file, line] = data.frames[n]; return file ? `${file.split("/").pop()}:${line} ${name}` : name; };
  return found === undefined || found === frames[0] ? brief(frames[0]) : `${brief(found)}, in ${brief(frames[0])}`;
}

function place(event) { return event === NEVER ? axis.full[1] : order[Math.min(event, order.length - 1)]; }

function eventAt(x) {
  let low = 0, high = order.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (order[middle] <= x) low = middle; else high = middle - 1; }
  return low;
}

function choose(index) {
  device = data.devices[index];
  own = {};
  for (const name of ["begin", "end", "stack", "size", "y", "time", "used", "reserved"]) own[name] = data.columns[name + index];
  chosen = -1;
  order = byTime ? own.time : Float64Array.from({ length: own.time.length }, (_, i) => i);
  axis.full = [0, order.length > 1 ? order[order.length - 1] * 1.02 || 1 : 1];
  axis.range = [...axis.full];
  const peak = own.used[device.peak];
  $("facts").textContent = `${device.events.toLocaleString("en")} events, ${own.begin.length.toLocaleString("en")} allocations, ` +
    `${device.segments.length} segments; peak ${bytes(peak)} in use, ${bytes(own.reserved[device.peak])} reserved` +
    (device.events ? "" : "; no history: call torch.npu.memory._record_memory_history() first");
  showFragmentation();
  move(device.peak);
}

function move(event) { cursor = Math.max(0, Math.min(event, order.length - 1)); rank(); axis.redraw(); }

function rank() {
  const totals = new Map();
  let live = 0, count = 0;
  for (let i = 0; i < own.begin.length; i++) {
    if (own.begin[i] <= cursor && (own.end[i] === NEVER || cursor < own.end[i])) {
      live += own.size[i]; count++;
      const entry = totals.get(own.stack[i]);
      if (entry) { entry[0] += own.size[i]; entry[1]++; } else totals.set(own.stack[i], [own.size[i], 1]);
    }
  }
  const what = cursor === device.peak ? "At the peak" : `At event ${cursor.toLocaleString("en")}`;
  $("moment").textContent = `${what}: ${bytes(live)} in ${count.toLocaleString("en")} allocations, by stack`;
  const ranked = [...totals].sort((a, b) => b[1][0] - a[1][0]).slice(0, 200);
  fill($("ranked"), ranked.map(([stack, [size, calls]]) => {
    const item = make("li");
    item.append(make("span", "", { class: "swatch" }), make("b", `${bytes(size)} ${(100 * size / (live || 1)).toFixed(1)}% `),
      make("span", headline(stack)), make("small", `  ${calls} allocation${calls > 1 ? "s" : ""}`));
    item.firstChild.style.background = color(stack);
    return item;
  }), (n) => { showStack(ranked[n][0], `${bytes(ranked[n][1][0])} in ${ranked[n][1][1]} allocations live at the cursor`); axis.redraw(); });
}

function showStack(stack, text) {
  $("chosen").replaceChildren(make("div", text), make("pre", data.stacks[stack].map(frameText).join("\n")));
}

function showAllocation(row) {
  chosen = row;
  const end = own.end[row] === NEVER ? "alive when the snapshot was taken" : `freed at event ${own.end[row]}, ` +
    `after ${duration(own.time[own.end[row]] - own.time[own.begin[row]])}`;
  showStack(own.stack[row], `${bytes(own.size[row])} allocated at event ${own.begin[row]}, ${end}`);
  axis.redraw();
}

function showFragmentation() {
  const head = make("tr");
  for (const name of ["stream, pool", "segments", "reserved", "free", "largest", "lost"]) head.append(make("th", name));
  $("fragmentation").replaceChildren(head, ...device.fragmentation.map((g) => {
    const row = make("tr"), lost = g.free ? `${(100 * (1 - g.largest / g.free)).toFixed(0)}%` : "-";
    for (const cell of [`${g.stream} ${g.type} ${g.pool}`, g.segments, bytes(g.reserved), bytes(g.free), bytes(g.largest), lost]) row.append(make("td", cell));
    row.lastChild.title = "share of the free memory that one request cannot have";
    return row;
  }));
  $("endings").textContent = device.problems.length ? `Out of memory ${device.problems.length} times` : "";
  fill($("problems"), device.problems.map((p) => make("li", `event ${p.event}: ${bytes(p.size)} asked, ${bytes(p.free)} free on the device`)),
    (n) => { move(device.problems[n].event); showStack(device.problems[n].stack, "asked for by"); });
}

function draw() { drawTotals(); drawMap(); drawSegments(); }

function drawTotals() {
  const [context, width, height] = sized($("totals"), 130), [begin, end] = axis.range;
  let most = 1;
  for (const value of own.reserved) if (value > most) most = value;
  for (const value of own.used) if (value > most) most = value;
  const x = (at) => (at - begin) / (end - begin) * width, y = (value) => height - 16 - value / most * (height - 24);
  for (const [values, fill] of [[own.reserved, style("--line")], [own.used, style("--mark")]]) {
    context.fillStyle = fill;
    const high = new Float64Array(Math.ceil(width) + 1);          // the most in each pixel
    let first = eventAt(begin), held = values[first] || 0, column = 0;
    for (let i = first; i < values.length && order[i] <= end; i++) {
      const at = Math.max(0, Math.min(high.length - 1, Math.floor(x(order[i]))));
      while (column < at) { column++; high[column] = held; }
      high[at] = Math.max(high[at], values[i]);
      held = values[i];
    }
    for (column++; column < high.length; column++) high[column] = held;
    for (let i = 0; i < high.length; i++) context.fillRect(i, y(high[i]), 1, height - 16 - y(high[i]));
  }
  context.fillStyle = style("--text");
  context.font = "11px system-ui";
  context.fillText(bytes(most), 4, 12);
  for (const at of axis.ticks(width)) context.fillText(byTime ? duration(at) : at.toLocaleString("en"), x(at), height - 3);
  context.fillRect(x(order[cursor]), 0, 1, height - 16);
}

function drawMap() {
  const canvas = $("map"), [context, width, height] = sized(canvas, 300), [begin, end] = axis.range;
  const w = canvas.width, h = canvas.height, image = context.createImageData(w, h), pixels = new Uint32Array(image.data.buffer);
  const scale = w / (end - begin), rise = h / (device.extent || 1), colors = data.stacks.map((_, n) => packed(n));
  for (let i = 0; i < own.begin.length; i++) {
    let left = (place(own.begin[i]) - begin) * scale, right = (place(own.end[i]) - begin) * scale;
    if (right < 0 || left > w) continue;
    left = Math.max(0, Math.floor(left)); right = Math.min(w, Math.max(left + 1, Math.round(right)));
    const low = Math.floor(own.y[i] * rise), high = Math.max(low + 1, Math.round((own.y[i] + own.size[i]) * rise));
    for (let y = low; y < high && y < h; y++) pixels.fill(colors[own.stack[i]], y * w + left, y * w + right);
  }
  context.putImageData(image, 0, 0);
  const x = (at) => (at - begin) / (end - begin) * width;
  if (chosen >= 0) {
    context.strokeStyle = style("--text"); context.lineWidth = 2;
    const left = x(place(own.begin[chosen]));
    context.strokeRect(left, own.y[chosen] / device.extent * height, Math.max(3, x(place(own.end[chosen])) - left), Math.max(3, own.size[chosen] / device.extent * height));
  }
  context.fillStyle = style("--text");
  context.fillRect(x(order[cursor]), 0, 1, height);
}

let blocks = [];
function drawSegments() {
  const shown = device.segments.slice(0, 400), row = 14;
  const [context, width] = sized($("segments"), Math.max(30, shown.length * row + 4));
  const most = Math.max(1, ...shown.map((s) => s.size));
  blocks = [];
  shown.forEach((segment, line) => {
    let at = 0;
    const y = 2 + line * row;
    for (const [size, state, stack] of segment.blocks) {
      const left = at / most * (width - 2), wide = size / most * (width - 2);
      if (state) { context.fillStyle = color(stack); context.fillRect(left, y, Math.max(wide - 0.5, 0.5), row - 3); }
      if (state === 2) { context.fillStyle = style("--back"); for (let k = left; k < left + wide; k += 6) context.fillRect(k, y, 2, row - 3); }
      blocks.push([line, left, left + wide, size, state, stack]);
      at += size;
    }
    context.strokeStyle = style("--dim"); context.lineWidth = 1;
    context.strokeRect(0.5, y - 0.5, segment.size / most * (width - 2), row - 2);
  });
}

function exportCounters() {
  const parts = ['{"traceEvents":['];
  for (let i = 0; i < own.time.length; i++)
    parts.push(`${i ? "," : ""}{"ph":"C","name":"memory","pid":${device.index},"ts":${own.time[i]},"args":{"in use":${own.used[i]},"reserved and free":${Math.max(own.reserved[i] - own.used[i], 0)}}}`);
  parts.push("]}");
  save("memory.json", parts);
}

function changeAxis(time) { byTime = time; $("axis").value = time ? "time" : "event"; const at = cursor; choose(device.index); move(at); }

function keys(event) {
  if (event.key === "p") { move(device.peak); axis.zoom(1, place(cursor)); }
  else if (event.key === "[") move(cursor - 1);
  else if (event.key === "]") move(cursor + 1);
  else if (event.key === "t") changeAxis(!byTime);
  else return false;
  return true;
}

readData().then((found) => {
  data = found;
  $("title").textContent = data.title;
  axis = new Axis(1, draw, keys);
  data.devices.forEach((d) => $("device").append(make("option", String(d.index), { value: d.index })));
  $("device").addEventListener("change", () => choose(Number($("device").value)));
  $("axis").addEventListener("change", () => changeAxis($("axis").value === "time"));
  $("peak").addEventListener("click", () => move(device.peak));
  $("perfetto").addEventListener("click", exportCounters);
  $("keys").addEventListener("click", () => axis.key("?"));
  axis.attach($("totals"), (x) => move(eventAt(x)));
  axis.attach($("map"), (x, event) => {
    const box = $("map").getBoundingClientRect(), y = (event.clientY - box.top) / box.height * device.extent, at = eventAt(x);
    move(at);
    for (let i = 0; i < own.begin.length; i++)
      if (own.y[i] <= y && y < own.y[i] + own.size[i] && own.begin[i] <= at && (own.end[i] === NEVER || at < own.end[i])) return showAllocation(i);
  });
  $("segments").addEventListener("click", (event) => {
    const box = $("segments").getBoundingClientRect(), x = event.clientX - box.left, line = Math.floor((event.clientY - box.top - 2) / 14);
    const hit = blocks.find((b) => b[0] === line && b[1] <= x && x < b[2]);
    if (hit) { const s = device.segments[line]; showStack(hit[5], `${bytes(hit[3])} ${["free", "in use", "waiting to be freed"][hit[4]]}, in segment ${s.address} of ${bytes(s.size)}, stream ${s.stream}`); if (!hit[4]) $("chosen").lastChild.remove(); }
  });
  choose((data.devices.find((d) => d.events || d.segments.length) || data.devices[0]).index);
  $("device").value = device.index;
  document.body.dataset.ready = "yes";
});
