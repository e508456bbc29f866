/**
 * What a page reads. `useAsk(route, asked)` gives the answer, the problem, and whether it is being asked.
 *
 * The last answer to the same question is shown at once while it is asked again, so going back is immediate. A section that
 * fails fails alone: its neighbours have resources of their own. `reload()` is quiet: what is shown stays until the new answer is there.
 */
import { useEffect, useMemo } from "preact/hooks";
import { type Signal, signal } from "@preact/signals";
import { type Answer, type Asked, type RouteName, ask } from "./client";
import { Problem, asProblem } from "./problem";
import { workspace } from "./session";

const KEPT_MAX = 80;
const kept = new Map<string, unknown>();

export class Resource<T> {
  readonly data: Signal<T | undefined>;
  readonly problem = signal<Problem | undefined>(undefined);
  readonly loading = signal(false);
  private running: Promise<void> | undefined;
  private again = false;
  private gone = false;

  constructor(
    readonly key: string,
    private readonly make: () => Promise<T>,
  ) {
    this.data = signal(kept.get(key) as T | undefined);
  }

  /** Ask again. While a question is open a further one waits for it, and many become one. */
  reload = (): Promise<void> => {
    if (this.running) {
      this.again = true;
      return this.running;
    }
    this.loading.value = true;
    this.running = this.asked().finally(() => {
      this.running = undefined;
      this.loading.value = false;
      if (this.again && !this.gone) {
        this.again = false;
        void this.reload();
      }
    });
    return this.running;
  };

  /** Put a changed answer in place: a row that an event patched. */
  put(data: T): void {
    this.data.value = data;
    keep(this.key, data);
  }

  /** Nobody looks any more. */
  end(): void {
    this.gone = true;
  }

  private async asked(): Promise<void> {
    try {
      const data = await this.make();
      if (this.gone) return;
      this.problem.value = undefined;
      this.put(data);
    } catch (thrown) {
      if (this.gone) return;
      const problem = asProblem(thrown);
      this.problem.value = problem;
      // What is known is still shown while the server is away; what no longer exists is not.
      if (!problem.offline && problem.status < 500) this.data.value = undefined;
    }
  }
}

function keep(key: string, data: unknown): void {
  kept.delete(key);
  kept.set(key, data);
  if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value as string);
}

/** Forget every answer: another user, or another workspace. */
export function forget(): void {
  kept.clear();
}

/** The answer of one route; null asks nothing. */
export function useAsk<K extends RouteName>(route: K | null, asked: Asked<K> = {}): Resource<Answer<K>> {
  const key = `${workspace.value} ${route ?? ""} ${JSON.stringify([asked.path, asked.query, asked.body])}`;
  return useLoad(key, route === null ? null : () => ask(route, asked));
}

/** The same for anything that has to be put together from several answers. */
export function useLoad<T>(key: string, make: (() => Promise<T>) | null): Resource<T> {
  const resource = useMemo(() => new Resource<T>(key, make ?? (() => new Promise(() => {}))), [key]);
  useEffect(() => {
    if (make) void resource.reload();
    return () => resource.end();
  }, [resource]);
  return resource;
}
