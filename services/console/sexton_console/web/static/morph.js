// Takes over a page's new state without touching what has not changed: focus, open parts, scrolled
// places and selected text stay. Children are matched by id, else by place and name.

const KEPT = new Set(["INPUT", "SELECT", "TEXTAREA"]);

const AHEAD = 8; // siblings among which one of the same kind is looked for

export function morph(old, fresh) {
  const byId = new Map();
  for (const child of old.children) if (child.id) byId.set(child.id, child);
  const kept = new Set();
  let last = null;
  for (const want of [...fresh.childNodes]) {
    let here = last ? last.nextSibling : old.firstChild;
    let node = (want.id && byId.get(want.id)) || null;
    if (!node && !want.id) node = alike(here, want, kept);
    if (node) update(node, want);
    else node = document.importNode(want, true);
    // What moves loses its focus: rather remove what stands in between.
    while (here && here !== node && !here.id && node.parentNode === old) {
      const gone = here;
      here = here.nextSibling;
      gone.remove();
    }
    if (here !== node) old.insertBefore(node, here);
    kept.add(node);
    last = node;
  }
  for (const child of [...old.childNodes]) if (!kept.has(child)) child.remove();
}

function alike(here, want, kept) {
  for (let steps = 0; here && steps < AHEAD; here = here.nextSibling, steps += 1) {
    if (!kept.has(here) && same(here, want)) return here;
  }
  return null;
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
