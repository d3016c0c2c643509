// Long lists come in parts: the next one is asked for when its link comes near the view.

import { dress } from "./times.js";

const NEAR = "800px";

export function unroll(grown) {
  const near = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) if (isIntersecting) add(target, near, grown);
  }, { rootMargin: NEAR });
  document.querySelectorAll("[data-further]").forEach((link) => near.observe(link));
}

async function add(link, near, grown) {
  near.unobserve(link);
  const answer = await fetch(link.href).catch(() => null);
  if (!answer?.ok) return; // it is a link: whoever follows it sees what went wrong
  grown();
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const rows = [...fresh.querySelectorAll(".falls > .fall:not(.axis)")]
    .filter(({ id }) => !document.getElementById(id)); // a span that came late has moved those after it
  document.querySelector(".falls").append(...rows);
  rows.forEach(dress);
  const next = fresh.querySelector("[data-further]");
  if (!next) link.remove();
  else {
    link.href = next.href;
    link.textContent = next.textContent;
    near.observe(link);
  }
}
