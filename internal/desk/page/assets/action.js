// An action: first what it would do, then a button that does it.
import { command, count, el, many, problem, say, set, stamp, table } from "./dom.js";

const verbs = {
  replay: ["Replay", "Send the messages back to work."],
  park: ["Park", "Move the messages to the parked queue, where they stay for 30 days. Restore brings them back."],
  restore: ["Restore", "Bring parked messages back to their dead-letter queue."],
  discard: ["Discard", "Take the messages out of the way: they are parked for 30 days, and then deleted. To delete them at once, use the command line with --forever."],
  edit: ["Edit", "Send the changed message with a new message-id. The original is parked."],
};

// inPlace names the cluster and the virtual host, of a page with several.
const inPlace = (label) => (label ? " in " + label : "");

const dialog = () => document.getElementById("dialog");

// A dialog is about the page under it: it closes when another page comes.
addEventListener("hashchange", () => dialog().close());

function frame(title, ...children) {
  set(dialog(), el("h1", { id: "dialog-title" }, title), ...children);
  if (!dialog().open) dialog().showModal();
}

const cancel = () => el("button", { type: "button", on: { click: () => dialog().close() } }, "Cancel");

// comment asks for a comment on a group, and has it written.
export function comment(at, snapshot, n, done) {
  const g = snapshot.groups[n];
  const failure = el("div");
  const text = el("input", { type: "text", id: "o-text", value: g.comment?.text ?? "", autocomplete: "off", maxlength: "1000" });
  frame(`Comment on ${g.value || "(none)"}${inPlace(at.label)}`, el("form", {
    on: {
      submit: async (e) => {
        e.preventDefault();
        try {
          g.comment = await at.post("/api/comment", { snapshot: snapshot.id, group: n, text: text.value });
        } catch (problemFound) {
          set(failure, problem(problemFound));
          return;
        }
        dialog().close();
        done();
      },
    },
  }, el("p", {}, "Others see it at this group for 90 days. An empty text takes it back."),
  el("div", { class: "field wide" }, el("label", { for: "o-text" }, "Comment, such as a ticket"), text), failure,
  el("div", { class: "buttons" }, cancel(), el("button", { class: "primary" }, "Save"))));
  text.focus();
}

const wide = (e) => { e.classList.add("wide"); return e; };
const field = (id, label, value, title) => el("div", { class: "field" }, el("label", { for: "o-" + id }, label), el("input", { type: "text", id: "o-" + id, name: id, value, title, autocomplete: "off" }));

// target asks where messages go. The name of a queue or an exchange, and a key, are asked for only
// where they say something: the key of the message too if it is not null.
function target(own) {
  const place = wide(field("place", "Name", "", "the name of the queue or the exchange"));
  const key = wide(field("key", "Routing key", own ?? "", own === null ? "the key for all messages" : "the key of the message"));
  const named = (to) => {
    place.hidden = !to.endsWith(":");
    key.hidden = to !== "exchange:" && (own === null || to === "queue:");
    key.querySelector("input").required = Boolean(own) && !key.hidden && to !== "exchange:"; // it is changed, not removed
  };
  named("");
  const fields = [
    el("div", { class: "field wide" }, el("label", { for: "o-to" }, "To"), el("select", { id: "o-to", name: "to", on: { change: (e) => named(e.target.value) } },
      el("option", { value: "" }, "the work queue that failed, and no other"), el("option", { value: "original" }, "exchange and key of the publisher: all queues bound there"),
      el("option", { value: "queue:" }, "a queue"), el("option", { value: "exchange:" }, "an exchange, with a key"))),
    place, key,
  ];
  const answer = (f) => {
    const to = f.get("to") ?? "";
    const changed = to === "exchange:" || own !== null && to !== "queue:" && f.get("key") !== own;
    return { to: to.endsWith(":") ? to + f.get("place") : to, key: changed ? f.get("key") : "" };
  };
  return { fields, answer };
}

// act asks for the options of an action. grouped is how many messages a group had that it is for.
export function act(at, action, ask, text, done, grouped) {
  const [verb, explained] = verbs[action];
  const title = `${verb} ${text} of ${ask.queue}${inPlace(at.label)}`;
  const goes = target(null);
  const options = action !== "replay" ? [] : [
    goes.fields,
    field("rate", "Rate", "10/s", "messages a second, or none"), field("ramp", "First batches", "1,10,100", "each must succeed before the next is sent"),
    field("stopOn", "Stop after repeated failures", "3", "a number, a share such as 20%, or never"),
    wide(el("label", { class: "check" }, el("input", { type: "checkbox", name: "again" }), "include messages that were replayed before")),
  ];
  const failure = el("div");
  const form = el("form", {
    on: {
      submit: async (e) => {
        e.preventDefault();
        const f = new FormData(form);
        const full = { ...ask, action, reason: f.get("reason") ?? "" };
        if (action === "replay") Object.assign(full, goes.answer(f), { rate: f.get("rate"), ramp: f.get("ramp"), stopOn: f.get("stopOn"), again: f.has("again") });
        await propose(at, full, title, form, failure, done, grouped);
      },
    },
  }, el("p", {}, explained), el("div", { class: "options" }, options, wide(field("reason", "Reason, for the record of the run", ""))), failure,
  el("div", { class: "buttons" }, cancel(), el("button", { class: "primary" }, "Show what it would do")));
  frame(title, form);
}

// header makes the form of a header: one of the message, or a new one. A header that was not touched
// is not sent, so that the message keeps it as it is, with what the form cannot show.
function header(h, types) {
  const name = h ? el("code", { class: "name" }, h.name) : el("input", { type: "text", placeholder: "name", autocomplete: "off", "aria-label": "Name of the new header" });
  const about = h ? h.name : "the new header";
  const kind = el("select", { "aria-label": "Type of " + about }, types.map((t) => el("option", { value: t }, t)));
  const value = el("textarea", { rows: "1", spellcheck: "false", class: "mono", "aria-label": "Value of " + about });
  kind.value = h?.type ?? "string";
  value.value = h?.text ?? "";
  const before = [kind.value, value.value]; // as the form has them
  let removed = false;
  const remove = el("button", {
    type: "button", class: "quiet", "aria-label": "Remove " + about, on: {
      click: () => {
        if (!h) { element.remove(); removed = true; return; }
        removed = !removed;
        kind.disabled = value.disabled = removed;
        element.classList.toggle("removed", removed);
        set(remove, removed ? "Keep" : "Remove");
      },
    },
  }, "Remove");
  const element = el("div", { class: "edited", "data-header": h?.name ?? "" }, name, kind, value, remove);
  return {
    element,
    change() {
      if (removed) return h ? { name: h.name, remove: true } : null;
      if (h && kind.value === before[0] && value.value === before[1]) return null;
      return { name: h ? h.name : name.value, type: kind.value, text: value.value };
    },
  };
}

// headers makes the form of the headers.
function headers(list, types) {
  const made = list.filter((h) => !h.fixed).map((h) => header(h, types));
  const fixed = list.filter((h) => h.fixed);
  const rows = el("div", { class: "headers" }, made.map((m) => m.element));
  const add = el("button", { type: "button", class: "quiet", id: "add-header", on: { click: () => {
    const m = header(null, types);
    made.push(m);
    rows.append(m.element);
    m.element.querySelector("input").focus();
  } } }, "Add a header");
  return {
    element: el("details", { id: "headers" }, el("summary", {}, `Headers (${count(list.length)})`), rows, add,
      fixed.length ? el("ul", { class: "fixed" }, fixed.map((h) => el("li", {}, el("code", {}, h.name), " ", el("span", { class: "mono" }, h.text), el("div", { class: "muted" }, h.fixed)))) : ""),
    changes: () => made.map((m) => m.change()).filter(Boolean),
  };
}

// edit shows a message for editing.
export async function edit(at, place, ask, d, done) {
  const title = `Edit ${d.handle}${inPlace(at.label)}`;
  frame(title, el("p", { class: "muted" }, "Reading the message"), el("div", { class: "buttons" }, cancel()));
  let s;
  try {
    s = await at.post("/api/source", place);
  } catch (e) {
    frame(title, problem(e), el("div", { class: "buttons" }, cancel()));
    return;
  }
  const area = el("textarea", { rows: "16", spellcheck: "false", class: "source", "aria-label": "Body" });
  area.value = s.text;
  const before = area.value; // as the form has it
  const list = headers(s.headers, s.types);
  const goes = target(s.key);
  const failure = el("div");
  const form = el("form", {
    on: {
      submit: async (e) => {
        e.preventDefault();
        const f = new FormData(form);
        const full = { ...ask, action: "edit", headers: list.changes(), format: d.body.format, reason: f.get("reason"), ...goes.answer(f) };
        if (!s.fixed && area.value !== before) full.body = area.value;
        await propose(at, full, title, form, failure, done);
      },
    },
  }, el("p", {}, verbs.edit[1]), s.fixed ? el("p", { class: "notice" }, "The body stays as it is: " + s.fixed) : area, list.element,
  el("div", { class: "options" }, goes.fields, wide(field("reason", "Reason, for the record of the run", ""))), failure,
  el("div", { class: "buttons" }, cancel(), el("button", { class: "primary" }, "Show what it would do")));
  frame(title, form);
  if (s.fixed) list.element.open = true;
  else area.focus();
}

// propose asks what would happen, and shows it.
async function propose(at, ask, title, form, failure, done, grouped) {
  const button = form.querySelector("button.primary");
  button.disabled = true;
  set(failure);
  try {
    const p = await at.post("/api/propose", ask);
    if (p.chosen + (p.leftOutReplayedBefore || 0) > grouped) p.notes.push(`The list has ${many(grouped, "message")} in this group, and its expression chooses more: others look alike, or have come since.`);
    show(at, p, ask.queue, () => frame(title, form), done);
  } catch (e) {
    set(failure, problem(e));
  } finally {
    button.disabled = false;
  }
}

const known = (n) => (n === undefined ? "unknown" : count(n));

function show(at, p, queue, back, done) {
  const [verb] = verbs[p.action];
  const failure = el("div");
  const goes = p.refusals.length === 0 && p.chosen > 0;
  const go = el("button", {
    type: "button", id: "go", class: p.action === "discard" ? "primary harsh" : "primary", disabled: !goes, on: {
      click: async () => {
        go.disabled = true;
        try {
          await at.post("/api/execute", { proposal: p.id, expect: p.chosen });
          dialog().close();
          say("the run has started");
          location.hash = "#/runs";
        } catch (e) {
          set(failure, problem(e));
        }
      },
    },
  }, `${verb} ${many(p.chosen, "message")}`);
  frame(`${verb} ${many(p.chosen, "message")} of ${queue}${inPlace(p.at)}`, el("form", { on: { submit: (e) => e.preventDefault() } },
    el("p", {}, el("strong", {}, many(p.chosen, "message") + (p.chosen === 1 ? " is" : " are") + " chosen"), `, of ${count(p.looked.lookedAt)} looked at` + (p.firstFailed ? `; they failed from ${stamp(p.firstFailed)} to ${stamp(p.lastFailed)}.` : ".")),
    p.looked.notLookedAt ? el("p", { class: "notice warn" }, p.looked.notLookedAt) : "",
    p.leftOutReplayedBefore ? el("p", { class: "notice" }, `${many(p.leftOutReplayedBefore, "message")} left out: replayed before.`) : "",
    p.copies ? el("p", { class: "notice" }, `${many(p.copies, "message")} look like copies of others.`) : "",
    p.notes.map((n) => el("p", { class: "notice warn" }, n)),
    p.refusals.map((r) => problem(r)),
    p.diff ? el("div", {}, el("h3", {}, "What changes"), el("pre", { class: "body diff", tabindex: "0", "aria-label": "Changes" }, p.diff)) : "",
    p.groups.length ? el("div", {}, el("h3", {}, "What they have in common"), table(["Group", "#Messages"], p.groups.slice(0, 8).map((g) => [g.value || "(none)", count(g.count)]))) : "",
    p.reaches.length ? el("div", {}, el("h3", {}, "Where they would go"), table(["Queue", "Through", "#Messages", "#Consumers", "#Waiting"], p.reaches.map((r) => [
      r.queue || "no queue", r.exchange || r.key ? `${r.exchange || "(default)"}, key ${r.key || ""}` : "–", count(r.messages), known(r.consumers), known(r.waiting)]))) : "",
    el("div", {}, el("h3", {}, "The same on the command line"), command(p.command)), failure,
    el("div", { class: "buttons" }, el("button", { type: "button", on: { click: back } }, "Back"), el("button", { type: "button", on: { click: () => { dialog().close(); done(); } } }, "Cancel"), go)));
  if (goes) go.focus();
}
