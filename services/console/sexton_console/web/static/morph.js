// Takes over a page's new state without touching what has not changed: focus, open parts, scrolled
// places and selected text stay. Children are matched by id, else by place and name.

const KEPT = new Set(["INPUT", "SELECT", "TEXTAREA"]);

export function morph(old, fresh) {
  const byId = new Map();
  for (const child of old.children) if (child.id) byId.set(child.id, child);
  let here = old.firstChild;
  for (let want = fresh.firstChild; want; ) {
    const next = want.nextSibling;
    const known = want.id ? byId.get(want.id) : null;
    if (known) {
      if (known !== here) old.insertBefore(known, here);
      else here = here.nextSibling;
      update(known, want);
    } else if (here && same(here, want)) {
      const after = here.nextSibling;
      update(here, want);
      here = after;
    } else {
      old.insertBefore(document.importNode(want, true), here);
    }
    want = next;
  }
  while (here) {
    const after = here.nextSibling;
    here.remove();
    here = after;
  }
}

function same(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && !one.id && !other.id;
}

function update(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE || KEPT.has(old.nodeName)) return;
  if (old.nodeName === "TIME" && old.dateTime === fresh.dateTime) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === "open" && old.nodeName === "DETAILS") continue;
    if (old.getAttribute(name) !== value) {
      const chosen = name === "class" && old.classList.contains("chosen");
      old.setAttribute(name, value);
      if (chosen) old.classList.add("chosen");
    }
  }
  morph(old, fresh);
}
