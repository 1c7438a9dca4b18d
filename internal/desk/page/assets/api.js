// Requests to the server. Each has the token of the session; an error is the text of the server.

let session = {};

async function send(method, path, body, signal, cluster) {
  let answer;
  try {
    const to = cluster ? path + (path.includes("?") ? "&" : "?") + "cluster=" + encodeURIComponent(cluster) : path;
    answer = await fetch("." + to, { // a proxy may serve the page below a path
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

export const post = (path, body) => send("POST", path, body);

// place makes the virtual host that requests go to, of the page's clusters: each view has its own, so
// that none asks another one. Without a cluster it is the only one.
function place({ name, vhost, broker } = { name: "" }) {
  return {
    name, broker,
    label: name && `${name}, vhost ${vhost}`, // empty: there is no other
    address: (path) => (name ? "#/in/" + encodeURIComponent(name) + "/" : "#/") + path,
    get: (path, signal) => send("GET", path, undefined, signal, name),
    post: (path, body, signal) => send("POST", path, body, signal, name),
  };
}

// places returns the virtual hosts of the page.
export const places = () => (session.clusters?.length ? session.clusters.map(place) : [place()]);

// begin reads what the page may do.
export async function begin() {
  session = await send("GET", "/api/session");
  return session;
}

export const may = (action) => (session.allow ?? []).includes(action);
export const readOnly = () => !(session.allow ?? []).length;
