// Requests to the service. Refusals are thrown as a Problem with the text of the service.
// The session is in a cookie that no script can read, set by the one-time link or by logging in with a token.

const BASE = "/api/v1/";

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
      method, signal, headers: given, credentials: "same-origin", cache: "no-store",
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
