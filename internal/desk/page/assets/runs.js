// The runs: how far each is, what its brake has heard, and how to stop, resume or return it.
import { places } from "./api.js";
import { command, count, el, many, problem, put, set, stamp, time } from "./dom.js";

export function runs(main) {
  document.title = "Runs · dlxctl desk";
  const holder = el("div", { class: "runs" }, el("p", { class: "muted" }, "Reading the runs"));
  const failure = el("div");
  const line = el("div", {}, command(" "));
  put(main, el("div", { class: "heading" }, el("h1", {}, "Runs"),
    el("span", { class: "muted" }, "A run that stops keeps its messages in its hold. Nothing is lost; resume or return it.")), failure, holder,
  places().map(past), places()[0].label ? "" : [el("h3", {}, "The same on the command line"), line]);
  const cards = new Map();
  // The runs of each place as they were read last, or why they cannot be. Each is read by itself: one
  // that does not answer hides no other.
  const known = new Map(), problems = new Map(), timers = new Map();
  const read = async (p) => {
    clearTimeout(timers.get(p.name));
    try {
      const { runs: all, command: text } = await p.get("/api/runs");
      if (!known.has(p.name) && !p.label) set(line, command(text));
      known.set(p.name, all.map((r) => ({ ...r, at: p })));
      problems.delete(p.name);
    } catch (e) {
      problems.set(p.name, problem(p.label ? `The runs of ${p.label} cannot be shown: ${e.message}` : e));
      if (p.label) known.delete(p.name);
    }
    if (gone) return;
    set(failure, [...problems.values()]);
    const all = [...known.values()].flat();
    if (all.length || known.size === places().length) draw(holder, cards, all, failure, read);
    else { // it is not known that there are none
      set(holder);
      cards.clear();
    }
    const active = known.get(p.name)?.some((r) => r.active);
    clearTimeout(timers.get(p.name));
    timers.set(p.name, setTimeout(() => read(p), document.hidden ? 5000 : active ? 500 : 3000));
  };
  let gone = false;
  places().forEach(read);
  return () => { gone = true; timers.forEach(clearTimeout); };
}

// past folds the runs that have ended. Their records are read when the fold is opened.
function past(p) {
  const inside = el("div");
  const read = async (e) => {
    if (!e.target.open) return;
    set(inside, el("p", { class: "muted" }, "Reading the records"));
    try {
      const { runs: all, of, notice, command: text } = await p.post("/api/ended", {});
      set(inside, all.length ? el("ul", {}, all.map(pastRun)) : el("p", { class: "muted" }, "No record of the last 90 days"),
        of > all.length ? el("p", { class: "muted" }, `The newest ${count(all.length)} of ${count(of)}`) : "",
        notice ? el("p", { class: "warn" }, notice) : "", command(text));
    } catch (error) {
      set(inside, problem(error));
    }
  };
  return el("details", { class: "panel empty past", on: { toggle: read } }, el("summary", {}, "Runs that have ended" + (p.label && " in " + p.label)), inside);
}

const pastRun = (r) => el("li", {}, el("strong", {}, `${r.action} ${r.run}`), ` · ${r.queue} · ${r.outcome}`,
  el("div", { class: "muted" }, `by ${r.by || "unknown"} · `, time(r.endedAt), " · chose ", el("bdi", {}, r.chosenBy), r.reason ? [" · ", el("bdi", {}, r.reason)] : ""));

// draw updates the cards in place, so that a focused button stays focused.
function draw(holder, cards, all, failure, refresh) {
  if (!all.length) {
    set(holder, el("p", { class: "panel" }, "No run is in progress, and this page has started none."));
    cards.clear();
    return;
  }
  if (!cards.size) set(holder);
  const keys = new Set();
  all.forEach((r, i) => {
    const key = r.at.name + (r.mine ? " job " + r.id : " run " + r.run);
    keys.add(key);
    let card = cards.get(key);
    if (!card) cards.set(key, (card = make(failure, refresh)));
    card.update(r);
    if (holder.children[i] !== card.element) holder.insertBefore(card.element, holder.children[i] ?? null);
  });
  for (const [key, card] of cards) {
    if (!keys.has(key)) {
      card.element.remove();
      cards.delete(key);
    }
  }
}

function make(failure, refresh) {
  const part = Object.fromEntries(["title", "state", "about", "numbers", "brake"].map((name) => [name, el(name === "title" ? "h1" : "div", { class: name })]));
  const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress" });
  const buttons = el("div", { class: "acts" });
  const lines = el("details", {}, el("summary", {}, "Commands for this run"), el("div"));
  const element = el("section", { class: "panel run" }, el("div", { class: "heading" }, part.title, part.state), part.about, bar,
    el("div", { class: "line" }, part.numbers), part.brake, buttons, lines);
  let drawn = "";
  return {
    element,
    update(r) {
      const done = r.ended ? r.result.moved : r.progress.done;
      const chosen = r.progress.chosen || r.chosen;
      set(part.title, `${title(r)} ${r.run || "…"}`);
      const [state, kind] = stateOf(r);
      set(part.state, el("strong", { class: kind }, state));
      set(part.about, r.at.label && [el("strong", {}, r.at.label), " · "], `${r.queue} · by ${r.by || "unknown"} · `, time(r.started), r.reason ? [" · ", el("bdi", {}, r.reason)] : "");
      bar.max = Math.max(1, chosen);
      // A resumption moves only the rest: what was moved before is no longer in the hold.
      bar.value = r.mine && !r.does ? done : Math.max(0, chosen - (r.ended ? r.result.leftInHold + (r.result.goneFromHold || 0) : r.holds));
      set(part.numbers, numbers(r, done, chosen));
      set(part.brake, brake(r));
      const now = JSON.stringify([r.run, r.active, r.ended, r.allowed, open(r)]);
      if (now === drawn) return;
      drawn = now;
      set(buttons, acts(r).map(([does, text]) => el("button", {
        type: "button", "data-do": does, on: {
          click: async (e) => {
            e.target.disabled = true;
            try {
              await r.at.post("/api/runs/" + does, { run: r.run });
              await refresh(r.at);
            } catch (error) {
              set(failure, problem(error));
              e.target.disabled = false;
            }
          },
        },
      }, text)));
      buttons.hidden = !buttons.firstChild;
      lines.hidden = !r.run || !open(r);
      set(lines.lastChild, acts({ ...r, allowed: true, forever: false }).map(([does]) => command(r.commands[does])));
    },
  };
}

const title = (r) => (r.does === "return" ? "return of" : r.action + (r.forever ? " forever" : "")) + (r.does === "resume" ? ", resumed," : "");

// open reports whether the run has messages in its hold, as far as is known. A run that has ended has
// no hold: what it has not moved is in its queue.
const open = (r) => r.active || (r.ended ? !r.result.ended && (r.result.leftInHold > 0 || Boolean(r.error) && Boolean(r.run)) : true);

function acts(r) {
  if (!r.allowed || !open(r) || !r.run) return [];
  if (r.active) return [["cancel", "Stop"]];
  const back = ["return", "Return to the queue"];
  return r.forever ? [back] : [["resume", "Resume"], back]; // the page deletes nothing at once
}

function stateOf(r) {
  if (r.error) return ["failed", "danger"];
  if (r.ended) return r.result.leftInHold > 0 || r.result.stopped ? ["stopped", "warn"] : ["done", "good"];
  if (!r.active) return ["waits to be resumed", "warn"];
  if (r.progress.pausing) return ["pausing", "warn"];
  return [r.phase || "choosing", ""];
}

// doubled says which messages may be doubled. A second edit has another message-id than the first.
function doubled(r) {
  if (r.action === "edit" && r.result.leftInQueue) return "the edited message may have been sent nevertheless";
  return `at most ${count(r.result.doubledAtMost)} sent twice, with the same message-id if the publisher sets one`;
}

function numbers(r, done, chosen) {
  const parts = [`${count(done)} of ${r.does ? "the rest of " : ""}${many(chosen, "message")}`];
  if (!r.mine) parts[0] = `${many(r.holds, "message")} in the hold, of ${count(chosen)} chosen`;
  if (!r.ended && r.progress.batch) parts.push(`batch ${r.progress.batch}`);
  if (!r.ended && r.progress.rate) parts.push(`${r.progress.rate.toFixed(1)}/s`);
  if (r.ended && r.result.leftInHold) parts.push(`${count(r.result.leftInHold)} in the hold`);
  if (r.ended && r.result.leftInQueue) parts.push(`${count(r.result.leftInQueue)} still in the queue`);
  if (r.ended && r.result.goneFromHold) parts.push(`${count(r.result.goneFromHold)} not in the hold any more`);
  if (r.ended && r.result.missing) parts.push(`${count(r.result.missing)} were no longer in the queue`);
  if (r.ended && r.result.doubledAtMost) parts.push(doubled(r));
  if (r.ended) parts.push("ended " + stamp(r.ended));
  return parts.join(" · ");
}

// brake says what the brake heard, and when it stops.
function brake(r) {
  const failed = r.ended ? r.result.failedAgain : r.progress.failedAgain;
  const limit = r.stopFailures ? `stops at ${count(r.stopFailures)}` : r.stopShare ? `stops at ${Math.round(r.stopShare * 100)} % of the sent messages` : "never stops by itself";
  const parts = [];
  if (r.error) parts.push(el("div", { class: "danger" }, r.error));
  if (r.ended && r.result.stopped) parts.push(el("div", { class: "warn" }, r.result.stopped));
  if (r.progress.pausing && !r.ended) parts.push(el("div", { class: "warn" }, "Pausing: " + r.progress.pausing));
  const unheard = (r.ended ? r.result.unheard : r.progress.unheard) || [];
  if (unheard.length) parts.push(el("div", { class: "warn" }, "Failures are not heard in ", el("bdi", {}, unheard.join(", "))));
  if (r.action === "replay") parts.push(el("div", { class: failed ? "warn" : "muted" }, `Brake: ${count(failed)} failed again, ${limit}`, r.progress.lastFailure ? [". Last: ", el("bdi", {}, r.progress.lastFailure), r.progress.lastFailureKey ? ` (${r.progress.lastFailureKey})` : ""] : ""));
  return parts;
}
