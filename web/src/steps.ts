/** The steps of a run, kept whole: read once, then only what has changed behind the last position. */
import { useMemo } from "preact/hooks";
import type { Step, StepsPage } from "./api";
import { ask } from "./client";
import { coalesced, type LiveEvent, perFrame, useLive } from "./live";
import { stepPatched } from "./patches";
import { type Resource, useLoad } from "./resource";
import { workspace } from "./session";

export interface Steps {
  list: Step[];
  byKey: Map<string, Step>;
  /** The key of the step that a job belongs to, for the jobs that steps name. */
  byJob: Map<string, string>;
  position: string;
}
const STEPS_MAX = 50_000;
const REFRESH_MS = 500;

/** `running` is false for a run of which nothing is known yet. */
export function useSteps(id: string, running: boolean): Resource<Steps> {
  const steps: Resource<Steps> = useLoad(`${workspace.value} steps ${id}`, () => read(id, undefined, (found) => steps.data.peek() || steps.put(found)));
  const refresh = useMemo(
    () =>
      coalesced(() => {
        const before = steps.data.peek();
        if (!before) return void steps.reload();
        read(id, before.position)
          .then((news) => steps.put(merged(steps.data.peek() ?? before, news)))
          .catch(() => undefined); // The bar says that the server is away.
      }, REFRESH_MS),
    [steps],
  );
  // Also once after its end: the last steps may have changed since they were read.
  const live = running || (steps.data.value?.list.some((one) => one.state === "running" || one.state === "ready") ?? false);
  const apply = useMemo(
    () =>
      perFrame<LiveEvent["data"]>((batch) => {
        const before = steps.data.peek();
        if (!before) return;
        const changed = new Map<string, Step>();
        for (const data of batch) {
          const key = before.byJob.get(String(data.job_id));
          const step = key === undefined ? undefined : (changed.get(key) ?? before.byKey.get(key));
          if (step) changed.set(step.step, stepPatched(step, data));
        }
        if (changed.size) steps.put(merged(before, { ...before, list: [...changed.values()], byKey: changed }));
      }),
    [steps],
  );
  useLive(live ? [`run:${id}`] : [], (event) => {
    if (event.event === "job" && event.data.run_id === id) apply(event.data);
    if (event.event === "again" || event.data.run_id === id) refresh();
  });
  return steps;
}

/** `first` is told what the first page has: a graph of 10,000 steps shows its colours as they come. */
async function read(run: string, since?: string, first?: (found: Steps) => void): Promise<Steps> {
  const list: Step[] = [];
  let position = "";
  let cursor: string | null = null;
  do {
    const query = { ...(since && { changed_since: since }), ...(cursor && { cursor }) };
    const page: StepsPage = await ask("GET /v1/runs/{run_id}/steps", { path: { run_id: run }, query });
    list.push(...page.items);
    if (page.next && !position) first?.(stepsOf([...list], page.position));
    position ||= page.position; // Where the first page stood: what changes meanwhile is read again.
    cursor = page.next;
  } while (cursor && list.length < STEPS_MAX);
  return stepsOf(list, position);
}

function stepsOf(list: Step[], position: string): Steps {
  const byJob = new Map(list.flatMap((one) => one.jobs.map((job): [string, string] => [job.job_id, one.step])));
  return { list, byKey: new Map(list.map((one) => [one.step, one])), byJob, position };
}

function merged(before: Steps, news: Steps): Steps {
  if (!news.list.length) return { ...before, position: news.position };
  return stepsOf(before.list.map((one) => news.byKey.get(one.step) ?? one), news.position);
}
