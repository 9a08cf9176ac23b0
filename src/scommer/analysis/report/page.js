"use strict";

// Tables: a click on a column's name sorts by it, a second click reverses the order; missing values stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row.cells[column]), row]);
      rows.sort(([a], [b]) => compare(a, b, down));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}

function keyOf(cell) {
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  return cell.textContent === "–" ? null : cell.textContent;
}

function compare(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
  return down ? -order : order;
}

// Figures: enlarged in a dialog, which Esc closes; the focus returns to where it was.
const viewer = document.getElementById("viewer");
let opener = null;
for (const button of document.querySelectorAll("button.enlarge")) {
  button.addEventListener("click", () => {
    const small = button.querySelector("img");
    const large = viewer.querySelector("img");
    opener = button;
    large.src = small.src;
    large.alt = small.alt;
    document.getElementById("viewer-caption").textContent =
      button.parentElement.querySelector("figcaption").textContent;
    viewer.querySelector(".stage").classList.toggle("tall", button.parentElement.matches(".scores, .matrices"));
    viewer.showModal();
  });
}
viewer.addEventListener("close", () => opener?.focus());
viewer.addEventListener("click", (event) => {
  if (event.target === viewer) viewer.close(); // a click outside
});

// Boxes that scroll take the focus, so that the keyboard can scroll them; others do not.
const sizes = new ResizeObserver((entries) => {
  for (const { target: box } of entries) {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
});
for (const box of document.querySelectorAll(".scroll")) sizes.observe(box);

// Printed pages show all details.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const each of folded) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of folded) each.open = false;
});
