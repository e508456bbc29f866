/**
 * The client of the public API: `ask("GET /v1/runs/{run_id}", { path: { run_id } })`.
 * Routes, parameters and answers are typed by `api.d.ts`. Every request goes to this server, with the workspace of the page.
 */
import type { Routes } from "./api";
import { offline, problemOf } from "./problem";
import { me, workspace } from "./session";

export type RouteName = keyof Routes;
export type Answer<K extends RouteName> = Routes[K]["answer"];
export interface Asked<K extends RouteName> {
  path?: Routes[K]["path"];
  query?: Routes[K]["query"];
  body?: Routes[K]["body"];
  /** Makes a repeated submission the same one. */
  idempotencyKey?: string;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** The address of a route, for requests and for links. */
export function addressOf<K extends RouteName>(route: K, asked: Asked<K> = {}): string {
  const named = (asked.path ?? {}) as Record<string, string>;
  const path = route.slice(route.indexOf(" ") + 1).replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(named[name] ?? ""));
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries((asked.query ?? {}) as Record<string, unknown>)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** The answer as it came; throws a `Problem` unless it is a success. */
export async function fetched<K extends RouteName>(route: K, asked: Asked<K> = {}): Promise<Response> {
  const method = route.slice(0, route.indexOf(" "));
  const headers: Record<string, string> = { Accept: "application/json, */*;q=0.1", ...asked.headers };
  if (workspace.value) headers["Detent-Workspace"] = workspace.value;
  if (method !== "GET" && me.value?.csrf) headers["Detent-CSRF"] = me.value.csrf;
  if (asked.idempotencyKey) headers["Idempotency-Key"] = asked.idempotencyKey;
  const init: RequestInit = { method, headers, credentials: "same-origin", cache: "no-cache" };
  if (asked.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(asked.body);
  }
  if (asked.signal) init.signal = asked.signal;
  let answer: Response;
  try {
    answer = await fetch(addressOf(route, asked), init);
  } catch (thrown) {
    if (thrown instanceof DOMException && thrown.name === "AbortError") throw thrown;
    throw offline();
  }
  if (!answer.ok) {
    const problem = await problemOf(answer);
    if (problem.status === 401 && route !== "POST /v1/login") me.value = null; // The shell shows the login, and keeps the URL.
    throw problem;
  }
  return answer;
}

/** The document that a route answers with. */
export async function ask<K extends RouteName>(route: K, asked: Asked<K> = {}): Promise<Answer<K>> {
  const answer = await fetched(route, asked);
  if (answer.status === 204) return undefined as Answer<K>;
  return (await answer.json()) as Answer<K>;
}

/** A key for a request that must not happen twice, however often it is sent. */
export function onceKey(): string {
  return `web-${[...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
}
