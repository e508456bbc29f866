/** How far a run is: a bar while it goes on, numbers when it has ended. */
import type { JSX } from "preact";
import type { RunState } from "../patches";
import { count, shortDuration } from "../format";
import { now } from "./time";

export function Progress({ run }: { run: RunState }): JSX.Element {
  const done = run.jobs - run.live_jobs;
  const reused = run.jobs_reused ? <span class="faint"> {count(run.jobs_reused)} reused</span> : null;
  if (run.status !== "running") {
    return (
      <span class="num">
        {count(run.jobs)}
        {reused}
      </span>
    );
  }
  return (
    <span class="progress">
      <progress max={Math.max(1, run.jobs)} value={done} aria-label={`${done} of ${run.jobs} jobs ended`} />
      <span class="num">
        {count(done)}/{count(run.jobs)}
      </span>
      <Left done={done} total={run.jobs} started={run.started_at} />
    </span>
  );
}

const TELLING = 0.05;

/** How long the rest takes if it goes on as until now; nothing before a part of it is done. */
function Left({ done, total, started }: { done: number; total: number; started: string }): JSX.Element | null {
  if (total < 3 || done >= total || done / total < TELLING) return null;
  const ran = now.value - Date.parse(started);
  return <span class="faint num">eta {shortDuration((ran * (total - done)) / done)}</span>;
}
