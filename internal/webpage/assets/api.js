// Speaks to the hub, as whoever is signed in.
import * as session from "./session.js";

// root is the URL of the hub as the browser reaches it. It ends with a slash. The public
// URL, which others use, may be another one.
export const root = new URL("../../", import.meta.url);
const page = document.body.dataset;
export const base = page.base;
export const hasTokens = page.tokens === "true";
export const setNow = page.set;

// Problem is an answer of the hub that is an error, or no answer at all (status 0).
export class Problem extends Error {
  constructor(status, detail, type = "") {
    super(detail);
    this.status = status;
    this.type = type;
  }
}

// url returns the URL of something of the hub. Parameters that are empty are left out.
export function url(path, parameters = {}) {
  const u = new URL(path, root);
  for (const [name, value] of Object.entries(parameters)) {
    for (const v of [value].flat()) if (v !== "" && v !== null && v !== undefined) u.searchParams.append(name, v);
  }
  return u;
}

// request sends a request and returns the answer. An answer of 400 or more, and none, are
// a Problem. A 401 or 403 leads to signing in.
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
    throw new Problem(0, "The hub does not answer. It may be starting again.");
  }
  if (answer.ok) return answer;
  let detail = answer.statusText, type = "";
  try {
    const p = await answer.json();
    detail = p.detail ?? p.title ?? detail;
    type = (p.type ?? "").split("/").at(-1);
  } catch { /* a proxy answers with something else */ }
  const p = new Problem(answer.status, detail, type);
  if (!quiet) session.refused(p, token);
  throw p;
}

// get returns what the hub answers as JSON.
export const get = async (path, parameters, options = {}) => (await request(path, { parameters, ...options })).json();

// rest returns the path of the next page of a list, whose URL the hub gives as others
// would ask for it.
export const rest = (next) => (next ? new URL(next.slice(base.length + 1), root) : null);
