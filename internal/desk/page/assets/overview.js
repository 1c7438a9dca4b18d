// The overview: each dead-letter queue, and what the last look at it found.
import { places } from "./api.js";
import { command, count, el, many, problem, put, set, stamp, table, time } from "./dom.js";

export function overview(main) {
  document.title = "Queues · dlxctl desk";
  const all = places();
  if (all[0].label) put(main, el("div", { class: "heading" }, el("h1", {}, "Dead-letter queues")));
  const ends = all.map((p) => cluster(main, p));
  return () => ends.forEach((end) => end());
}

// cluster shows the queues of a virtual host, next to those of others. One that does not answer says
// so, and hides no other.
function cluster(main, p) {
  const holder = el("div", { class: "panel" }, el("p", { class: "muted" }, "Reading the queues"));
  const warning = el("div");
  const waiting = el("div");
  const line = el("div", {}, p.label ? "" : command(" "));
  const told = el("span", { class: "muted" }, "Counts are up to 5 seconds old.");
  const fold = { open: false }; // whether the empty queues are listed
  put(main, el("section", p.label ? { class: "cluster", "aria-label": p.label } : {}, el("div", { class: "heading" }, el(p.label ? "h2" : "h1", {}, p.label || "Dead-letter queues"), p.broker ? el("span", { class: "muted" }, p.broker) : "", told), warning, holder, waiting,
  p.label ? "" : el("h3", {}, "The same on the command line"), line));
  let gone = false;
  const refresh = async () => {
    try {
      const { queues, delays, notice, found, at, command: text } = await p.get("/api/queues");
      if (gone) return;
      set(warning, notice ? el("p", { class: "notice warn" }, notice) : "", found ? el("p", { class: "notice" }, found) : "");
      set(holder, queues.length ? rows(p, queues, fold) : found ? "" : el("p", {}, "This topology has no dead-letter queue yet. Run dlxctl apply."));
      set(waiting, delays?.length ? delayed(delays) : "");
      set(line, command(text));
      set(told, `Counts were read at ${stamp(at)}, and were up to 5 seconds old. ` + (queues.some((q) => q.lookedAt) ? "Oldest, new and cause are from the last look." : "Open a queue to look at it."));
    } catch (e) {
      if (gone) return;
      [warning, told, waiting, line].forEach((part) => set(part));
      set(holder, problem(p.label ? `${p.label} cannot be shown: ${e.message}` : e));
    }
  };
  let timer;
  const again = async () => {
    if (!document.hidden && !holder.contains(document.activeElement)) await refresh();
    if (!gone) timer = setTimeout(again, 5000); // one that hangs is not asked twice
  };
  again();
  return () => { gone = true; clearTimeout(timer); };
}

// delayed shows what waits for delays, those without a message too.
function delayed(delays) {
  return [
    el("h3", {}, "Delayed messages, up to 12 seconds old"),
    el("div", { class: "panel" }, table(["Delay", "#Messages", "Waiting in", "To"], delays.map((d) => [d.name, count(d.messages), d.waitingIn || "–", d.to]), "delays")),
  ];
}

// rows shows the queues that have messages, or may, most first, and folds the others. A column in which all
// queues are equal is left out.
function rows(p, queues, fold) {
  const busy = (q) => q.unknown || q.messages > 0 || q.unacknowledged > 0 || q.runs.length > 0;
  const full = queues.filter(busy).sort((a, b) => b.messages - a.messages);
  const empty = queues.filter((q) => !busy(q));
  const link = (q) => el("a", { href: p.address("queue/" + encodeURIComponent(q.name)) }, q.name);
  const kind = (q) => q.role + (q.type && q.type !== "quorum" ? ", " + q.type : "");
  const looked = full.some((q) => q.lookedAt);
  // Messages that do not tell when they failed may be new.
  const fresh = (q) => (q.undated === 0 ? count(q.recent) : el("span", { title: `${many(q.undated, "message")} of the last look ${q.undated === 1 ? "does" : "do"} not tell when ${q.undated === 1 ? "it" : "they"} failed` }, q.oldest ? `${count(q.recent)} or more` : "?"));
  const seen = (q, shown) => (q.lookedAt ? shown || "–" : el("span", { class: "muted", title: "not looked at" }, "–"));
  const columns = [
    { name: "Queue", cell: link },
    { name: "#Messages", cell: (q) => (q.unknown ? el("span", { class: "muted", title: "the broker does not tell: the node of the queue may be down" }, "?") : [count(q.messages), q.unacknowledged ? el("span", { class: "muted" }, ` (${count(q.unacknowledged)} held)`) : ""]) },
    { name: "Oldest", cell: (q) => seen(q, q.oldest && time(q.oldest)), shown: looked },
    { name: "#New in 24 h", cell: (q) => seen(q, fresh(q)), shown: looked },
    { name: "Top cause", cell: (q) => seen(q, q.topCause), shown: looked },
    { name: "For", cell: kind, shown: full.some((q) => kind(q) !== "dead-letter") },
    { name: "Owner", cell: (q) => q.owner || "–", shown: full.some((q) => q.owner) },
    { name: "Runs", cell: (q) => (q.runs.length ? el("a", { href: "#/runs" }, q.runs.join(", ")) : "–"), shown: full.some((q) => q.runs.length) },
  ].filter((c) => c.shown ?? true);
  const more = full.length ? `${many(empty.length, "more queue")} ${empty.length === 1 ? "is" : "are"} empty` : empty.length === 1 ? "The queue is empty" : `All ${empty.length} queues are empty`;
  return [
    full.length ? table(columns.map((c) => c.name), full.map((q) => columns.map((c) => c.cell(q))), "overview") : "",
    empty.length ? el("details", { class: "empty", open: fold.open, on: { toggle: (e) => { fold.open = e.target.open; } } },
      el("summary", {}, more), el("ul", {}, empty.map((q) => el("li", {}, link(q), el("span", { class: "muted" }, " " + kind(q)))))) : "",
  ];
}
