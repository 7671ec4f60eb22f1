// What is drawn of a step: devices with what they hold, and shards on the links between them. `explorer.js` says which step.

const data = JSON.parse(document.getElementById("steps").textContent);
const SVG = "http://www.w3.org/2000/svg", ROW = 92, PILL = { width: 62, height: 18 };

// --- elements ------------------------------------------------------------------------------------------------------

function put(parent, made, text, attributes) {
  made.textContent = text.replace(/ (?=[KMGT]?i?B\b)/g, "\u00a0");  // a number stays with its unit
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return parent.appendChild(made);
}

const html = (parent, tag, text = "", attributes = {}) => put(parent, document.createElement(tag), text, attributes);
const svg = (parent, tag, attributes = {}, text = "") => put(parent, document.createElementNS(SVG, tag), text, attributes);

// --- the drawing ---------------------------------------------------------------------------------------------------

function draw(side) {
  const stage = side.place.querySelector(".stage"), step = side.step;
  const width = stage.clientWidth;
  if (!step || !width) return;
  stage.replaceChildren();
  const box = Math.min(Math.round(width * .62), 400), bar = box - 140;
  const height = step.devices.length * ROW;
  const root = svg(stage, "svg", { class: "drawing", width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  root.setAttribute("aria-label", `${side.row.name} on ${step.mesh}: ${inWords(step)}`);
  const both = sides.filter(each => each.step).map(each => each.step);
  const most = Math.max(...both.flatMap(each => [...each.wholes, ...each.devices.flatMap(longest)]));
  const scale = bar / (most || 1);
  step.devices.forEach((device, number) => drawDevice(root, device, number * ROW, { box, scale, wholes: step.wholes }));
  Object.assign(side, { root, width, box, layer: svg(root, "g") });
}

const longest = ([, , held, peak, kept]) => [...held.map(each => each[1]), peak[0], kept[0] ?? 0];

function inWords(step) {
  return step.devices.map(([name, batch, held]) => `${name}${batch && `, ${batch}`}: ` + held.map((each, kind) => `${data.classes[kind][1]} ${each[2]}`).join(", ")).join(". ");
}

function drawDevice(root, [name, batch, held, peak, kept], top, { box, scale, wholes }) {
  const group = svg(root, "g", { class: "device", "data-device": name, "data-batch": batch });
  svg(group, "rect", { class: "box", x: .5, y: top + 3, width: box - 1, height: ROW - 7, rx: 6 });
  svg(group, "text", { class: "strong", x: 8, y: top + 18 }, name);
  svg(group, "text", { class: "muted small", x: 8, y: top + 32 }, batch || "takes no examples");
  const bars = [...held.map((each, kind) => [...each, wholes[kind], data.classes[kind][0]]), [0, kept[0] ?? 0, kept[1], kept[0] ?? 0, "activations"]];
  bars.forEach(([begin, count, said, whole, kind], number) => {
    const y = top + 38 + 12 * number;
    if (count < whole) svg(group, "rect", { class: "whole", x: 8, y, width: whole * scale, height: 9 });
    svg(group, "rect", { class: kind, x: 8 + begin * scale, y, width: count * scale, height: 9, "data-bytes": count });
    svg(group, "rect", { fill: kind === "params" ? "none" : `url(#hatch-${kind})`, x: 8 + begin * scale, y, width: count * scale, height: 9 });
    let end = Math.max(whole, begin + count);
    if (kind === "params" && peak[0]) {
      svg(group, "path", { class: "peak", d: `M8 ${y - 2}H${8 + peak[0] * scale}v4`, "data-bytes": peak[0], "stroke-width": 1.5 });
      end = Math.max(end, peak[0]);
    }
    svg(group, "text", { class: "small", x: 14 + end * scale, y: y + 8 }, said);
  });
  svg(group, "circle", { class: "port", cx: box, cy: top + ROW / 2, r: 4 });
}

// An arc from the port of one device to that of another; those that go up swing out further than those that go down.
function arc(side, start, end) {
  const [from, to] = [start, end].map(place => place * ROW + ROW / 2), far = Math.abs(start - end);
  const room = (side.width - side.box - PILL.width / 2 - 4) / .75;
  const swing = Math.min(room, 46 + 14 * (far - 1) + (start > end ? 44 : 0));
  return `M${side.box} ${from}C${side.box + swing} ${from} ${side.box + swing} ${to} ${side.box} ${to}`;
}

function links(side, [, , , spelled, bytes, said, , sentence]) {
  const senders = new Set();
  for (const [start, end] of spelled.split(" ").filter(Boolean).map(link => link.split("-").map(Number))) {
    const line = svg(side.layer, "path", { class: "link", d: arc(side, start, end) });
    const length = line.getTotalLength();
    const group = { "data-from": start, "data-to": end, "data-bytes": bytes, class: "shard" };
    const shard = svg(side.layer, "g", group), is_first = !senders.has(start);
    senders.add(start);
    if (is_first) {
      svg(shard, "rect", { x: -PILL.width / 2, y: -PILL.height / 2, ...PILL, rx: 9 });
      svg(shard, "text", { class: "small middle", y: 4 }, said);
    } else svg(shard, "circle", { r: 4 });
    svg(shard, "title", {}, `${said} from ${side.step.devices[start][0]} to ${side.step.devices[end][0]}. ${sentence}`);
    const tip = line.getPointAtLength(length);
    svg(side.layer, "path", { class: "tip", d: `M${tip.x + 2} ${tip.y}l9 -5v10z` });
    side.shards.push({ shard, line, length });
  }
  for (const { shard } of side.shards) side.layer.append(shard);  // above all links
}
