// Fragments refresh only while their page is visible, and not while a link or field inside one of them has the focus.
// A table that is scrolled sideways keeps its position.
const tables = (fragment) => [...fragment.querySelectorAll(".scroll")];
let positions = [];

document.addEventListener("htmx:beforeRequest", (event) => {
  const fragment = event.detail.elt;
  const focused = document.activeElement;
  const isUsed = fragment.contains(focused) && focused.matches("a, button, input, select, textarea");
  if (fragment.hasAttribute("data-live") && (document.hidden || isUsed)) {
    event.preventDefault();
  }
});
document.addEventListener("htmx:beforeSwap", (event) => {
  positions = tables(event.detail.target).map((table) => table.scrollLeft);
});
document.addEventListener("htmx:afterSwap", (event) => {
  tables(event.detail.target).forEach((table, index) => (table.scrollLeft = positions[index] ?? 0));
});
