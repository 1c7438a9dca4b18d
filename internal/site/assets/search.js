// Search in the documentation. The index is loaded when a person begins to type.
import { el, many, say, set } from "./dom.js";

const base = document.body.dataset.base;
const input = document.getElementById("search");
const hits = document.getElementById("hits");
const most = 12;
let index;

async function load() {
  const response = await fetch(base + "search.json");
  if (!response.ok) throw new Error("the index could not be loaded: " + response.status);
  return (await response.json()).map((e) => ({ ...e, title: (e.p + " " + e.h).toLowerCase(), text: e.t.toLowerCase() }));
}

// score says how well a section answers: each word must be in it, and counts more in a heading.
function score(e, words) {
  let sum = 0;
  for (const w of words) {
    const titled = (e.h || e.p).toLowerCase().includes(w) ? 20 : e.title.includes(w) ? 6 : 0;
    const found = titled + Math.min(4, e.text.split(w).length - 1);
    if (found === 0) return 0;
    sum += found;
  }
  return sum;
}

// around returns the text around the first word that is found.
function around(e, words) {
  const at = Math.max(0, Math.min(...words.map((w) => e.text.indexOf(w)).filter((i) => i >= 0).concat(e.t.length ? [e.t.length] : [0])));
  const from = at >= e.t.length ? 0 : Math.max(0, at - 40);
  return (from > 0 ? "…" : "") + e.t.slice(from, from + 140) + (from + 140 < e.t.length ? "…" : "");
}

async function search() {
  const asked = input.value;
  const words = asked.toLowerCase().split(/\s+/).filter((w) => w !== "");
  if (words.length === 0) {
    hits.hidden = true;
    return;
  }
  try {
    index ??= await load();
  } catch (e) {
    set(hits, el("li", { class: "none" }, e.message));
    hits.hidden = false;
    return;
  }
  if (input.value !== asked) return;
  const found = index.map((e) => [score(e, words), e]).filter(([n]) => n > 0).sort((a, b) => b[0] - a[0]);
  set(hits, found.slice(0, most).map(([, e]) => el("li", {}, el("a", { href: base + e.u },
    e.p + (e.h ? " › " + e.h : ""), el("small", {}, around(e, words))))),
  found.length === 0 && el("li", { class: "none" }, "Nothing has all of these words."));
  hits.hidden = false;
  say(many(found.length, "section"));
}

// move puts the focus on another hit, or back into the field.
function move(e) {
  const links = [input, ...hits.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  if (e.key === "Escape") {
    hits.hidden = true;
    input.focus();
  } else if (e.key === "ArrowDown" || e.key === "ArrowUp") {
    e.preventDefault();
    links[(at + (e.key === "ArrowDown" ? 1 : -1) + links.length) % links.length].focus();
  } else if (e.key === "Enter" && at === 0) {
    hits.querySelector("a")?.click();
  }
}

input.closest(".find").hidden = false;
input.addEventListener("input", search);
input.closest(".find").addEventListener("keydown", move);
document.addEventListener("click", (e) => { if (!e.target.closest(".find")) hits.hidden = true; });
