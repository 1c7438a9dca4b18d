// Questions to the worker. Only one is asked at a time: what takes too long can be stopped, and the
// page never waits for it.

let worker, pending, next = 0, opened;

// A worker that is loaded from a server has the policy of its own response. One that begins as a
// blob has the policy of this page: it can connect to no other server.
function start() {
  const base = new URL(".", document.baseURI).href;
  const source = URL.createObjectURL(new Blob([`importScripts(${JSON.stringify(base + "worker.js")});`], { type: "text/javascript" }));
  worker = new Worker(source);
  worker.onmessage = ({ data }) => {
    if (data.ended) {
      end("dlxctl ended in this browser, most likely because the file needs more memory than a page gets; run the command on your machine");
    } else if (data.id === pending?.id) {
      const { resolve, reject } = pending;
      pending = null;
      if (data.answer.error) reject(new Error(data.answer.error));
      else resolve(data.answer);
    }
  };
  worker.onerror = (e) => {
    e.preventDefault();
    end("the program could not be started: " + (e.message || "the browser blocks it"));
  };
  return base;
}

let base;

// end ends the worker. The question that it was asked fails.
function end(reason) {
  worker?.terminate();
  worker = null;
  const failed = pending;
  pending = null;
  failed?.reject(new Error(reason));
}

// stop ends what the worker does.
export const stop = () => end("stopped");

// expect is the answer to the question that is sent next. It can be stopped before that.
const expect = () => new Promise((resolve, reject) => { pending = { id: ++next, resolve, reject }; });

function send(question, bytes) {
  base = worker ? base : start();
  worker.postMessage({ id: pending.id, question, bytes, base });
}

function post(question, bytes) {
  const answer = expect();
  send(question, bytes);
  return answer;
}

// open opens a file: its name, and a function that reads its bytes.
export async function open(name, read) {
  if (pending) stop();
  opened = null;
  const expected = expect(), mine = pending;
  let bytes;
  read().then((b) => {
    if (mine === pending) send({ do: "open", name }, bytes = b); // else it was stopped meanwhile
  }).catch((e) => { if (mine === pending) end(e.message); });
  const answer = await expected;
  opened = { name, bytes };
  return answer;
}

// ask asks about the open file. A worker that was stopped has forgotten it, so it is opened again.
export async function ask(question) {
  if (pending) stop();
  if (!worker && opened) await post({ do: "open", name: opened.name }, opened.bytes);
  return post(question);
}
