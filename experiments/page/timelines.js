// The timelines: all of them are zoomed together, say what is under the pointer, and go to Perfetto.
{
  const PERFETTO = "https://ui.perfetto.dev";
  const figure = document.querySelector("#timeline figure");
  const drawings = figure ? [...figure.querySelectorAll("svg[data-axis]")] : [];
  const axes = drawings.map(drawing => drawing.dataset.axis.split(" ").map(Number));
  let from = 0, to = axes.length ? axes[0][2] : 0;

  function times(node) {
    const [start, length] = node.dataset.us.split(" ").map(Number);
    return [start, start + length];
  }

  // 1, 2 or 5 times a power of ten, at most eight of them.
  function tickOf(length) {
    const power = 10 ** Math.floor(Math.log10(length / 7));
    return [1, 2, 5, 10].map(digit => digit * power).find(step => step >= length / 7);
  }

  function drawTicks(drawing, left, right) {
    const group = drawing.querySelector(".ticks"), unit = group.lastElementChild;
    const line = group.querySelector("path"), text = group.querySelector("text");
    const [, , top, , bottom] = line.getAttribute("d").split(/[ML ]/);
    const step = tickOf(to - from), made = [];
    for (let value = Math.ceil(from / step) * step; value <= to; value += step) {
      const x = left + (value - from) / (to - from) * (right - left);
      const ownLine = line.cloneNode(), ownText = text.cloneNode();
      ownLine.setAttribute("d", `M${x} ${top}L${x} ${bottom}`);
      ownText.setAttribute("x", x);
      ownText.textContent = Number((value / 1000).toPrecision(6));
      made.push(ownLine, ownText);
    }
    group.replaceChildren(...made, unit);
  }

  function drawAll() {
    drawings.forEach((drawing, index) => {
      const [left, right] = axes[index];
      const place = time => left + (time - from) / (to - from) * (right - left);
      for (const node of drawing.querySelectorAll("[data-us]")) {
        const [start, end] = times(node).map(place);
        const isSeen = end > left && start < right;
        if (node.tagName === "rect") {
          const x = Math.max(start, left);
          node.setAttribute("x", x);
          node.setAttribute("width", Math.max(Math.min(end, right) - x, 0.4));
          node.style.display = isSeen ? "" : "none";
        } else if (node.tagName === "text") {
          node.setAttribute("x", (start + end) / 2);
          const isWhole = start >= left && end <= right && end - start >= 13 + 3 * (node.textContent.length - 1);
          node.setAttribute("visibility", isWhole ? "visible" : "hidden");
        } else {
          const [, , top, , bottom] = node.getAttribute("d").split(/[ML ]/);
          node.setAttribute("d", `M${start} ${top}L${end} ${bottom}`);
          node.style.display = start >= left && end <= right ? "" : "none";
        }
      }
      drawTicks(drawing, left, right);
    });
  }

  // Never beyond the axis, nor closer than a microsecond.
  function look(start, length) {
    const most = axes[0][2];
    length = Math.min(Math.max(length, 1), most);
    from = Math.min(Math.max(start, 0), most - length);
    to = from + length;
    drawAll();
  }

  const zoom = (factor, middle = (from + to) / 2) => look(middle - (middle - from) * factor, (to - from) * factor);
  const move = share => look(from + share * (to - from), to - from);
  const MOVES = {
    "Zoom in": () => zoom(0.5), "Zoom out": () => zoom(2), "Earlier": () => move(-0.5), "Later": () => move(0.5),
    "Whole axis": () => look(0, axes[0][2]),
  };

  function button(text, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", act);
    return made;
  }

  // What is drawn, as a trace of Chrome: a process for each device, a thread for each kind of bar.
  function traceOf(drawing) {
    const devices = [...drawing.querySelectorAll(".device")], kinds = ["data", "compute", "flight", "idle"];
    const events = devices.flatMap((device, pid) => [
      {ph: "M", pid, tid: 0, name: "process_name", args: {name: device.dataset.device}},
      ...kinds.map((name, tid) => ({ph: "M", pid, tid, name: "thread_name", args: {name}})),
      ...[...device.querySelectorAll("rect[data-us]")].map(bar => {
        const [ts, end] = times(bar), tid = kinds.indexOf(bar.getAttribute("class"));
        return {ph: "X", pid, tid: tid < 0 ? 1 : tid, ts, dur: end - ts, name: bar.querySelector("title").textContent};
      }),
    ]);
    return JSON.stringify({traceEvents: events});
  }

  // Perfetto answers once it is there, and takes the trace from this page: nothing is uploaded.
  function openInPerfetto(drawing) {
    const opened = window.open(PERFETTO);
    if (!opened) return;
    const buffer = new TextEncoder().encode(traceOf(drawing)).buffer;
    const title = drawing.querySelector("title").textContent;
    const timer = setInterval(() => opened.postMessage("PING", PERFETTO), 100);
    window.addEventListener("message", function ready(event) {
      if (event.source !== opened || event.data !== "PONG") return;
      clearInterval(timer);
      window.removeEventListener("message", ready);
      opened.postMessage({perfetto: {buffer, title}}, PERFETTO);
    });
  }

  if (drawings.length) {
    const tools = document.createElement("p"), said = document.createElement("output");
    tools.className = "tools timeline-tools";
    tools.append(...Object.entries(MOVES).map(([text, act]) => button(text, act)), said);
    figure.prepend(tools);
    figure.addEventListener("pointerover", event => {
      const bar = event.target.closest("rect[data-us]");
      if (!bar) return;
      const device = bar.closest(".device").dataset.device, start = (times(bar)[0] / 1000).toPrecision(3);
      said.value = `${device}: ${bar.querySelector("title").textContent}, from ${start} ms`;
    });
    figure.addEventListener("click", event => {
      const bar = event.target.closest("rect[data-us]");
      if (bar) look(times(bar)[0] - (times(bar)[1] - times(bar)[0]) / 2, 2 * (times(bar)[1] - times(bar)[0]));
    });
    for (const drawing of drawings) {
      const below = document.createElement("p");
      below.className = "tools";
      below.append(button("Open in Perfetto", () => openInPerfetto(drawing)));
      drawing.closest(".scroll").after(below);
    }
  }
}
