// The worker: dlxctl, compiled to WebAssembly. It answers one question after the other.
"use strict";

let ready;

// start loads the program. It is compressed, so that no server has to do it.
async function start(base) {
  importScripts(base + "wasm_exec.js");
  const response = await fetch(base + "dlxctl.bin");
  if (!response.ok) throw new Error("the program could not be loaded: " + response.status + " " + response.statusText);
  const unpacked = response.body.pipeThrough(new DecompressionStream("gzip"));
  const go = new Go();
  const program = await WebAssembly.instantiateStreaming(new Response(unpacked, { headers: { "Content-Type": "application/wasm" } }), go.importObject);
  go.run(program.instance).then(() => postMessage({ ended: true }), () => postMessage({ ended: true }));
}

onmessage = async ({ data }) => {
  try {
    ready ??= start(data.base);
    await ready;
    const answer = dlxctl(JSON.stringify(data.question), data.bytes);
    postMessage(answer === undefined ? { ended: true } : { id: data.id, answer: JSON.parse(answer) });
  } catch (e) {
    postMessage(e instanceof WebAssembly.RuntimeError ? { ended: true } : { id: data.id, answer: { error: String(e.message ?? e) } });
  }
};
