// A queue: the filter, the groups, the list, one message, and what can be done.
import { may, readOnly } from "./api.js";
import { command, count, el, many, problem, put, say, seconds, set, stamp, time } from "./dom.js";
import { act, comment, edit } from "./action.js";
import { message } from "./message.js";
import { windowed } from "./list.js";

const times = [["", "any time"], ["1h", "last hour"], ["6h", "last 6 hours"], ["24h", "last 24 hours"], ["168h", "last 7 days"]];

// actionsFor returns the actions that the page may do with the messages of a queue.
function actionsFor(v) {
  const all = v.snapshot?.role === "parked" ? [["restore", "Restore"]] : [["replay", "Replay"], ["park", "Park"], ["discard", "Discard"]];
  return all.filter(([action]) => may(action));
}

// The state of the page is in its address: what was asked, the group, and the open message.
const asks = ["where", "since", "by"];

export function queue(main, at, name, state) {
  document.title = name + " · dlxctl desk";
  const v = { at, name, snapshot: null, asked: {}, group: null, message: null, chosen: new Map(), stop: new AbortController(), opening: null };
  v.hint = el("div", { class: "hint", id: "hint", "aria-live": "polite" });
  v.notes = el("div");
  v.told = el("span", { class: "muted" }, "Looking");
  v.groups = el("nav", { class: "panel groups", "aria-label": "Groups" }, el("p", { class: "muted" }, "Looking"));
  v.acts = el("div", { class: "acts" });
  v.line = el("div", {}, command(" ", true));
  v.foot = el("div", { class: "foot" });
  v.list = windowed({
    load: (from, n) => at.get(`/api/rows?snapshot=${v.snapshot.id}&from=${from}&count=${n}` + (v.group === null ? "" : "&group=" + v.group), v.stop.signal),
    open: (row) => open(v, row).then(() => record(v)),
    changed: (chosen) => { v.chosen = chosen; scope(v); },
  });
  v.listing = el("section", { class: "panel listing", "aria-label": "Messages" }, v.acts, v.list.element, v.foot);
  v.detail = el("div", { hidden: true });
  v.frame = el("div", { class: "queue" }, v.groups, v.listing, v.detail);
  put(main, el("div", { class: "heading" }, el("h1", {}, name), at.label ? el("strong", { class: "at" }, at.label) : "", v.told), filter(v), v.hint, v.notes, v.frame,
    el("h3", {}, "The same on the command line"), v.line);
  const escape = (e) => { if (e.key === "Escape" && !document.getElementById("dialog").open) close(v); };
  document.addEventListener("keydown", escape);
  follow(v, state);
  return {
    leave() { v.stop.abort(); document.removeEventListener("keydown", escape); },
    follow(state) { follow(v, state); },
  };
}

// follow shows what an address says. It looks if another look is asked for.
async function follow(v, state) {
  for (const of of asks) v[of].value = state.get(of) ?? "";
  const same = v.snapshot && asks.every((of) => v[of].value === v.asked[of]);
  if (!same && !await look(v, true)) return;
  const group = state.get("group");
  const n = group === null ? null : v.snapshot.groups.findIndex((g) => g.value === group);
  if (n === -1) set(v.hint, `The group ${group} is not there any more${v.snapshot.others ? `, or not one of the ${count(v.snapshot.groups.length)} largest` : ""}.`);
  if (n !== -1 && n !== v.group) pick(v, n);
  const message = state.get("message");
  if (message === null) shut(v);
  else if (message !== v.message) await open(v, { handle: message });
}

// record writes the state into the address, as a step that Back undoes.
function record(v) {
  const query = new URLSearchParams();
  const now = { ...v.asked, message: v.message };
  if (v.group !== null) query.set("group", v.snapshot.groups[v.group].value);
  for (const [of, value] of Object.entries(now)) if (value) query.set(of, value);
  const address = v.at.address("queue/" + encodeURIComponent(v.name)) + (query.size ? "?" + query : "");
  if (address !== location.hash) history.pushState(null, "", address);
}

// filter makes the form that looks.
function filter(v) {
  v.where = el("input", { type: "text", id: "where", class: "mono", spellcheck: "false", autocomplete: "off", "aria-describedby": "hint", placeholder: 'cause == "rejected" && body.customer.country == "AT"' });
  v.since = el("select", { id: "since" }, times.map(([value, text]) => el("option", { value }, text)));
  v.by = el("input", { type: "text", id: "by", list: "ways", placeholder: "error, or cause", spellcheck: "false", autocomplete: "off" });
  v.button = el("button", { class: "primary" }, "Look");
  return el("form", { class: "filter", on: { submit: (e) => { e.preventDefault(); again(v); } } },
    el("div", { class: "field expression" }, el("label", { for: "where" }, "Filter"), v.where),
    el("div", { class: "field" }, el("label", { for: "since" }, "Failed"), v.since),
    el("div", { class: "field" }, el("label", { for: "by" }, "Group by"), v.by,
      el("datalist", { id: "ways" }, ["error", "cause", "queue", "key", "exchange", "type", "header:NAME", "body.PATH"].map((value) => el("option", { value })))),
    v.button);
}

const standard = "The filter is an expression over cause, error, attempts, key, queue, headers and body. Press / to go to it.";

// again looks as the form says.
async function again(v) {
  if (await look(v, false)) record(v);
}

// look looks at the queue, or has what a person saw there in the last minute if it opens the queue. It
// reports whether that succeeded.
async function look(v, opens) {
  v.button.disabled = true;
  v.hint.className = "hint";
  set(v.hint, "Looking at the queue. Its messages are held until the look ends.");
  try {
    const asked = Object.fromEntries(asks.map((of) => [of, v[of].value]));
    const s = await v.at.post("/api/look", { queue: v.name, ...asked, opens }, v.stop.signal);
    Object.assign(v, { snapshot: s, asked, group: null });
    set(v.hint, standard);
    set(v.notes, (s.notes ?? []).map((note) => el("p", { class: "warn" }, note)));
    set(v.told, told(s));
    shut(v);
    groups(v);
    v.list.forget();
    v.list.same(s.same);
    v.list.reset(s.listed);
    foot(v, s.listed);
    if (s.listed && !document.getElementById("dialog").open) v.list.element.focus({ preventScroll: true });
    say(many(s.matched, "message"));
    return true;
  } catch (e) {
    if (e.name === "AbortError") return false;
    v.hint.className = "hint danger";
    set(v.hint, e.message);
    if (!v.snapshot) {
      set(v.told, "not looked at");
      set(v.groups, el("p", { class: "muted" }, "No groups: the queue was not looked at."));
    }
    return false;
  } finally {
    v.button.disabled = false;
    scope(v);
  }
}

// told says what the look saw, and what it did not.
function told(s) {
  const l = s.looked;
  const parts = [];
  if (s.matched !== l.lookedAt) parts.push(`${count(s.matched)} match`);
  if (l.unacknowledged) parts.push(`other consumers held ${count(l.unacknowledged)}`);
  return [`holds ${count(l.messages)} · looked at ${count(l.lookedAt)} in ${seconds(l.seconds)}, `, time(s.at), ", ", el("span", { title: l.cost }, "order kept"), parts.map((p) => " · " + p), l.notLookedAt ? el("span", { class: "warn" }, " · " + l.notLookedAt) : "", s.costs ? " · " + l.cost : ""];
}

// pick shows the messages of a group, or all if it is null.
function pick(v, group) {
  const s = v.snapshot;
  v.group = group;
  v.groups.querySelectorAll("li button").forEach((b, i) => b.setAttribute("aria-pressed", String(i === v.group)));
  const total = v.group === null ? s.listed : s.groups[v.group].count;
  v.list.reset(Math.min(total, s.listed));
  foot(v, total);
  scope(v);
  if (total > 0) v.at.get(`/api/rows?snapshot=${s.id}&count=0` + (v.group === null ? "" : "&group=" + v.group)).then((r) => r.total !== Math.min(total, s.listed) && v.list.reset(r.total)).catch(() => {});
}

function groups(v) {
  const s = v.snapshot;
  set(v.groups, el("h2", {}, "By " + s.request.by), s.groups.length ? el("ul", {}, s.groups.map((g, n) => el("li", {},
    el("button", { type: "button", "aria-pressed": "false", title: g.value, on: { click: () => { pick(v, v.group === n ? null : n); record(v); } } },
      el("span", { class: "name" }, g.value || "(none)"), el("span", {}, count(g.count)),
      el("progress", { value: g.count, max: s.matched, "aria-hidden": "true" }),
      el("small", {}, `${percent(g.count, s.matched)} · `, g.last ? ["last ", time(g.last)] : "time unknown"),
      g.comment?.text ? el("small", { class: "comment", title: "on " + stamp(g.comment.at) }, `${g.comment.text} (${g.comment.author})`) : "")))) : el("p", { class: "muted" }, "No message."),
  s.uncommented ? el("p", { class: "warn" }, s.uncommented) : "",
  s.others ? el("p", { class: "muted" }, `${many(s.others, "message")} in more groups`) : "",
  (s.apart ?? []).map((a) => el("p", { class: "apart" }, el("button", { type: "button", class: "quiet", on: { click: () => { v.by.value = a.by; again(v); } } }, `By ${a.by}: ${a.groups} groups`))));
}

// commented shows the groups with a new comment.
function commented(v) {
  groups(v);
  v.groups.querySelectorAll("li button").forEach((b, i) => b.setAttribute("aria-pressed", String(i === v.group)));
}

const percent = (n, of) => (of ? Math.max(n ? 1 : 0, Math.round((100 * n) / of)) : 0) + " %";

const called = { cause: "cause", queue: "work queue", attempts: "attempts", replays: "replays" };

function foot(v, total) {
  const s = v.snapshot;
  const parts = [many(total, "message")];
  if (s.same.length) parts.push((total === 1 ? "" : s.listed < s.matched ? "the same in all listed: " : "the same in all: ") + s.same.map((f) => `${called[f.name]} ${f.value}`).join(", "));
  if (s.listed < s.matched) parts.push(`the list ends after the first ${count(s.listed)} of ${count(s.matched)}; narrow the filter for the others`);
  set(v.foot, parts.join(" · "));
}

// asked returns what the actions apply to, and how it is called. A group without an expression
// cannot be named.
function asked(v) {
  const ask = { queue: v.name, where: v.where.value, since: v.since.value, handles: [...v.chosen.keys()] };
  if (v.snapshot) Object.assign(ask, { where: v.snapshot.request.where, since: v.snapshot.request.since });
  if (ask.handles.length) return { ask, text: many(ask.handles.length, "chosen message") };
  if (v.group !== null) {
    const g = v.snapshot.groups[v.group];
    if (!g.where) return { ask: null, text: "this group has no filter expression: choose its messages one by one" };
    ask.where = ask.where ? `(${ask.where}) && ${g.where}` : g.where;
    return { ask, text: `group of ${many(g.count, "message")}`, grouped: g.count };
  }
  const s = v.snapshot;
  const which = ask.where || ask.since ? " that match" : "";
  const part = s && s.looked.lookedAt < s.looked.messages; // the look did not reach the others
  return { ask, text: !s ? "" : part ? `${many(s.matched, "message")}${which}, of the first ${count(s.looked.lookedAt)} of ${count(s.looked.messages)}` : `all ${many(s.matched, "message")}${which}` };
}

// scope shows what the actions apply to.
function scope(v) {
  const { ask, text, grouped } = asked(v);
  const buttons = actionsFor(v).map(([action, title]) =>
    el("button", { type: "button", "data-action": action, disabled: !ask || !v.snapshot || !v.snapshot.matched, on: { click: () => act(v.at, action, ask, text, () => again(v), grouped) } }, title));
  if (v.group !== null && !readOnly()) buttons.push(el("button", { type: "button", class: "quiet", "data-action": "comment", on: { click: () => comment(v.at, v.snapshot, v.group, () => commented(v)) } }, "Comment"));
  const clear = v.chosen.size ? el("button", { type: "button", class: "quiet", on: { click: () => v.list.forget() } }, "Choose none") : "";
  set(v.acts, el("span", { class: "scope" }, text, " ", clear), buttons.length || !readOnly() ? buttons : el("span", { class: "muted" }, "read-only"));
  if (!ask || !v.snapshot) return;
  const turn = (v.turn = (v.turn ?? 0) + 1);
  v.at.post("/api/command", { ...ask, action: v.snapshot.role === "parked" ? "restore" : "replay" }, v.stop.signal).then(({ command: line }) => turn === v.turn && set(v.line, command(line))).catch(() => {});
}

// open shows a message.
async function open(v, row) {
  v.opening?.abort();
  v.opening = new AbortController();
  const { signal } = v.opening;
  v.frame.classList.add("open");
  v.detail.hidden = false;
  if (!v.detail.firstChild) set(v.detail, el("section", { class: "panel message" }, el("p", { class: "muted" }, "Reading the message")));
  v.detail.setAttribute("aria-busy", "true");
  try {
    const place = { snapshot: v.snapshot.id, row: row.row, handle: row.row === undefined ? row.handle : undefined };
    const d = await v.at.post("/api/message", place, signal);
    v.message = d.handle;
    const one = { queue: v.name, handles: [d.handle] };
    const acts = actionsFor(v).map(([action, title]) => el("button", { type: "button", on: { click: () => act(v.at, action, one, "message " + d.handle, () => again(v)) } }, title));
    if (may("edit") && v.snapshot.role !== "parked") acts.push(el("button", { type: "button", on: { click: () => edit(v.at, place, one, d, () => again(v)) } }, "Edit"));
    const view = message(d, () => close(v), acts);
    set(v.detail, view);
    if (matchMedia("(max-width: 1240px)").matches) {
      scrollTo(0, 0);
      document.getElementById("message-title").focus();
    }
    say("message " + d.handle);
  } catch (e) {
    if (e.name !== "AbortError") set(v.detail, el("section", { class: "panel message" }, problem(e), el("button", { type: "button", on: { click: () => close(v) } }, "Close")));
  } finally {
    v.detail.removeAttribute("aria-busy");
  }
}

// close closes the message and goes back to the list.
function close(v) {
  if (v.detail.hidden) return;
  shut(v);
  record(v);
  v.list.element.focus();
}

// shut closes the message.
function shut(v) {
  v.opening?.abort();
  v.message = null;
  v.detail.hidden = true;
  set(v.detail);
  v.frame.classList.remove("open");
}
