// Requests to the hub with the token of the signed-in user.
import * as session from "./session.js";

// root is the URL of the hub in this browser, with a slash at the end. The public URL (base)
// may differ.
export const root = new URL("../../", import.meta.url);
const page = document.body.dataset;
export const base = page.base;
export const hasTokens = page.tokens === "true";
export const setNow = page.set;

// A Problem is an error response of the hub, or a missing response (status 0).
export class Problem extends Error {
  constructor(status, detail, type = "") {
    super(detail);
    this.status = status;
    this.type = type;
  }
}

// url returns the URL of a path of the hub. Empty parameters are omitted.
export function url(path, parameters = {}) {
  const u = new URL(path, root);
  for (const [name, value] of Object.entries(parameters)) {
    for (const v of [value].flat()) if (v !== "" && v !== null && v !== undefined) u.searchParams.append(name, v);
  }
  return u;
}

// request sends a request and returns the response. It throws a Problem if there is no
// response, or if its status is 400 or above. A 401 or 403 opens the sign-in dialog, unless
// quiet is set.
export async function request(path, { parameters, method = "GET", accept = "application/json", body, headers, signal, quiet } = {}) {
  const all = { Accept: accept, ...headers };
  const token = session.token();
  if (token) all.Authorization = "Bearer " + token;
  if (body !== undefined) all["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path instanceof URL ? path : url(path, parameters), {
      method, headers: all, signal, cache: "no-store", credentials: "omit", redirect: "error",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new Problem(0, "The hub does not answer. It may be restarting.");
  }
  if (answer.ok) return answer;
  let detail = answer.statusText, type = "";
  try {
    const p = await answer.json();
    detail = p.detail ?? p.title ?? detail;
    type = (p.type ?? "").split("/").at(-1);
  } catch { /* the error of a proxy */ }
  const p = new Problem(answer.status, detail, type);
  if (!quiet) session.refused(p, token);
  throw p;
}

// get returns the JSON of a response.
export const get = async (path, parameters, options = {}) => (await request(path, { parameters, ...options })).json();

// rest converts the public URL of the next page of a list into one for this browser, or null.
export const rest = (next) => (next ? new URL(next.slice(base.length + 1), root) : null);
