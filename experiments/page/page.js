"use strict";
{
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const lines = [...body.rows];
  const values = new Map(lines.map(line => [line, [...line.cells].map(cell => cell.dataset.v ?? null)]));
  const letters = new Intl.Collator();
  const words = new Map(lines.map(line => [line, line.textContent.toLowerCase()]));

  // Numbers by size, text by letter; what has no value comes last in either direction.
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    const difference = Number(a) - Number(b);
    return sign * (Number.isNaN(difference) ? letters.compare(a, b) : difference);
  }

  function sort(column) {
    const ascending = heads[column].ariaSort !== "ascending";
    heads.forEach((head, index) => { head.ariaSort = index === column ? (ascending ? "ascending" : "descending") : "none"; });
    const sorted = [...lines].sort((a, b) => compare(values.get(a)[column], values.get(b)[column], ascending ? 1 : -1));
    body.append(...sorted);
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

  // A row that is picked out of the curves of a figure.
  function pick(button) {
    const figure = button.closest("figure");
    button.ariaPressed = button.ariaPressed !== "true";
    const picked = new Set([...figure.querySelectorAll("[aria-pressed=true]")].map(each => each.dataset.pick));
    figure.classList.toggle("picked", picked.size > 0);
    for (const curve of figure.querySelectorAll(".curve")) curve.classList.toggle("on", picked.has(curve.dataset.row));
  }

  // Paper has nothing to click on: what is shown on demand is printed, and closed again afterwards.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach(each => { each.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach(each => { each.open = false; }));

  for (const button of document.querySelectorAll("[data-pick]")) button.addEventListener("click", () => pick(button));
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => sort(column)));
  document.getElementById("filter").addEventListener("input", event => filter(event.target.value));
}
