// The overview: each dead-letter queue, and what the last look at it found.
import { get } from "./api.js";
import { command, count, el, problem, put, set, stamp, table, time } from "./dom.js";

export function overview(main) {
  document.title = "Queues · dlxctl desk";
  const holder = el("div", { class: "panel" }, el("p", { class: "muted" }, "Reading the queues"));
  const warning = el("div");
  const line = el("div", {}, command(" "));
  const told = el("span", { class: "muted" }, "Counts are up to 5 seconds old. Oldest, new and cause are from the last look.");
  put(main, el("div", { class: "heading" }, el("h1", {}, "Dead-letter queues"), told), warning, holder,
  el("h3", {}, "The same on the command line"), line);
  let gone = false;
  const refresh = async () => {
    try {
      const { queues, notice, at, command: text } = await get("/api/queues");
      if (gone) return;
      set(warning, notice ? el("p", { class: "notice warn" }, notice) : "");
      set(holder, queues.length ? rows(queues) : el("p", {}, "This topology has no dead-letter queue yet. Run dlxctl apply."));
      set(line, command(text));
      set(told, `Counts were read at ${stamp(at)}, and were up to 5 seconds old. Oldest, new and cause are from the last look.`);
    } catch (e) {
      if (!gone) set(holder, problem(e));
    }
  };
  refresh();
  const timer = setInterval(() => document.hidden || holder.contains(document.activeElement) || refresh(), 5000);
  return () => { gone = true; clearInterval(timer); };
}

function rows(queues) {
  const not = () => el("span", { class: "muted" }, "not looked at");
  return table(["Queue", "For", "#Messages", "Oldest", "#New in 24 h", "Top cause", "Owner", "Runs"], queues.map((q) => [
    el("a", { href: "#/queue/" + encodeURIComponent(q.name) }, q.name),
    q.role + (q.type && q.type !== "quorum" ? ", " + q.type : ""),
    [count(q.messages), q.unacknowledged ? el("span", { class: "muted" }, ` (${count(q.unacknowledged)} held)`) : ""],
    q.lookedAt ? (q.oldest ? time(q.oldest) : "–") : not(),
    q.lookedAt ? count(q.recent) : "–",
    q.lookedAt ? q.topCause || "–" : "–",
    q.owner || "–",
    q.runs.length ? el("a", { href: "#/runs" }, q.runs.join(", ")) : "–",
  ]), "overview");
}
