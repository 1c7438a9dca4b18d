// Elements and texts. Every text on the page is made here, as a text node: no part of a message
// is ever read as HTML.

// Characters that would act on the text around them: control characters, marks that change the
// direction, invisible ones and line separators. They are shown as their codes.
const acting = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

// visible returns a text that can be shown next to others.
export function visible(text) {
  return String(text ?? "").replace(acting, (c) => "⟨U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩");
}

// el makes an element. Attributes that are false or missing are left out; "on" holds listeners.
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) e.addEventListener(event, listener);
    } else if (value === true) {
      e.setAttribute(name, "");
    } else if (value !== false && value !== undefined && value !== null) {
      e.setAttribute(name, visible(value));
    }
  }
  put(e, ...children);
  return e;
}

// put appends texts and elements. Empty ones are left out.
export function put(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    parent.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return parent;
}

// set replaces what an element holds.
export function set(e, ...children) {
  e.replaceChildren();
  return put(e, ...children);
}

// say tells a screen reader what happened.
export function say(text) {
  document.getElementById("announce").textContent = visible(text);
}

const whole = new Intl.NumberFormat("en-US");

export const count = (n) => whole.format(n);
export const many = (n, one, more = one + "s") => count(n) + " " + (n === 1 ? one : more);

// bytes writes a size.
export function bytes(n) {
  if (n < 1024) return many(n, "byte");
  if (n < 1024 * 1024) return (n / 1024).toFixed(1) + " KiB";
  return (n / 1024 / 1024).toFixed(1) + " MiB";
}

// stamp writes a time in UTC, to the second.
export function stamp(at) {
  if (!at) return "unknown";
  return new Date(at).toISOString().slice(0, 19).replace("T", " ") + "Z";
}

// age writes how long ago a time is.
export function age(at, now = Date.now()) {
  if (!at) return "unknown";
  const s = Math.max(0, (now - new Date(at)) / 1000);
  if (s < 5) return "just now";
  if (s < 60) return Math.floor(s) + " s ago";
  if (s < 3600) return Math.floor(s / 60) + " min ago";
  if (s < 48 * 3600) return Math.floor(s / 3600) + " h ago";
  return Math.floor(s / 86400) + " days ago";
}

// seconds writes a duration in seconds.
export const seconds = (s) => (s < 1 ? Math.round(s * 1000) + " ms" : s.toFixed(1) + " s");

// time makes an element with a short time, and the exact one as its title.
export const time = (at) => (at ? el("time", { datetime: at, title: stamp(at) }, age(at)) : "unknown");

// command makes a command line with a button that copies it.
export function command(line, idle = false) {
  const code = el("code", {}, line);
  const copy = el("button", {
    type: "button", class: "quiet", "aria-label": "Copy the command line", on: {
      click: async () => {
        try {
          await navigator.clipboard.writeText(code.textContent);
          say("copied");
          set(copy, "Copied");
        } catch { // the browser allows no copy: the text is selected in its place
          getSelection().selectAllChildren(code);
        }
      },
    },
  }, "Copy");
  return el("div", { class: idle ? "command idle" : "command" }, code, copy);
}

// problem shows an error.
export const problem = (e) => el("div", { class: "problem", role: "alert" }, e.message ?? e);

// table makes a table of column names and rows; a column that starts with # holds numbers.
export function table(columns, rows, kind = "") {
  const plain = columns.map((c) => c.replace(/^#/, ""));
  const numeric = columns.map((c) => c.startsWith("#"));
  return el("div", { class: "scroll" }, el("table", { class: kind },
    el("thead", {}, el("tr", {}, plain.map((c, i) => el("th", { scope: "col", class: numeric[i] ? "number" : "" }, c)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) =>
      el("td", { class: numeric[i] ? "number" : "value", "data-name": plain[i] }, cell)))))));
}
