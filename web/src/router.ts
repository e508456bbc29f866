/**
 * Where the page is. Everything that a page shows follows from its address: path, query and fragment.
 * `href` makes addresses within the workspace, `go` follows one, `setQuery` changes filters, tabs and selections.
 */
import { signal } from "@preact/signals";

export interface Place {
  path: string;
  /** Empty outside of `/w/...`. */
  workspace: string;
  /** The parts of the path behind the workspace: `runs`, `prices-23f2`. The id of a job may have a slash of its own. */
  parts: string[];
  query: URLSearchParams;
  hash: string;
}

function read(): Place {
  const { pathname, search, hash } = location;
  const [, first, workspace, ...rest] = pathname.split("/");
  if (rest.at(-1) === "") rest.pop(); // A slash behind the address is the same page.
  const inside = first === "w" && !!workspace;
  return {
    path: pathname,
    workspace: inside ? decodeURIComponent(workspace) : "",
    parts: inside ? rest.map(decodeURIComponent) : [],
    query: new URLSearchParams(search),
    hash: hash.slice(1),
  };
}

export const at = signal<Place>(read());
addEventListener("popstate", () => (at.value = read()));
addEventListener("hashchange", () => (at.value = read()));

/** Follow an address of this site. */
export function go(address: string, { replace = false } = {}): void {
  const before = location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  at.value = read();
  if (location.pathname !== before) scrollTo(0, 0);
}

/** An address within a workspace: `href("runs", id)`, `href("runs", { status: "failed" })`. */
export function href(...parts: (string | Record<string, string | undefined>)[]): string {
  return hrefIn(at.value.workspace, ...parts);
}

export function hrefIn(workspace: string, ...parts: (string | Record<string, string | undefined>)[]): string {
  const words = parts.filter((part): part is string => typeof part === "string");
  const query = new URLSearchParams();
  for (const part of parts) {
    if (typeof part === "object") for (const [name, value] of Object.entries(part)) if (value) query.set(name, value);
  }
  const path = ["/w", workspace, ...words].map((word, place) => (place ? encodeURIComponent(word).replaceAll("%3A", ":") : word)).join("/");
  return query.size ? `${path}?${query}` : path;
}

/** Change the query; `undefined` and "" remove a name. A tab is a step of the history, typing in a filter is not. */
export function setQuery(changes: Record<string, string | undefined>, { replace = true, hash = "" } = {}): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  go(`${location.pathname}${query.size ? `?${query}` : ""}${hash ? `#${hash}` : ""}`, { replace });
}

/** Links of this site are followed without loading the page again; all others are the browser's. */
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.("a");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  const own = link.pathname === "/" || link.pathname === "/login" || link.pathname.startsWith("/w/");
  if (!own) return;
  event.preventDefault();
  if (link.pathname === location.pathname && link.search === location.search && link.hash) go(link.href, { replace: true });
  else go(link.href);
});
