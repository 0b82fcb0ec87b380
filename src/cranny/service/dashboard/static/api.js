// Requests to the service. Refusals are thrown as a Problem with the text of the service.
// The session is kept in the storage of this origin and sent as a header. A cookie would be sent to all ports of the
// host, also to those on which jobs listen; storage belongs to one port, and all tabs of this browser share it.

const BASE = "/api/v1/";
const KEY = "cranny-session";
let unstored = null; // the session where the browser forbids storage: it ends with the page

export function session() {
  try {
    return localStorage.getItem(KEY) ?? unstored;
  } catch {
    return unstored;
  }
}

export function keepSession(secret) {
  unstored = secret;
  try {
    if (secret === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, secret);
  } catch {
    // kept by this page only
  }
}

// Call back when another tab has logged in or out.
export function whenSessionChanges(act) {
  addEventListener("storage", ({ key }) => { if (key === KEY || key === null) act(); });
}

export async function logIn(proof) {
  keepSession((await ask("session", { method: "POST", body: proof })).session);
}

export function headers(given) {
  const known = session();
  return known === null ? given : { ...given, Authorization: `Bearer ${known}` };
}

export class Problem extends Error {
  constructor(status, title, detail, errors = []) {
    const fields = errors.map((each) => `${each.field}: ${each.problem}`);
    super([detail || title, ...fields].join("\n"));
    Object.assign(this, { status, title, errors });
  }
}

export async function problemOf(answer) {
  let said = {};
  try {
    said = await answer.json();
  } catch {
    said = {}; // not JSON: the status still says something
  }
  return new Problem(
    answer.status, said.title ?? answer.statusText,
    said.detail ?? `the service answered ${answer.status} ${answer.statusText}`, said.errors,
  );
}

export function address(path, query = {}) {
  const pairs = Object.entries(query).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  const given = new URLSearchParams(pairs.filter(([
    , value,
  ]) => value !== undefined && value !== null && value !== ""));
  return `${BASE}${path}${given.size ? `?${given}` : ""}`;
}

export async function ask(path, { method = "GET", query, body, signal } = {}) {
  const given = { Accept: "application/json" };
  if (body !== undefined) given["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address(path, query), {
      method, signal, headers: headers(given), credentials: "omit", cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "No answer", "The service cannot be reached.");
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer.status === 204 ? null : answer.json();
}

export const segment = encodeURIComponent;
