// Fragments refresh only while their page is visible, and not while the keyboard is inside one of them.
document.addEventListener("htmx:beforeRequest", (event) => {
  const fragment = event.detail.elt;
  if (fragment.hasAttribute("data-live") && (document.hidden || fragment.contains(document.activeElement))) {
    event.preventDefault();
  }
});
