"use strict";
{
  const data = JSON.parse(document.getElementById("steps").textContent);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const find = id => document.getElementById(id);
  const inputs = Object.fromEntries(["left", "right", "devices", "width", "speed", "place"].map(id => [id, find(id)]));
  const SVG = "http://www.w3.org/2000/svg";
  const FRAME_MS = 1800, ROW = 92, RESTING = 0.35;
  const PILL = { width: 62, height: 18 };
  let frames = [], playing = false, done = 0, before = null;

  // --- elements ------------------------------------------------------------------------------------------------------

  function put(parent, made, text, attributes) {
    made.textContent = text.replace(/ (?=[KMGT]?i?B\b)/g, "\u00a0");  // a number stays with its unit
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return parent.appendChild(made);
  }

  const html = (parent, tag, text = "", attributes = {}) => put(parent, document.createElement(tag), text, attributes);
  const svg = (parent, tag, attributes = {}, text = "") => put(parent, document.createElementNS(SVG, tag), text, attributes);

  // --- what is shown -------------------------------------------------------------------------------------------------

  // A point of the grid: what was measured there, if anything was, and what is predicted; or a sentence on why there is none.
  function chosen(side) {
    const row = data.rows[inputs[side].value];
    const key = [data.devices[inputs.devices.value], ...data.widths.slice(inputs.width.value)].slice(0, data.widths.length ? 2 : 1).join("/");
    const predicted = row.steps[key], measured = row.measured && row.measured.key === key ? row.measured.step : null;
    const why = typeof predicted === "string" ? predicted : "";
    return { row, why, predicted: why ? null : predicted, step: measured || (why ? null : predicted), how: measured ? "measured" : "predicted" };
  }

  function moves(side) { return side.step ? side.step.moves : []; }

  const sides = [...document.querySelectorAll(".side")].map(place => ({ place, name: place.dataset.side, shards: [] }));
  const other = side => sides.find(each => each !== side);

  function choose() {
    for (const id of ["devices", "width"]) {
      const values = id === "devices" ? data.devices : data.widths;
      const said = `${values[inputs[id].value] ?? ""}`;
      find(`${id}-said`).value = said;
      inputs[id].setAttribute("aria-valuetext", said);
    }
    sides.forEach(side => Object.assign(side, chosen(side.name)));
    frames = data.phases.flatMap((_, phase) => {
      const most = Math.max(...sides.map(side => moves(side).filter(move => move[0] === phase).length));
      return [...Array(most + 1).keys()].map(number => ({ phase, number: number - 1 }));
    });
    inputs.place.max = frames.length - 1;
    sides.forEach(describe);
    sides.forEach(draw);
    go(Math.min(inputs.place.value, frames.length - 1));
  }

  function describe(side) {
    const { place, row, step, why } = side, part = name => place.querySelector(name);
    Object.assign(part("h3"), { textContent: row.name, className: row.framework });
    part(".summary").textContent = `${row.summary} ${row.emulated}`.trim();
    const button = part(".twin button");
    button.hidden = row.twin === null || inputs[other(side).name].value === `${row.twin}`;
    button.textContent = row.twin === null ? "" : `Show its twin beside it: ${data.rows[row.twin].name}`;
    part(".totals").replaceChildren();
    (step ? step.totals : []).forEach((total, number) => {
      const box = html(part(".totals"), "div");
      html(box, "dt", data.totals[number]);
      const said = html(box, "dd", total[1], { "data-bytes": total[0] ?? "" });
      const how = side.how === "measured" ? `measured; predicted ${side.predicted?.totals[number][1] ?? "nothing"}` : "predicted";
      if (total[0] !== null) html(said, "small", how);
    });
    const listed = part(".moves");
    listed.replaceChildren();
    moves(side).forEach((move, number) => {
      const line = html(listed, "li", `${data.phases[move[0]].toLowerCase()}: ${move[1]} along ${move[2]}, ${move[6]} `);
      html(line, "small", side.how === "measured" ? `measured${beside(side, number)}` : "predicted");
    });
    if (step && !moves(side).length) html(listed, "li", "nothing");
    part(".about").replaceChildren();
    row.about.forEach(line => html(part(".about"), "p", line));
    part(".stage").hidden = Boolean(why);
  }

  // What was predicted of a measured exchange, where both steps have the same ones in the same order.
  function beside(side, number) {
    const predicted = side.predicted ? side.predicted.moves : [];
    const alike = predicted.length === moves(side).length && predicted.every((move, place) => move[1] === moves(side)[place][1]);
    return alike ? `; predicted ${predicted[number][6]}` : "";
  }

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

  function show(side, { phase, number }) {
    const now = side.place.querySelector(".now"), own = moves(side);
    now.replaceChildren();
    for (const line of side.place.querySelectorAll(".moves [aria-current]")) line.removeAttribute("aria-current");
    side.shards = [];
    if (!side.step) { html(now, "b", "This row cannot take it"); now.append(side.why); return; }
    const first = own.findIndex(move => move[0] === phase), here = own.filter(move => move[0] === phase);
    const move = number < 0 ? null : here[number];
    side.layer.replaceChildren();
    if (move) {
      const line = side.place.querySelectorAll(".moves li")[first + number], list = side.place.querySelector(".scroll");
      line.setAttribute("aria-current", "step");
      list.scrollTop = line.offsetTop - list.offsetTop - list.clientHeight / 2;
      html(now, "b", `${data.phases[phase]}: ${move[1]} along ${move[2]}, ${move[6]} (${side.how})`);
      now.append(move[7]);
      links(side, move);
    } else {
      html(now, "b", number < 0 || !here.length ? data.phases[phase] : `${data.phases[phase]}: nothing more is sent`);
      now.append(data.beginnings[phase] + (here.length ? "" : ` ${data.silent}`));
    }
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

  // --- playing -------------------------------------------------------------------------------------------------------

  function go(place) {
    inputs.place.value = place;
    const frame = frames[place], phases = document.querySelectorAll(".phases li");
    inputs.place.setAttribute("aria-valuetext", `${data.phases[frame.phase]}, ${Number(place) + 1} of ${frames.length}`);
    phases.forEach((phase, number) => number === frame.phase ? phase.setAttribute("aria-current", "step") : phase.removeAttribute("aria-current"));
    sides.forEach(side => show(side, frame));
    done = 0;
    move();
  }

  // Puts every shard where it is by now; at rest, and for those who want no motion, near the device that sends it.
  function move() {
    const share = playing && !still.matches ? done : RESTING;
    for (const { shard, line, length } of sides.flatMap(side => side.shards)) {
      const point = line.getPointAtLength(share * length);
      shard.setAttribute("transform", `translate(${point.x} ${point.y})`);
    }
  }

  function tick(time) {
    if (!playing) return;
    done += (time - (before ?? time)) / FRAME_MS * inputs.speed.value;
    before = time;
    if (done < 1) move();
    else if (Number(inputs.place.value) < frames.length - 1) go(Number(inputs.place.value) + 1);
    else play(false);
    requestAnimationFrame(tick);
  }

  function play(wanted) {
    if (wanted && Number(inputs.place.value) === frames.length - 1) go(0);
    [playing, before, done] = [wanted, null, 0];
    find("play").textContent = playing ? "Pause" : "Play";
    sides.forEach(side => side.place.querySelector(".now").setAttribute("aria-live", playing ? "off" : "polite"));
    move();
    if (playing) requestAnimationFrame(tick);
  }

  function step(by) {
    play(false);
    go(Math.max(0, Math.min(frames.length - 1, Number(inputs.place.value) + by)));
  }

  // --- what a reader does --------------------------------------------------------------------------------------------

  for (const [id, value] of Object.entries(data.start)) {
    inputs[id].value = value;
    inputs[id].addEventListener("input", choose);
  }
  [inputs.place.value, inputs.speed.value] = [0, "1"];
  inputs.place.addEventListener("input", () => { play(false); go(inputs.place.value); });
  const does = { play: () => play(!playing), back: () => step(-1), next: () => step(1) };
  for (const [id, act] of Object.entries(does)) find(id).addEventListener("click", act);
  for (const side of sides)
    side.place.querySelector(".twin button").addEventListener("click", () => { inputs[other(side).name].value = side.row.twin; choose(); });
  document.addEventListener("keydown", event => {
    if (event.target.closest("input, select, button, summary, .scroll, a") || event.altKey || event.ctrlKey || event.metaKey) return;
    const act = { " ": does.play, ArrowRight: does.next, ArrowLeft: does.back }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  new ResizeObserver(() => { sides.forEach(draw); go(inputs.place.value); }).observe(document.querySelector(".sides"));
  choose();
}
