// What a browser adds to pages that work without it: live updates, times in the viewer's zone, keys.

import { morph } from "./morph.js";
import { dress, switchZone } from "./times.js";
import { listen } from "./keys.js";
import { unroll } from "./further.js";

const main = document.getElementById("main");
const alive = document.querySelector("[data-alive]");

const AGAIN_MS = 2000;
let stream = null;

function show(word, on) {
  alive.className = "alive " + (on ? "on" : "off");
  alive.lastElementChild.textContent = word;
}

function take(event) {
  const fresh = new DOMParser().parseFromString(event.data, "text/html").body;
  const log = main.querySelector(".log");
  const atEnd = log && log.scrollTop + log.clientHeight > log.scrollHeight - 40;
  morph(main, fresh);
  dress(main);
  show("live", true);
  if (atEnd) main.querySelector(".log").scrollTop = 1e9;
}

function follow() {
  if (!main.dataset.live || stream || document.hidden) return;
  stream = new EventSource("/live?at=" + encodeURIComponent(main.dataset.live));
  stream.addEventListener("open", () => show("live", true));
  stream.addEventListener("main", take);
  stream.addEventListener("away", (event) => show(event.data, false));
  stream.addEventListener("error", () => {
    show("not connected", false);
    stream?.close();
    stream = null;
    setTimeout(follow, AGAIN_MS);
  });
}

// A page that nobody sees costs the mesh nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden && stream) {
    stream.close();
    stream = null;
  } else follow();
});

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const text = copy.previousElementSibling;
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(text.textContent);
    } catch { // over plain HTTP from another machine no page may copy
      getSelection().selectAllChildren(text);
      said = "Selected";
    }
    document.querySelector("[data-announce]").textContent = copy.textContent = said;
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }
  if (event.target.closest("[data-zone-switch]")) switchZone();
});

// On a phone: the view that is shown in the menu, and now in the agenda.
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
const wide = document.querySelector("[data-middle]");
if (wide) wide.scrollLeft = (wide.scrollWidth - wide.clientWidth) / 2;

dress(document);
listen();
follow();
// Rows that were added are not those of the page as it is sent again: from then on it stands still.
unroll(() => {
  delete main.dataset.live;
  stream?.close();
  stream = null;
  show("stands still", false);
});
