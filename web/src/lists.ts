/** Lists that grow by pages and stay live: what is shown is patched in place, what is new waits behind a button. */
import { useMemo, useRef, useState } from "preact/hooks";
import { ask } from "./client";
import type { Answer, RouteName, Asked } from "./client";
import { coalesced, type LiveEvent, perFrame, useLive } from "./live";
import type { Patch } from "./patches";
import { asProblem, type Problem } from "./problem";
import { type Resource, useLoad } from "./resource";
import { workspace } from "./session";

interface Page<Row> {
  items: Row[];
  next: string | null;
}
export interface List<Row> {
  resource: Resource<Page<Row>>;
  rows: Row[];
  more: (() => void) | undefined;
  loadingMore: boolean;
  problem: Problem | undefined;
  /** How many newer ones wait to be shown. */
  fresh: number;
  showFresh: () => void;
}

const REFRESH_MS = 1_000;

/** A list route whose rows have a key; `topics` say which events may change it, `patch` how a row follows them by itself. */
export function useList<K extends RouteName, Row>(route: K, query: Asked<K>["query"], keyOf: (row: Row) => string, topics: string[], { path, patch }: { path?: Asked<K>["path"]; patch?: Patch<Row> } = {}): List<Row> {
  const key = `${workspace.value} list ${route} ${JSON.stringify([path, query])}`;
  const read = (cursor?: string) => ask(route, { ...(path && { path }), query: { ...query, ...(cursor ? { cursor } : {}) } } as Asked<K>) as Promise<Answer<K> & Page<Row>>;
  const resource = useLoad<Page<Row>>(key, () => read());
  const waiting = useRef<Row[]>([]);
  const [fresh, setFresh] = useState(0);
  const [loadingMore, setLoadingMore] = useState(false);
  const [problem, setProblem] = useState<Problem>();

  const refresh = useMemo(
    () =>
      coalesced(() => {
        const shown = resource.data.peek();
        if (!shown) return void resource.reload();
        read()
          .then((page) => {
            const now = new Map(page.items.map((row) => [keyOf(row), row]));
            const known = new Set(shown.items.map(keyOf));
            waiting.current = page.items.filter((row) => !known.has(keyOf(row)));
            resource.problem.value = undefined;
            const current = resource.data.peek() ?? shown;
            if (!current.items.length && waiting.current.length) {
              resource.put(page);
              waiting.current = [];
            } else resource.put({ ...current, items: current.items.map((row) => answered(row, now.get(keyOf(row)), patch)) });
            setFresh(waiting.current.length);
          })
          .catch(() => undefined); // The bar says that the server is away.
      }, REFRESH_MS),
    [key],
  );
  const apply = useMemo(
    () =>
      perFrame<LiveEvent["data"]>((batch) => {
        const shown = resource.data.peek();
        if (!shown || !patch) return;
        const changed = new Map(shown.items.map((row) => [keyOf(row), row]));
        let known = 0;
        for (const data of batch) {
          const row = changed.get(String(data[patch.key]));
          if (row === undefined) continue;
          known += 1;
          changed.set(keyOf(row), patch.apply(row, data));
        }
        if (known < batch.length) refresh(); // A row that is not shown: it may be a new one.
        if (known) resource.put({ ...shown, items: [...changed.values()] });
      }),
    [key],
  );
  useLive(topics, (event) => {
    if (patch && event.event === patch.event) return apply(event.data);
    if (event.event === "again") return refresh();
    if (!topics.some((topic) => topic === `${event.event}s`)) return;
    if (!patch?.asks || patch.asks(event, new Map(resource.data.peek()?.items.map((row) => [keyOf(row), row])))) refresh();
  });

  const data = resource.data.value;
  const next = data?.next;
  return {
    resource,
    rows: data?.items ?? [],
    loadingMore,
    problem,
    more: next
      ? () => {
          setLoadingMore(true);
          setProblem(undefined);
          read(next)
            .then((page) => {
              const before = resource.data.peek();
              const known = new Set(before?.items.map(keyOf));
              resource.put({ items: [...(before?.items ?? []), ...page.items.filter((row) => !known.has(keyOf(row)))], next: page.next });
            })
            .catch((thrown: unknown) => setProblem(asProblem(thrown)))
            .finally(() => setLoadingMore(false));
        }
      : undefined,
    fresh,
    showFresh: () => {
      const before = resource.data.peek();
      resource.put({ items: [...waiting.current, ...(before?.items ?? [])], next: before?.next ?? null });
      waiting.current = [];
      setFresh(0);
    },
  };
}

/** A row behind an answer; one that is not on the page that was answered stays as it is. */
function answered<Row>(shown: Row, row: Row | undefined, patch: Patch<Row> | undefined): Row {
  if (row === undefined) return shown;
  return patch ? patch.newer(shown, row) : row;
}
