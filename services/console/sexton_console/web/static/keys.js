// Everything by keyboard: see the page of help.

import { switchZone } from "./times.js";

const PLACES = { n: "/", a: "/agenda", j: "/jobs", r: "/runs", q: "/queues", d: "/dead-letters", w: "/why", c: "/mesh" };
let going = 0;

function rows() {
  return [...document.querySelectorAll("[data-row]")];
}

function choose(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("chosen"));
  const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
  all.forEach((row) => row.classList.remove("chosen"));
  next.classList.add("chosen");
  next.scrollIntoView({ block: "nearest" });
  (next.querySelector("[data-open]") || next.querySelector("a"))?.focus({ preventScroll: true });
}

function press(event) {
  const typing = event.target.closest("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key.startsWith("Arrow") && event.target !== document.body) return; // it scrolls what has the focus
  if (Date.now() - going < 1500 && PLACES[event.key]) {
    going = 0;
    location.href = PLACES[event.key];
    return;
  }
  const target = [...document.querySelectorAll("[data-key]")].find((each) => each.dataset.key === event.key);
  if (event.key === "g") going = Date.now();
  else if (event.key === "?") location.href = "/help";
  else if (event.key === "z") switchZone();
  else if (target) {
    event.preventDefault();
    if (target.matches("input")) { target.focus(); target.select(); } else target.click();
  } else if (event.key === "j" || event.key === "k") choose(event.key === "j" ? 1 : -1);
}

export function listen() {
  document.addEventListener("keydown", press);
}
