// The page that audits a file. Every text of a file becomes a text node (dom.js).
import { command, count, el, many, problem, put, say, set } from "./dom.js";
import { ask, open, stop } from "./ask.js";

const $ = (id) => document.getElementById(id);
const examples = [
  ["ons-census-rm.json", "a census (ONS)"], ["neic-sda.json", "sensitive data (NeIC)"], ["datban.json", "microservices (datban)"],
];
const mostBytes = 64 * 1024 * 1024;
const mostFindings = 200; // of one rule, which the page shows
const order = ["error", "warning", "note"];
let turn = 0; // counts what a person began, so that a late answer is not shown

// during shows that something is under way, and how it ended.
async function during(text, work, show, place = $("result")) {
  const mine = ++turn;
  set($("doing"), text);
  $("busy").hidden = false;
  try {
    const answer = await work();
    if (mine === turn) show(answer);
  } catch (e) {
    if (mine === turn) set(place, problem(e));
  } finally {
    if (mine === turn) $("busy").hidden = true;
  }
}

function audit(name, read) {
  document.body.classList.add("begun");
  set($("result"));
  during("Auditing " + name + " … A file of several MB takes minutes; dlxctl on your machine is faster.", () => open(name, async () => {
    const bytes = await read();
    if (bytes.length > mostBytes) throw new Error(name + " is larger than 64 MiB, the limit of this page; run 'dlxctl audit' on it");
    return bytes;
  }), (answer) => show(name, answer));
}

const auditFile = (file) => audit(file.name, async () => {
  if (file.size > mostBytes) throw new Error(file.name + " is larger than 64 MiB, the limit of this page; run 'dlxctl audit' on it");
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new Error(file.name + " cannot be read; choose a file, not a folder");
  }
});

// show shows what an audit found, and offers the rest.
function show(name, answer) {
  const { audit: { summary, findings }, vhosts } = answer;
  let host = Math.max(0, vhosts.findIndex((v) => v.queues.length > 0));
  const body = el("div", { role: "tabpanel" });
  const tabs = [
    ["Findings", () => showFindings(body, answer)], ["Graph", () => showGraph(body, host, vhosts[host])],
    ["Topology file", () => showFile(body, host)], ["Trace a message", () => showTrace(body, host, vhosts[host])],
  ];
  let chosen = 0;
  const choose = (i) => {
    chosen = i;
    ++turn; // what another tab began is not shown here
    $("busy").hidden = true;
    buttons.forEach((b, k) => { b.setAttribute("aria-selected", String(k === i)); b.tabIndex = k === i ? 0 : -1; });
    body.setAttribute("aria-labelledby", buttons[i].id);
    set(body);
    tabs[i][1]();
  };
  const buttons = tabs.map(([title], i) => el("button", {
    type: "button", role: "tab", id: "tab-" + i, on: {
      click: () => choose(i),
      keydown: (e) => {
        const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[e.key];
        if (to === undefined) return;
        e.preventDefault();
        choose((to + tabs.length) % tabs.length);
        buttons[chosen].focus();
      },
    },
  }, title));
  const hosts = vhosts.length > 1 && el("div", { class: "choice" }, field("Virtual host, for graph, file and trace", el("select", {
    on: { change: (e) => { host = Number(e.target.value); choose(chosen); } },
  }, vhosts.map((v, i) => el("option", { value: i, selected: i === host }, v.name)))));
  set($("result"),
    el("div", { class: "heading" }, el("h2", {}, el("bdi", {}, name))),
    el("p", { class: "score" }, answer.score),
    el("p", { class: "counts" }, el("span", { class: summary.errors ? "danger" : "" }, many(summary.errors, "error")),
      el("span", { class: summary.warnings ? "warn" : "" }, many(summary.warnings, "warning")), el("span", {}, many(summary.notes, "note"))),
    hosts, el("div", { class: "tabs", role: "tablist" }, buttons), body);
  choose(0);
  say(name + ": " + many(findings.length, "finding"));
}

// field makes a control with its name.
const field = (text, control) => el("label", { class: "field" }, text, control);

function showFindings(body, { audit: { findings, vhosts }, titles }) {
  const rules = new Map();
  for (const f of findings) {
    const key = f.severity + " " + f.rule;
    if (!rules.has(key)) rules.set(key, []);
    rules.get(key).push(f);
  }
  if (rules.size === 0) put(body, el("p", { class: "good" }, "The audit found nothing."));
  const sorted = [...rules.values()].sort((a, b) => order.indexOf(a[0].severity) - order.indexOf(b[0].severity) || b.length - a.length);
  let first = true;
  for (const list of sorted) {
    const { rule, severity } = list[0];
    put(body, el("details", { class: "panel rule", open: severity !== "note" && list.length <= 10 || first },
      el("summary", {}, el("span", { class: "badge " + severity }, severity), titles[rule] ?? rule, " · " + count(list.length)),
      el("div", { class: "inside" },
        el("p", {}, el("a", { href: "docs/rules/" + encodeURIComponent(rule) + ".html" }, rule), ": why it matters, and an example"),
        list.slice(0, mostFindings).map((f) => finding(f, vhosts.length > 1)),
        list.length > mostFindings && el("p", { class: "muted" }, many(list.length - mostFindings, "more finding"),
          " of this rule; 'dlxctl audit -v' shows all."))));
    first = false;
  }
  put(body, el("p", { class: "muted" }, "In CI: "), command("dlxctl audit definitions.json -o sarif > audit.sarif"));
}

function finding(f, several) {
  const at = f.line ? " · line " + f.line : "";
  return el("div", { class: "finding" },
    el("h3", {}, f.kind + " ", el("span", { class: "mono" }, f.name), el("span", { class: "muted" }, (several ? " · vhost " + f.vhost : "") + at)),
    el("p", { class: "evidence" }, f.evidence), f.consequence !== "" && el("p", { class: "consequence" }, f.consequence),
    f.remedy !== "" && el("div", { class: "fix" }, el("span", { class: "good" }, "Fix"),
      /^(dlxctl|rabbitmq|curl)|\n/.test(f.remedy) ? command(f.remedy) : el("p", {}, f.remedy)));
}

// choices is a list of names to complete what a person types.
const choices = (id, names) => el("datalist", { id }, names.slice(0, 5000).map((n) => el("option", { value: n })));

function showGraph(body, vhost, { queues }) {
  const place = el("div");
  const queue = el("input", { type: "text", list: "queue-names", autocomplete: "off", spellcheck: "false" });
  const draw = () => during("Drawing …", () => ask({ do: "graph", vhost, queue: queue.value }), ({ svg }) => {
    if (svg === "") {
      set(place, el("p", { class: "notice" }, "The picture would have more than a person can read. Name a queue: the picture then " +
        "has what leads to it, and all that its messages can reach."));
      return;
    }
    const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    set(place, el("div", { class: "drawing", tabindex: "0" }, el("img", { src: url, alt: "Exchanges, queues, and the ways between them" })),
      el("p", {}, el("a", { href: url, download: "topology.svg" }, "Download the picture (SVG)")));
  }, place);
  put(body, el("form", { class: "choice", on: { submit: (e) => { e.preventDefault(); draw(); } } },
    field("Only what has to do with this queue", queue), el("button", { type: "submit" }, "Draw")), choices("queue-names", queues), place);
  draw();
}

function showFile(body, vhost) {
  during("Writing the topology file …", () => ask({ do: "import", vhost }), (file) => {
    const url = URL.createObjectURL(new Blob([file.text], { type: "application/yaml" }));
    set(body, el("p", {}, "A topology file for what exists: " + many(file.queues, "queue") + ", " + many(file.exchanges, "exchange") +
      ". It changes nothing: all queues stay as they are until you edit it. Comments propose retries and dead-letter queues."),
    el("div", { class: "acts" }, el("a", { class: "button primary", href: url, download: file.name }, "Download " + file.name)),
    el("h3", {}, "Next"), command("dlxctl plan -f " + file.name), el("h3", {}, file.name), el("pre", { class: "body lines", tabindex: "0" }, file.text));
  }, body);
}

function showTrace(body, vhost, { exchanges }) {
  const exchange = el("input", { type: "text", list: "exchange-names", autocomplete: "off", spellcheck: "false" });
  const key = el("input", { type: "text", "data-name": "key", autocomplete: "off", spellcheck: "false" });
  const fail = el("input", { type: "number", min: "0", max: "1000", placeholder: "always" });
  const reason = el("select", {}, [["rejected", "they reject it"], ["expired", "none takes it in time"], ["crash", "they crash"]]
    .map(([value, text]) => el("option", { value }, text)));
  const place = el("div", { "aria-live": "polite" });
  const run = () => during("Tracing …", () => ask({
    do: "trace", vhost, exchange: exchange.value, key: key.value, fail: fail.value === "" ? -1 : Number(fail.value), reason: reason.value,
  }), ({ text, lost }) => set(place, lost && el("p", { class: "danger" }, "The message is lost."), el("pre", { class: "body", tabindex: "0" }, text)), place);
  put(body, el("p", {}, "Which queues does a message reach, and what follows when its consumers fail? Nothing is published."),
    el("form", { class: "choice", on: { submit: (e) => { e.preventDefault(); run(); } } },
      field("Exchange (empty: the default exchange)", exchange), field("Routing key", key), field("Fails in each queue, times", fail),
      field("How consumers fail", reason), el("button", { type: "submit", class: "primary" }, "Trace")),
    choices("exchange-names", exchanges), place);
}

for (const [name, title] of examples) {
  put($("examples"), el("button", {
    type: "button", class: "quiet", "data-example": name, on: {
      click: () => audit(name, async () => {
        const response = await fetch("examples/" + name);
        if (!response.ok) throw new Error("the example could not be loaded: " + response.status);
        return new Uint8Array(await response.arrayBuffer());
      }),
    },
  }, title));
}
$("file").addEventListener("change", ({ target }) => {
  if (target.files.length > 0) auditFile(target.files[0]);
  target.value = ""; // the same file may be chosen again after an edit
});
$("read").addEventListener("click", () => audit("the text", async () => new TextEncoder().encode($("text").value)));
$("stop").addEventListener("click", stop);
document.addEventListener("dragover", (e) => {
  e.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", (e) => { if (!e.relatedTarget) document.body.classList.remove("dropping"); });
document.addEventListener("drop", (e) => {
  e.preventDefault();
  document.body.classList.remove("dropping");
  const [file] = e.dataTransfer.files;
  if (file) auditFile(file);
});
