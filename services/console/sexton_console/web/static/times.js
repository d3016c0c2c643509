// Times: in the job's zone as the server wrote them, in the viewer's, or in UTC; distances by the clock.

const CHOICES = [["job", "job’s zone"], ["mine", "my zone"], ["utc", "UTC"]];
const MINE = Intl.DateTimeFormat().resolvedOptions().timeZone;
let chosen = remembered() || "job";

function remembered() {
  try {
    return localStorage.getItem("zone");
  } catch { // a browser that keeps nothing shows the job's zone
    return null;
  }
}

const PARTS = {
  long: { weekday: "short", day: "2-digit", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" },
  short: { weekday: "short", day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" },
  clock: { hour: "2-digit", minute: "2-digit", second: "2-digit" },
  exact: { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 },
};
const formats = new Map();

function format(style, zone) {
  const key = style + zone;
  if (!formats.has(key)) {
    let made;
    try {
      made = new Intl.DateTimeFormat("en-GB", { ...PARTS[style], timeZone: zone, hourCycle: "h23" });
    } catch {
      made = new Intl.DateTimeFormat("en-GB", { ...PARTS[style], timeZone: "UTC", hourCycle: "h23" });
    }
    formats.set(key, made);
  }
  return formats.get(key);
}

function distance(ms) {
  const s = Math.round(Math.abs(ms) / 1000);
  const text = s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  return ms < -500 ? `in ${text}` : `${text} ago`;
}

function dressOne(element) {
  const date = new Date(element.dateTime);
  const style = element.dataset.style;
  if (!element.title) {
    const zones = [...new Set([element.dataset.zone, MINE, "UTC"])];
    element.title = zones.map((zone) => `${format("long", zone).format(date)} ${zone}`).join("\n");
    element.dataset.told = element.textContent;
  }
  const sameYear = date.getUTCFullYear() === new Date().getUTCFullYear();
  let text = element.dataset.told;
  if (style === "ago") text = distance(Date.now() - date);
  else if (chosen !== "job") text = format(style === "long" && sameYear ? "short" : style, chosen === "mine" ? MINE : "UTC").format(date).replaceAll(",", "");
  if (element.textContent !== text) element.textContent = text;
}

export function dress(root) {
  root.querySelectorAll("time").forEach(dressOne);
  const button = document.querySelector("[data-zone-switch]");
  if (button) button.textContent = CHOICES.find(([name]) => name === chosen)[1];
}

export function switchZone() {
  const place = CHOICES.findIndex(([name]) => name === chosen);
  chosen = CHOICES[(place + 1) % CHOICES.length][0];
  try { localStorage.setItem("zone", chosen); } catch { /* it holds for this page */ }
  dress(document);
}

setInterval(() => document.querySelectorAll('time[data-style="ago"]').forEach(dressOne), 1000);
