// A list of any length: only the rows in view exist, and only the blocks around them are loaded.
import { age, count, el, set, stamp } from "./dom.js";

const block = 100;
const kept = 30;

// windowed makes the list. load(from, count) gives rows; open(row) and chosen(set) tell what a
// person does.
export function windowed({ load, open, changed }) {
  const space = el("div", { class: "space", role: "presentation" });
  const list = el("div", {
    class: "list", id: "list", role: "grid", tabindex: "0", "aria-label": "Messages", "aria-multiselectable": "true",
  }, head(), space);
  const s = { total: 0, active: -1, blocks: new Map(), rows: new Map(), chosen: new Map(), height: 30, turn: 0 };

  const measure = () => {
    s.height = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 30;
    space.style.height = s.total * s.height + "px";
    s.rows.forEach((e) => e.remove());
    s.rows.clear();
    draw();
  };

  const need = (n) => {
    const key = Math.floor(n / block);
    if (s.blocks.has(key)) return;
    const turn = s.turn;
    s.blocks.set(key, null);
    load(key * block, block).then(({ rows }) => {
      if (turn !== s.turn) return;
      s.blocks.set(key, rows);
      for (const old of s.blocks.keys()) {
        if (s.blocks.size <= kept) break;
        if (Math.abs(old - key) > 5) s.blocks.delete(old);
      }
      rows.forEach((_, i) => refill(key * block + i));
    }).catch(() => s.blocks.delete(key)); // it is asked for again when it comes into view
  };

  const at = (n) => s.blocks.get(Math.floor(n / block))?.[n % block];

  const refill = (n) => { if (s.rows.has(n)) fill(s.rows.get(n), n); };

  const fill = (e, n) => {
    const r = at(n);
    e.classList.toggle("active", n === s.active);
    e.setAttribute("aria-selected", String(Boolean(r && s.chosen.has(r.handle))));
    if (e.dataset.filled === (r ? r.handle : "")) {
      const tick = e.querySelector("input");
      if (tick) tick.checked = s.chosen.has(r.handle);
      return;
    }
    e.dataset.filled = r ? r.handle : "";
    set(e, ...(r ? cells(r, s.chosen.has(r.handle)) : [el("span", {}, "")]));
  };

  const draw = () => {
    const first = Math.max(0, Math.floor(list.scrollTop / s.height) - 8);
    const last = Math.min(s.total, Math.ceil((list.scrollTop + list.clientHeight) / s.height) + 8);
    for (const [n, e] of s.rows) {
      if (n < first || n >= last) {
        e.remove();
        s.rows.delete(n);
      }
    }
    list.classList.toggle("cut", first > 0 || last < s.total);
    for (let n = first; n < last; n++) {
      need(n);
      if (s.rows.has(n)) continue;
      const e = el("div", { class: "row", role: "row", id: "row-" + n, "aria-rowindex": n + 2, "data-n": n });
      e.style.transform = `translateY(${n * s.height}px)`;
      s.rows.set(n, e);
      fill(e, n);
      space.append(e);
    }
  };

  const move = (n, scroll = true) => {
    if (!s.total) return;
    const before = s.active;
    s.active = Math.max(0, Math.min(s.total - 1, n));
    if (scroll) {
      const top = s.active * s.height;
      const header = list.firstChild.offsetHeight;
      if (top < list.scrollTop) list.scrollTop = top;
      if (top + s.height + header > list.scrollTop + list.clientHeight) list.scrollTop = top + s.height + header - list.clientHeight;
    }
    draw();
    refill(before);
    refill(s.active);
    list.setAttribute("aria-activedescendant", "row-" + s.active);
  };

  const choose = (n) => {
    const r = at(n);
    if (!r) return;
    if (s.chosen.has(r.handle)) s.chosen.delete(r.handle);
    else s.chosen.set(r.handle, r);
    refill(n);
    changed(s.chosen);
  };

  const page = () => Math.max(1, Math.floor(list.clientHeight / s.height) - 1);
  list.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const does = {
      j: () => move(s.active + 1), ArrowDown: () => move(s.active + 1), k: () => move(s.active - 1), ArrowUp: () => move(s.active - 1),
      PageDown: () => move(s.active + page()), PageUp: () => move(s.active - page()), Home: () => move(0), End: () => move(s.total - 1),
      Enter: () => at(s.active) && open(at(s.active)), x: () => choose(s.active), " ": () => choose(s.active),
    }[e.key];
    if (!does) return;
    e.preventDefault();
    does();
  });
  list.addEventListener("focus", () => { if (s.active < 0) move(Math.floor(list.scrollTop / s.height)); });
  list.addEventListener("click", (e) => {
    const row = e.target.closest(".row");
    if (!row) return;
    const n = Number(row.dataset.n);
    move(n, false);
    if (e.target.matches("input")) choose(n);
    else if (at(n)) open(at(n));
  });
  let waiting = false;
  list.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  });
  new ResizeObserver(() => {
    const row = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"));
    if (row !== s.height) measure();
    else draw();
  }).observe(list);

  return {
    element: list,
    // reset shows another list of that length from its beginning. What was chosen stays chosen.
    reset(total) {
      Object.assign(s, { total, active: -1, turn: s.turn + 1 });
      s.blocks.clear();
      list.setAttribute("aria-rowcount", String(total + 1));
      list.removeAttribute("aria-activedescendant");
      list.scrollTop = 0;
      measure();
    },
    // same leaves out the columns in which all messages of the list are equal.
    same(facts) { for (const [kind] of columns) list.classList.toggle("same-" + kind, facts.some((f) => f.name === kind)); },
    forget() { s.chosen.clear(); s.rows.forEach((_, n) => refill(n)); changed(s.chosen); },
    step(by) { move(s.active + by); if (at(s.active)) open(at(s.active)); },
  };
}

const columns = [
  ["tick"], ["failed", "Age"], ["cause", "Cause"], ["queue", "Work queue"], ["key", "Key"], ["attempts", "Att.", "attempts"],
  ["replays", "Rep.", "replays"], ["summary", "Error or body"],
];

const head = () => el("div", { class: "head", role: "row", "aria-rowindex": 1 }, columns.map(([kind, name, title]) =>
  el("span", { role: "columnheader", class: kind, title }, name ?? el("span", { class: "unseen" }, "Chosen"))));

function cells(r, chosen) {
  const cell = (kind, text, title = text) => el("span", { role: "gridcell", class: kind, title }, text);
  return [
    el("span", { role: "gridcell", class: "tick" }, el("input", { type: "checkbox", tabindex: "-1", checked: chosen, "aria-label": "Choose message " + r.handle })),
    cell("failed", r.failed ? age(r.failed) : "unknown", stamp(r.failed)), cell("cause", r.cause || "unknown"),
    cell("queue", r.queue || "unknown"), cell("key", r.key), cell("attempts", r.attempts < 0 ? "?" : count(r.attempts)),
    cell("replays", r.replays ? count(r.replays) : ""), cell("summary", r.summary || r.type || r.handle),
  ];
}
