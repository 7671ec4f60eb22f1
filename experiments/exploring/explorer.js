// What is chosen, and the step that is played; `drawing.js` draws it.

const still = matchMedia("(prefers-reduced-motion: reduce)");
const find = id => document.getElementById(id);
const inputs = Object.fromEntries(["left", "right", "devices", "width", "speed", "place"].map(id => [id, find(id)]));
const FRAME_MS = 1800, RESTING = 0.35;
let frames = [], playing = false, done = 0, before = null;

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
  remember();
  go(Math.min(inputs.place.value, frames.length - 1));
}

// The address holds what is chosen, so that it can be passed on.
function remember() {
  const chosen = { left: data.rows[inputs.left.value].name, right: data.rows[inputs.right.value].name };
  const words = new URLSearchParams({ ...chosen, devices: data.devices[inputs.devices.value], width: data.widths[inputs.width.value] ?? "" });
  history.replaceState(null, "", `#${words}`);
}

function recall() {
  const words = new URLSearchParams(location.hash.slice(1)), names = data.rows.map(row => row.name);
  const known = { left: names, right: names, devices: data.devices.map(String), width: data.widths.map(String) };
  for (const [id, values] of Object.entries(known)) {
    const place = values.indexOf(words.get(id));
    inputs[id].value = place < 0 ? data.start[id] : place;
  }
}

function describe(side) {
  const { place, row, step, why } = side, part = name => place.querySelector(name);
  Object.assign(part("h3"), { textContent: row.name, className: row.framework });
  part(".summary").textContent = `${row.summary} ${row.emulated}`.trim();
  part(".mesh").textContent = step ? `On ${step.mesh.replaceAll(",", ", ")}. ${row.model}`.trim() : "";
  const button = part(".counterpart button");
  button.hidden = row.counterpart === null || inputs[other(side).name].value === `${row.counterpart}`;
  button.textContent = row.counterpart === null ? "" : `Show its counterpart next to it: ${data.rows[row.counterpart].name}`;
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

function show(side, { phase, number }) {
  const now = side.place.querySelector(".now"), own = moves(side);
  now.replaceChildren();
  for (const line of side.place.querySelectorAll(".moves [aria-current]")) line.removeAttribute("aria-current");
  side.shards = [];
  if (!side.step) { html(now, "b", "This strategy cannot take it"); now.append(side.why); return; }
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

for (const id of Object.keys(data.start)) inputs[id].addEventListener("input", choose);
window.addEventListener("hashchange", () => { recall(); choose(); });
recall();
[inputs.place.value, inputs.speed.value] = [0, "1"];
inputs.place.addEventListener("input", () => { play(false); go(inputs.place.value); });
const does = { play: () => play(!playing), back: () => step(-1), next: () => step(1) };
for (const [id, act] of Object.entries(does)) find(id).addEventListener("click", act);
for (const side of sides)
  side.place.querySelector(".counterpart button").addEventListener("click", () => { inputs[other(side).name].value = side.row.counterpart; choose(); });
document.addEventListener("keydown", event => {
  if (event.target.closest("input, select, button, summary, .scroll, a") || event.altKey || event.ctrlKey || event.metaKey) return;
  const act = { " ": does.play, ArrowRight: does.next, ArrowLeft: does.back }[event.key];
  if (act) { event.preventDefault(); act(); }
});
new ResizeObserver(() => { sides.forEach(draw); go(inputs.place.value); }).observe(document.querySelector(".sides"));
choose();
