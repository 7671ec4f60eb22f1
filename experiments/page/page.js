"use strict";
{
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const lines = [...body.rows];
  const values = new Map(lines.map(line => [line, [...line.cells].map((cell, index) => index ? valued(cell.dataset.v) : cell.textContent)]));
  const letters = new Intl.Collator();
  const words = new Map(lines.map(line => [line, line.textContent.toLowerCase()]));

  // The number that a cell stands for, its text if it is none, or null.
  function valued(text) {
    return text === undefined ? null : Number.isNaN(Number(text)) ? text : Number(text);
  }

  // Numbers by size, text by letter; what has no value comes last in either direction.
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    const difference = a - b;
    return sign * (Number.isNaN(difference) ? letters.compare(a, b) : difference);
  }

  // The first click on a heading puts what is best first; the next one turns it round.
  function turned(column) {
    const head = heads[column], other = {ascending: "descending", descending: "ascending"};
    return other[head.ariaSort] ?? head.dataset.first ?? "ascending";
  }

  function sort(column, direction) {
    const ascending = direction === "ascending";
    heads.forEach((head, index) => { head.ariaSort = index === column ? (ascending ? "ascending" : "descending") : "none"; });
    const sorted = [...lines].sort((a, b) => compare(values.get(a)[column], values.get(b)[column], ascending ? 1 : -1));
    body.remove();  // lines that are moved while they are shown are laid out one by one, which takes a third longer
    body.append(...sorted);
    table.append(body);
  }

  function filter(text) {
    const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
    const left = new Set();
    for (const line of lines) {
      line.hidden = !wanted.every(word => words.get(line).includes(word));
      if (line.hidden) left.add(line.dataset.row);
    }
    const total = `${lines.length} ${lines.length === 1 ? "row" : "rows"}`;
    document.getElementById("found").value = left.size ? `${lines.length - left.size} of ${total}` : total;
    for (const mark of document.querySelectorAll("figure [data-row]"))
      mark.classList.toggle("dimmed", left.has(mark.dataset.row));
  }

  // Buttons for the rows of a figure, which pick them out of its curves; those of many rows are made once they are asked for.
  const MOST_OPEN = 40;
  function offer(figure) {
    const curves = [...figure.querySelector(".panel").querySelectorAll(".curve")], list = element("ul");
    const rows = curves.map(curve => rowOf.get(curve.dataset.row)).sort((a, b) => a - b);
    const choice = element("details", "", element("summary", `Pick out rows among ${rows.length}`), list);
    list.className = "legend";
    const fill = () => list.children.length || list.append(...rows.map(index => element("li", "", pickButton(index))));
    choice.addEventListener("toggle", fill);
    if (choice.open = rows.length <= MOST_OPEN) fill();
    figure.append(choice);
  }

  function pickButton(index) {
    const button = element("button", names[index]);
    Object.assign(button, {type: "button", ariaPressed: "false", className: lines[index].cells[0].firstElementChild.className});
    button.dataset.pick = lines[index].dataset.row;
    button.addEventListener("click", () => pick(button));
    return button;
  }

  function pick(button) {
    const figure = button.closest("figure");
    button.ariaPressed = button.ariaPressed !== "true";
    const picked = new Set([...figure.querySelectorAll("[aria-pressed=true]")].map(each => each.dataset.pick));
    figure.classList.toggle("picked", picked.size > 0);
    for (const curve of figure.querySelectorAll(".curve")) curve.classList.toggle("on", picked.has(curve.dataset.row));
  }

  // --- the view, which the address keeps ---

  const titles = heads.map(head => head.textContent.trim());
  const usual = heads.findIndex(head => head.ariaSort !== "none");
  const names = lines.map(line => line.cells[0].textContent.trim());
  const rowOf = new Map(lines.map((line, index) => [line.dataset.row, index]));

  // A name, or where two rows have the same one, the key of the row.
  function called(index) {
    return names.indexOf(names[index]) === names.lastIndexOf(names[index]) ? names[index] : lines[index].dataset.row;
  }

  // Once what changed is drawn: writing the address of a long page takes as long as sorting it.
  let changes = null;
  function keep(change) {
    if (!changes) requestAnimationFrame(() => setTimeout(writeAddress));
    changes = {...changes, ...change};
  }

  function writeAddress() {
    const view = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    for (const [name, value] of Object.entries(changes)) value ? view.set(name, value) : view.delete(name);
    changes = null;
    const text = view.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }

  function show() {
    if (location.hash && !location.hash.includes("=")) return;  // a section: the view stays
    const view = new URLSearchParams(location.hash.slice(1));
    const column = titles.indexOf(view.get("sort"));
    if (column >= 0) sort(column, view.get("order") === "ascending" ? "ascending" : "descending");
    else if (usual >= 0) sort(usual, "descending");
    const search = document.getElementById("filter");
    if (search.value !== (view.get("filter") ?? "")) filter(search.value = view.get("filter") ?? "");
    const index = lines.findIndex((line, each) => view.has("row") && called(each) === view.get("row"));
    if (index >= 0) open(index);
    else if (card.open) card.close();
  }

  // --- a card: everything that the page has on one row ---

  const card = document.createElement("dialog");
  card.id = "card";
  card.setAttribute("aria-labelledby", "card-title");
  document.body.append(card);
  card.addEventListener("close", () => keep({row: ""}));
  card.addEventListener("click", event => { if (event.target === card) card.close(); });  // beside it

  function element(kind, text, ...children) {
    const made = document.createElement(kind);
    if (text) made.textContent = text;
    made.append(...children);
    return made;
  }

  // A copy that nothing refers to.
  function copy(node) {
    const made = node.cloneNode(true);
    for (const each of [made, ...made.querySelectorAll("[id]")]) each.removeAttribute("id");
    return made;
  }

  // What a figure shows of a row: its lines along their axis, its curve, or its drawing; nothing if it has none.
  function partOf(figure, key) {
    const own = `[data-row="${key}"]`;
    const drawing = figure.querySelector(`details${own} > .scroll`);
    if (drawing) return [copy(drawing)];
    const found = [];
    for (const each of figure.querySelectorAll(".plot, .panel")) {
      if (!each.querySelector(`.lines > ${own}, .curve${own}`)) continue;
      const part = copy(each);
      for (const other of part.querySelectorAll(`.lines > [data-row]:not(${own}), .curve:not(${own})`)) other.remove();
      found.push(part);
    }
    return found;
  }

  function facts(line) {
    const list = element("dl");
    [...line.cells].slice(1).forEach((cell, index) => {
      if (cell.textContent.trim()) list.append(element("div", "", element("dt", titles[index + 1]), copyInto("dd", cell)));
    });
    return list;
  }

  function copyInto(kind, node) {
    const made = element(kind);
    made.append(...[...node.childNodes].map(each => each.cloneNode(true)));
    return made;
  }

  function again(key) {
    const source = document.getElementById(`from-${key}`)?.closest("tr");
    const command = source?.querySelector("code")?.textContent ?? "";
    const place = source?.cells[2].textContent ?? "";
    if (!source) return [];
    const button = element("button", "Copy");
    button.type = "button";
    button.addEventListener("click", () => navigator.clipboard?.writeText(command).then(() => { button.textContent = "Copied"; }));
    const line = source.cells[1].querySelector("code") ? [element("pre", command), button] : [];
    return [element("h3", "To run it again"), ...line, element("p", "", "Kept in ", element("code", place))];
  }

  function open(index) {
    const line = lines[index], key = line.dataset.row;
    const close = element("button", "Close");
    close.type = "button";
    close.addEventListener("click", () => card.close());
    const title = element("h2", names[index]);
    title.id = "card-title";
    title.className = line.cells[0].firstElementChild.className;
    const content = [element("header", "", title, close)];
    if (line.dataset.reason) content.push(Object.assign(element("p", line.dataset.reason), {className: "callout"}));
    content.push(facts(line));
    for (const section of document.querySelectorAll("main > section")) {
      const parts = [...section.querySelectorAll("figure")].flatMap(figure => {
        const own = partOf(figure, key);
        return own.length ? [Object.assign(element("div", "", ...own), {className: figure.className})] : [];
      });
      if (parts.length) content.push(element("h3", section.querySelector("h2").textContent), ...parts);
    }
    card.replaceChildren(...content, ...again(key));
    if (!card.open) card.showModal();
    card.scrollTop = 0;
  }

  document.addEventListener("click", event => {
    const link = event.target.closest?.('a[href^="#from-"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const index = rowOf.get(link.hash.slice("#from-".length));
    keep({row: called(index)});
    open(index);
  });
  window.addEventListener("hashchange", show);

  // Paper has nothing to click on: what is shown on demand is printed, and closed again afterwards.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach(each => { each.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach(each => { each.open = false; }));

  document.querySelectorAll("figure.losses").forEach(offer);
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const direction = turned(column);
    sort(column, direction);
    keep({sort: titles[column], order: direction});
  }));
  document.getElementById("filter").addEventListener("input", event => {
    filter(event.target.value);
    keep({filter: event.target.value});
  });
  if (location.hash.includes("=")) show();
}
