// What both pages use: reading the data, numbers as text, an axis of time with zoom, keys and pointer.
"use strict";
const $ = (id) => document.getElementById(id);

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

async function readData() {
  const text = atob($("data").textContent), raw = new Uint8Array(text.length);
  for (let i = 0; i < raw.length; i++) raw[i] = text.charCodeAt(i);
  $("data").remove();
  const whole = await new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const length = Number(new DataView(whole).getBigUint64(0, true));
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 8, length)));
  const types = { Float64Array, Uint32Array, Uint16Array, Uint8Array };
  for (const [name, [type, offset, count]] of Object.entries(data.columns))
    data.columns[name] = new types[type](whole, 8 + length + offset, count);
  return data;
}

function bytes(n) {
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (n >= size) return (n / size).toFixed(n >= 100 * size ? 0 : n >= 10 * size ? 1 : 2) + " " + unit;
  return n + " B";
}

function duration(us) {
  for (const [size, unit] of [[1e6, "s"], [1e3, "ms"]]) if (us >= size) return (us / size).toPrecision(4) + " " + unit;
  return us.toPrecision(3) + " us";
}

const hues = (n) => (n * 137.508 + 20) % 360;
const color = (n) => `hsl(${hues(n)} 55% 55%)`;
const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function packed(n) {                       // the same color as one pixel
  const h = hues(n) / 60, c = 0.495, x = c * (1 - Math.abs(h % 2 - 1)), m = 0.3025;
  const [r, g, b] = [[c, x, 0], [x, c, 0], [0, c, x], [0, x, c], [x, 0, c], [c, 0, x]][Math.floor(h) % 6];
  return (255 << 24 | Math.round((b + m) * 255) << 16 | Math.round((g + m) * 255) << 8 | Math.round((r + m) * 255)) >>> 0;
}

function sized(canvas, height) {           // pixels of the screen, not of the page
  const scale = devicePixelRatio || 1, width = Math.max(50, canvas.clientWidth);
  const w = Math.round(width * scale), h = Math.round(height * scale);
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; canvas.style.height = height + "px"; }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width, height];
}

// A range of one axis that several canvases share. keys(event) of the page comes first.
class Axis {
  constructor(end, draw, keys) {
    this.full = [0, Math.max(end, 1e-6)]; this.range = [...this.full]; this.draw = draw; this.pending = false;
    document.addEventListener("keydown", (event) => {
      if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (keys(event) || this.key(event.key)) event.preventDefault();
    });
    addEventListener("resize", () => this.redraw());
  }
  redraw() {
    if (!this.pending) { this.pending = true; requestAnimationFrame(() => { this.pending = false; this.draw(); }); }
  }
  set(begin, end) {
    const [low, high] = this.full, least = (high - low) * 1e-9;
    let width = Math.min(Math.max(end - begin, least), high - low);
    begin = Math.min(Math.max(begin, low), high - width);
    this.range = [begin, begin + width];
    this.redraw();
  }
  zoom(factor, around) {
    const [begin, end] = this.range, at = around ?? (begin + end) / 2;
    this.set(at - (at - begin) * factor, at + (end - at) * factor);
  }
  show(begin, end) {                       // brings a span into view, with room around it
    const room = Math.max((end - begin) * 0.75, (this.full[1] - this.full[0]) * 1e-8);
    this.set(begin - room, end + room);
  }
  key(key) {
    const [begin, end] = this.range, step = (end - begin) / 8;
    if (key === "+" || key === "=" || key === "w") this.zoom(1 / 1.5);
    else if (key === "-" || key === "s") this.zoom(1.5);
    else if (key === "ArrowLeft" || key === "a") this.set(begin - step, end - step);
    else if (key === "ArrowRight" || key === "d") this.set(begin + step, end + step);
    else if (key === "Home" || key === "0") this.set(...this.full);
    else if (key === "?" || key === "h") $("help").open ? $("help").close() : $("help").showModal();
    else return false;
    return true;
  }
  at(canvas, event) {
    const box = canvas.getBoundingClientRect(), [begin, end] = this.range;
    return begin + (event.clientX - box.left) / box.width * (end - begin);
  }
  attach(canvas, click) {                  // wheel zooms, dragging moves, a click chooses
    canvas.addEventListener("wheel", (event) => {
      if (event.shiftKey) return;
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY * 0.002), this.at(canvas, event));
    }, { passive: false });
    let from = null, moved = false;
    canvas.addEventListener("pointerdown", (event) => { from = [event.clientX, ...this.range]; moved = false; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return;
      const distance = event.clientX - from[0];
      if (Math.abs(distance) > 3) moved = true;
      const step = distance / canvas.clientWidth * (from[2] - from[1]);
      if (moved) this.set(from[1] - step, from[2] - step);
    });
    canvas.addEventListener("pointerup", (event) => { if (from && !moved) click(this.at(canvas, event), event); from = null; });
  }
  ticks(width) {
    const [begin, end] = this.range, wanted = (end - begin) / Math.max(2, width / 110);
    const power = 10 ** Math.floor(Math.log10(wanted)), step = [1, 2, 5, 10].find((n) => n * power >= wanted) * power;
    const found = [];
    for (let at = Math.ceil(begin / step) * step; at <= end && found.length < 100; at += step) found.push(at);
    return found;
  }
}

// A list whose items are chosen by click, Enter, or the arrow keys.
function fill(list, items, choose) {
  list.replaceChildren(...items);
  items.forEach((item, place) => {
    item.tabIndex = place ? -1 : 0;
    item.setAttribute("role", "option");
    item.addEventListener("click", () => select(list, place, choose));
    item.addEventListener("keydown", (event) => {
      const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (move && list.children[place + move]) { list.children[place + move].focus(); event.preventDefault(); event.stopPropagation(); }
      else if (event.key === "Enter" || event.key === " ") { select(list, place, choose); event.preventDefault(); event.stopPropagation(); }
    });
  });
}

function select(list, place, choose) {
  for (const item of list.children) item.setAttribute("aria-selected", "false");
  list.children[place].setAttribute("aria-selected", "true");
  choose(place);
}

function save(name, parts) {
  const link = make("a", "", { download: name, href: URL.createObjectURL(new Blob(parts, { type: "application/json" })) });
  link.click();
  URL.revokeObjectURL(link.href);
}
