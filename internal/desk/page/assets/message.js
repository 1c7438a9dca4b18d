// One message: why it died, its way, its body and its headers.
import { bytes, command, count, el, many, stamp } from "./dom.js";

// message makes the view of a message. acts are buttons.
export function message(d, close, acts) {
  return el("section", { class: "panel message", "aria-label": "Message " + d.handle },
    el("div", { class: "heading" }, el("h1", { class: "mono", id: "message-title", tabindex: "-1" }, d.handle), el("span", { class: "muted" }, `position ${count(d.position + 1)} in ${d.liesIn}`),
      el("button", { type: "button", class: "close", on: { click: close } }, "Close")),
    acts.length ? el("div", { class: "acts" }, acts) : "",
    el("h3", {}, "Why"), el("div", { class: "why" }, d.error || d.errorType || causeText(d)), facts(d),
    d.stack ? el("details", {}, el("summary", {}, "Stack trace"), el("pre", { class: "body", tabindex: "0" }, d.stack)) : "",
    el("h3", {}, "Body"), body(d.body),
    el("h3", {}, "Way of the message, oldest first"), timeline(d),
    (d.headers ?? []).map((f) => [el("h3", {}, "Headers of " + (f.name === "publisher" ? "the publisher" : f.name)), headers(f.headers)]),
    el("h3", {}, "The same on the command line"), command(d.command));
}

const causeText = (d) => (d.cause ? `The message was dead-lettered: ${d.cause}. No error text is in its headers.` : "No header tells why.");

// exact makes an element with a time to the second.
const exact = (at) => (at ? el("time", { datetime: at }, stamp(at)) : "unknown");

function facts(d) {
  const rows = [
    ["Cause", d.cause || "unknown"], ["Error type", d.errorType], ["Work queue", d.queue || (d.doubt ? "in doubt: " + d.doubt : "unknown")], ["Failed first in", d.firstQueue],
    ["Attempts", d.attempts === null ? "unknown" : count(d.attempts)], ...(d.dueAt ? [["Due", exact(d.dueAt)]] : [["First failed", exact(d.firstFailed)], ["Last failed", exact(d.lastFailed)]]),
    ["Published", d.published ? exact(d.published) : ""], ["Exchange", d.exchange || "(default)"], ["Key", d.key], ["Message-id", d.id],
    ["Type", d.type], ["Content type", d.contentType],
    ...(d.others ?? []).map((o) => [o.name, o.value]),
    ["Replayed", d.replays ? many(d.replays, "time") + (d.run ? ", last by run " + d.run : "") : "never"],
  ];
  return el("dl", {}, rows.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function timeline(d) {
  const hops = (d.hops ?? []).map((h) => el("li", {},
    el("div", {}, h.attempt ? `attempt ${count(h.attempt)}: ` : "", el("strong", {}, h.reason || "dead-lettered"), h.errorType ? [" by ", el("bdi", {}, h.errorType)] : "", h.annotated ? " (its consumer or its publisher says)" : "",
      " in ", el("bdi", {}, h.queue || "an unknown queue"), h.tier ? [", then waited ", el("bdi", {}, h.tier)] : "", h.count > 1 ? ` (${count(h.count)} times)` : ""),
    el("div", { class: "when" }, h.assumed ? "not in the headers: according to the topology of today" : h.time ? stamp(h.time) : "time unknown", h.keys?.length ? [" · key ", el("bdi", {}, h.keys.join(", "))] : "")));
  return el("ol", { class: "timeline" }, hops,
    el("li", {}, el("div", {}, "waits in ", el("bdi", {}, d.liesIn)), el("div", { class: "when" }, "since " + stamp(d.lastFailed))));
}

function body(b) {
  const told = [b.format, ...(b.steps ?? []).map((s) => "after " + s), b.bytes < 0 ? "" : bytes(b.bytes) + " as published"].filter(Boolean);
  return [
    el("p", { class: "muted" }, told.join(", ")),
    b.note ? el("p", { class: "notice" }, b.note) : "",
    b.left ? el("p", { class: "notice warn" }, `The page shows the first ${bytes(new Blob([b.text]).size)}; ${bytes(b.left)} more are not shown. The command line below shows all.`) : "",
    b.text ? el("pre", { class: "body", tabindex: "0", "aria-label": "Decoded body" }, b.text) : el("p", { class: "muted" }, "The body is empty."),
  ];
}

const headers = (list) => el("table", { class: "headers" }, el("tbody", {}, list.map((h) =>
  el("tr", {}, el("td", { class: "value mono" }, h.name), el("td", {}, h.type), el("td", { class: "value mono" }, h.value)))));
