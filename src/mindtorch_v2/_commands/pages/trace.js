// The page of a trace.
const HEAD = 22, ROW = 17;
let data, axis, time, lasts, name, detail, tops = [], chosen = -1, wanted = null, found = [], marked = null;

function layout() {                       // where each row and each lane's title is
  tops = []; data.titles = [];
  let y = HEAD, lane = -1;
  for (const [of, depth] of data.rows) {
    if (of !== lane) { lane = of; y += 4; data.titles.push([y, lane]); y += 15; }
    tops.push(y);
    y += ROW;
  }
  data.height = y + 10;
}

function firstIn(row, moment) {           // the first event of a row that ends after a moment
  let [, , low, count] = row, high = low + count;
  while (low < high) { const middle = (low + high) >> 1; if (time[middle] + lasts[middle] < moment) low = middle + 1; else high = middle; }
  return low;
}

function draw() {
  const [context, width, height] = sized($("lanes"), Math.min(data.height, 30000)), [begin, end] = axis.range;
  const scale = width / (end - begin), text = style("--text"), plain = dark() ? "hsl(0 0% 35%)" : "hsl(0 0% 82%)";
  context.font = "11px system-ui"; context.textBaseline = "middle";
  if (marked) {
    context.fillStyle = dark() ? "#5a2d2d" : "#ffe1e1";
    context.fillRect((marked[0] - begin) * scale, HEAD, Math.max(1, marked[1] * scale), height);
  }
  data.rows.forEach((row, r) => {
    const last = row[2] + row[3], y = tops[r];
    let covered = -1;
    for (let e = firstIn(row, begin); e < last && time[e] < end; e++) {
      const left = Math.max(0, (time[e] - begin) * scale), right = Math.min(width, (time[e] + lasts[e] - begin) * scale);
      if (right <= covered && e !== chosen && !(wanted && wanted[name[e]])) continue;   // one bar for what shares a pixel
      const wide = Math.max(1, right - left - (right - left > 3 ? 0.5 : 0));
      context.fillStyle = wanted && !wanted[name[e]] ? plain : color(name[e]);
      context.fillRect(left, y, wide, ROW - 2);
      covered = Math.ceil(Math.max(right, left + 1)) - 0.001;
      if (wide > 30) {
        context.fillStyle = wanted && !wanted[name[e]] ? text : "#000";
        const room = Math.floor((wide - 4) / 5.6), label = data.names[name[e]];
        context.fillText(label.length > room ? label.slice(0, room) : label, left + 2, y + ROW / 2 - 1);
      }
      if (e === chosen) { context.strokeStyle = text; context.lineWidth = 2; context.strokeRect(left, y, Math.max(3, wide), ROW - 2); }
    }
  });
  context.fillStyle = text;
  for (const [y, lane] of data.titles) {
    const { group, label, device } = data.lanes[lane];
    context.font = "600 11px system-ui";
    context.fillText(`${device ? "▣" : "▤"} ${group} · ${label}`, 4, y + 8);
  }
  context.font = "11px system-ui";
  for (const at of axis.ticks(width)) { const x = (at - begin) * scale; context.fillRect(x, 0, 1, 5); context.fillText(duration(at), x + 3, 8); }
}

function rowOf(event) { return data.rows.findIndex((row) => row[2] <= event && event < row[2] + row[3]); }

function choose(event, show) {
  chosen = event;
  const lane = data.lanes[data.rows[rowOf(event)][0]];
  $("chosen").replaceChildren(make("b", data.names[name[event]]),
    make("div", `${duration(lasts[event])}, at ${duration(time[event])}, ${lane.group} · ${lane.label}`), make("pre", data.details[detail[event]]));
  if (show) {
    axis.show(time[event], time[event] + lasts[event]);
    const views = document.querySelector(".views"), y = tops[rowOf(event)];
    if (y < views.scrollTop || y > views.scrollTop + views.clientHeight - 40) views.scrollTop = y - 80;
  }
  axis.redraw();
}

function search(text) {
  const lower = text.toLowerCase();
  wanted = text ? data.names.map((n) => n.toLowerCase().includes(lower)) : null;
  found = [];
  if (wanted) for (let e = 0; e < name.length; e++) if (wanted[name[e]]) found.push(e);
  found.sort((a, b) => time[a] - time[b]);
  $("facts").textContent = text ? `${found.length.toLocaleString("en")} found` : data.facts;
  axis.redraw();
}

function step(way) {
  if (found.length) {
    const at = chosen < 0 ? -1 : found.indexOf(chosen);
    return choose(found[(at + way + found.length) % found.length], true);
  }
  const row = data.rows[chosen < 0 ? 0 : rowOf(chosen)];
  const next = chosen < 0 ? row[2] : Math.min(Math.max(chosen + way, row[2]), row[2] + row[3] - 1);
  choose(next, true);
}

function keys(event) {
  if (event.key === "/") $("find").focus();
  else if (event.key === "n") step(1);
  else if (event.key === "b") step(-1);
  else if (event.key === "f" && chosen >= 0) choose(chosen, true);
  else if (event.key === "Escape") { marked = null; axis.redraw(); }
  else return false;
  return true;
}

function showFindings() {
  for (const part of data.findings) {
    const list = make("ul", undefined, { class: "list", role: "listbox", "aria-label": part.title });
    $("findings").append(make("h2", part.count ? `${part.title}: ${part.total ? duration(part.total) + " in " : ""}${part.count}` : part.title));
    if (!part.count) { $("findings").append(make("div", part.nothing, { class: "dim" })); continue; }
    $("findings").append(list);
    fill(list, part.items.map((item) => {
      const line = make("li");
      line.append(make("b", item.duration === undefined ? "" : duration(item.duration) + " "), make("span", item.text));
      if (item.source) line.append(make("small", "  " + item.source));
      return line;
    }), (n) => {
      const item = part.items[n];
      if (item.time === undefined) return;
      marked = [item.time, item.duration || 0];
      axis.show(item.time, item.time + (item.duration || 0));
    });
  }
}

function showSummary() {
  const head = make("tr");
  for (const title of ["name", "calls", "host", "host self", "device"]) head.append(make("th", title));
  $("summary").replaceChildren(head, ...data.summary.slice(0, 300).map(([n, calls, host, self, device]) => {
    const row = make("tr");
    for (const cell of [data.names[n], calls, ...[host, self, device].map((us) => us ? duration(us) : "-")]) row.append(make("td", cell));
    row.addEventListener("click", () => { $("find").value = data.names[n]; search(data.names[n]); });
    return row;
  }));
}

function exportTrace() {
  const parts = ['{"traceEvents":['], groups = [...new Set(data.lanes.map((lane) => lane.group))];
  data.lanes.forEach((lane, n) => {
    const pid = groups.indexOf(lane.group);
    parts.push(JSON.stringify({ ph: "M", name: "process_name", pid, args: { name: lane.group } }), ",",
      JSON.stringify({ ph: "M", name: "thread_name", pid, tid: n, args: { name: lane.label } }), ",");
  });
  let first = true;
  for (const [lane, , begin, count] of data.rows)
    for (let e = begin; e < begin + count; e++) {
      parts.push((first ? "" : ",") + JSON.stringify({ ph: "X", name: data.names[name[e]], pid: groups.indexOf(data.lanes[lane].group), tid: lane,
        ts: time[e], dur: lasts[e], args: data.details[detail[e]] ? { detail: data.details[detail[e]] } : {} }));
      first = false;
    }
  parts.push("]}");
  save("trace.json", parts);
}

readData().then((read) => {
  data = read;
  ({ time, duration: lasts, name, detail } = data.columns);
  $("title").textContent = data.title;
  let end = 0;
  for (let e = 0; e < time.length; e++) end = Math.max(end, time[e] + lasts[e]);
  data.facts = `${time.length.toLocaleString("en")} events in ${data.lanes.length} lanes, ${duration(end)}` +
    (data.skipped ? `; ${data.skipped} without a time left out` : "");
  $("facts").textContent = data.facts;
  layout();
  axis = new Axis(end * 1.01, draw, keys);
  axis.attach($("lanes"), (at, event) => {
    const y = event.clientY - $("lanes").getBoundingClientRect().top, r = tops.findIndex((top) => top <= y && y < top + ROW);
    if (r < 0) return;
    const near = (axis.range[1] - axis.range[0]) / $("lanes").clientWidth * 2, e = firstIn(data.rows[r], at - near);
    if (e < data.rows[r][2] + data.rows[r][3] && time[e] <= at + near) choose(e, false);
  });
  $("find").addEventListener("input", () => search($("find").value));
  $("find").addEventListener("keydown", (event) => { if (event.key === "Enter") step(1); if (event.key === "Escape") $("find").blur(); });
  $("before").addEventListener("click", () => step(-1));
  $("after").addEventListener("click", () => step(1));
  $("perfetto").addEventListener("click", exportTrace);
  $("keys").addEventListener("click", () => axis.key("?"));
  showFindings();
  showSummary();
  axis.redraw();
  document.body.dataset.ready = "yes";
});
