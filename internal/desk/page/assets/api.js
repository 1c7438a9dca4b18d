// Requests to the server. Each has the token of the session; an error is the text of the server.

let session = {};

async function send(method, path, body, signal) {
  let answer;
  try {
    answer = await fetch("." + path, { // a proxy may serve the page below a path
      method, signal, redirect: "error", credentials: "same-origin",
      headers: { "X-Csrf-Token": session.csrf ?? "", ...(body ? { "Content-Type": "application/json" } : {}) },
      body: body ? JSON.stringify(body) : undefined,
    });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Error("the server does not answer; is 'dlxctl desk serve' still running?");
  }
  const value = await answer.json().catch(() => ({ error: "the server answered " + answer.status }));
  // An open page stays as it is: what a person has typed is not lost.
  if (answer.status === 401 && session.role) dispatchEvent(new Event("signed-out"));
  if (!answer.ok) throw Object.assign(new Error(value.error), { status: answer.status });
  return value;
}

export const get = (path, signal) => send("GET", path, undefined, signal);
export const post = (path, body, signal) => send("POST", path, body, signal);

// begin reads what the page may do.
export async function begin() {
  session = await get("/api/session");
  return session;
}

export const may = (action) => (session.allow ?? []).includes(action);
export const readOnly = () => !(session.allow ?? []).length;
