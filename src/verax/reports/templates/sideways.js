"use strict";
// Tables that are wider than the page say so, show on which side there is more, and keep the names of rows in sight.
const labels = new Set();
for (const region of document.querySelectorAll(".scroll")) {
  const hint = document.createElement("p");
  hint.className = "hint";
  const drawn = region.classList.contains("drawn");
  hint.textContent = drawn ? "Scroll the chart sideways →" : "Scroll sideways for more columns →";
  region.before(hint);
  const label = () => {
    const around = region.parentElement;
    const head = around.closest("details")?.querySelector("summary") ?? around.closest("section, .card")?.querySelector("h3, h2");
    const words = `${drawn ? "Chart" : "Table"}: ${head?.textContent.trim() ?? ""}`;
    const free = [words, ...Array.from({ length: 99 }, (_, i) => `${words} (${i + 2})`)].find((name) => !labels.has(name));
    labels.add(free);
    return free;
  };
  const name = () => {
    const table = region.querySelector("table"), names = table?.tBodies[0]?.rows[0]?.querySelector("th");
    if (names && table.tHead) table.tHead.rows[0].cells[names.cellIndex]?.classList.add("name");
  };
  const look = () => {
    const hidden = region.scrollWidth - region.clientWidth;
    hint.hidden = hidden < 2;
    region.classList.toggle("more", hidden - region.scrollLeft >= 2);
    region.classList.toggle("moved", region.scrollLeft >= 2);
    if (hidden >= 2 && !region.hasAttribute("tabindex")) {
      region.tabIndex = 0; // so that the keyboard can scroll it
      region.setAttribute("role", "region");
      region.setAttribute("aria-label", label());
    }
  };
  region.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(region);
  new MutationObserver(() => { name(); look(); }).observe(region, { childList: true });
  name();
  look();
}
