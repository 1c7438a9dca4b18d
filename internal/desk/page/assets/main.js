// The frame: which page is shown, and the keys of all pages.
import { begin, places, post, readOnly } from "./api.js";
import { door } from "./door.js";
import { el, many, problem, put, set } from "./dom.js";
import { overview } from "./overview.js";
import { queue } from "./queue.js";
import { runs } from "./runs.js";

const main = document.getElementById("main");
// here is the page that is shown: what ends it, and what follows a change of its state.
let here = { path: null, leave() {}, follow: null };

// show shows the page of the address: its path, and behind ? the state of the page.
async function show() {
  const [path, query] = location.hash.replace(/^#\//, "").split("?");
  const state = new URLSearchParams(query);
  if (path === here.path && here.follow) return here.follow(state);
  here.leave();
  here = { path, leave() {}, follow: null };
  const parts = path.split("/");
  const [at] = parts[0] === "in" ? parts.splice(0, 2).slice(1) : [""];
  const where = places().find((p) => p.name === decodeURIComponent(at));
  const [page, name] = parts;
  for (const [id, here] of [["nav-queues", page !== "runs"], ["nav-runs", page === "runs"]]) {
    document.getElementById(id).toggleAttribute("aria-current", here);
  }
  set(main);
  if (page === "queue" && !where) put(main, problem(`No cluster "${decodeURIComponent(at)}" is on this page.`));
  else if (page === "runs") here.leave = runs(main);
  else if (page === "queue" && name) Object.assign(here, queue(main, where, decodeURIComponent(name), state));
  else here.leave = overview(main);
}

// badge shows how many runs are in progress.
async function badge() {
  try {
    if (document.hidden) return;
    const counts = await Promise.all(places().map((p) => p.get("/api/runs").then(({ runs: all }) => all.filter((r) => !r.ended).length)
      .catch(() => 0))); // the page itself shows that the server does not answer
    const open = counts.reduce((a, b) => a + b, 0);
    set(document.getElementById("run-count"), open ? String(open) : "");
  } finally {
    setTimeout(badge, 5000);
  }
}

const keys = [
  ["/", "go to the filter"], ["j k ↓ ↑", "next and previous message"], ["PgDn PgUp Home End", "move in the list"],
  ["Enter", "open the message"], ["Space or x", "choose the message"], ["Esc", "close"], ["g", "go to the queues"],
  ["r", "go to the runs"], ["?", "show the keys"],
];

function showKeys() {
  const dialog = document.getElementById("dialog");
  set(dialog, el("h1", { id: "dialog-title" }, "Keys"),
    el("dl", {}, keys.map(([key, does]) => [el("dt", {}, key.split(" ").map((k) => (k === "or" ? " or " : [el("kbd", {}, k), " "]))), el("dd", {}, does)])),
    el("div", { class: "buttons" }, el("button", { type: "button", on: { click: () => dialog.close() } }, "Close")));
  dialog.showModal();
}

document.addEventListener("keydown", (e) => {
  const typing = e.target.matches?.("input, select, textarea");
  if (e.ctrlKey || e.metaKey || e.altKey || typing || document.getElementById("dialog").open) return;
  const does = { "?": showKeys, g: () => (location.hash = "#/"), r: () => (location.hash = "#/runs"), "/": () => document.getElementById("where")?.focus() }[e.key];
  if (does) {
    e.preventDefault();
    does();
  }
});

// signedOut says that the session has ended. The page stays as it is.
function signedOut() {
  const ended = document.getElementById("ended");
  if (!ended.hidden) return;
  ended.hidden = false;
  set(ended, "Your session has ended. ", el("a", { id: "sign-in", href: door(), on: { click: (e) => (e.target.href = door()) } }, "Sign in again"));
}

async function signOut() {
  await post("/api/sign-out", {}).catch(() => {}); // without a session there is nothing to end
  location.reload();
}

async function start() {
  const s = await begin();
  const only = s.clusters.length ? [many(s.clusters.length, "cluster")] : [s.topology, "vhost " + s.vhost, s.broker];
  const place = [...only, s.by].filter(Boolean).join("  ·  ");
  const shown = document.getElementById("place");
  set(shown, place);
  shown.title = place;
  const mode = document.getElementById("mode");
  if (!readOnly()) {
    set(mode, "may " + s.allow.filter((a) => a !== "restore").join(", "));
    mode.classList.add("may");
  }
  if (s.role) {
    set(mode, s.role);
    mode.title = readOnly() ? "may look" : "may " + s.allow.join(", ");
    const out = document.getElementById("sign-out");
    out.hidden = false;
    out.addEventListener("click", signOut);
    addEventListener("signed-out", signedOut);
  }
  document.getElementById("keys").addEventListener("click", showKeys);
  addEventListener("hashchange", show);
  await show();
  badge();
}

start().catch((e) => set(main, problem(e)));
