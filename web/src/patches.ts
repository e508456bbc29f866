/**
 * Rows that an event changes without a question to the server. An event has the fields of the row that it is about, so a list
 * shows it in the next frame, also in a row that newer ones have pushed off the first page. What an event does not have, such
 * as how many jobs of a run have ended, is asked for.
 *
 * An answer may be older than an event that came while it was on its way: the newer of the two is kept.
 */
import type { JobSummary, RunListed, Step } from "./api";
import type { LiveEvent } from "./live";

/** How the rows of a list follow events of one kind. */
export interface Patch<Row> {
  event: string;
  key: string;
  apply: (row: Row, data: LiveEvent["data"]) => Row;
  /** Of what is shown and what was answered, what is to be shown. */
  newer: (shown: Row, answered: Row) => Row;
  /** Whether another event means that a row has to be asked for again. */
  asks?: (event: LiveEvent, shown: ReadonlyMap<string, Row>) => boolean;
}

export const JOB_ROWS: Patch<JobSummary> = {
  event: "job",
  key: "job_id",
  apply: (job, data) => {
    const seq = Number(data.transition_seq);
    if (!(seq > job.transition_seq)) return job;
    const state = String(data.state);
    return {
      ...job,
      status: String(data.status),
      detail: data.detail as string | null,
      state,
      reason_code: data.reason_code as string | null,
      // A job that was cancelled before a worker had it has no attempt.
      attempt: state === "cancelled" ? job.attempt : (data.attempt as number | null),
      transition_seq: seq,
      changed_at: String(data.at),
    };
  },
  newer: (shown, answered) => (shown.transition_seq > answered.transition_seq ? shown : answered),
};

export const RUN_ROWS: Patch<RunListed> = {
  event: "run",
  key: "run_id",
  apply: runPatched,
  newer: (shown, answered) => (shown.status !== "running" && answered.status === "running" ? shown : answered),
  // Its number of jobs is in no event before its end.
  asks: (event, shown) => event.event === "job" && shown.get(String(event.data.run_id))?.status === "running",
};

/** What lists and pages of one run have in common. */
export type RunState = Omit<RunListed, "requested_by" | "schedule_id" | "verified">;
/** A run in a list; who or what started it is not known before the list has been asked for again. */
export type RunRow = RunState & Pick<RunListed, "verified"> & Partial<Pick<RunListed, "requested_by" | "schedule_id">>;

/** A run behind an event about it; a run that has ended stays as it is. */
export function runPatched<Run extends RunState>(run: Run, data: LiveEvent["data"]): Run {
  if (run.status !== "running" || data.status === "running") return run;
  return { ...run, status: String(data.status), reason_code: data.reason_code as string | null, ended_at: String(data.at), jobs: Number(data.jobs), live_jobs: 0 };
}

/** The row of a run that has just started; nothing for any other event. */
export function runStarted(data: LiveEvent["data"]): RunRow | undefined {
  if (data.status !== "running" || typeof data.name !== "string") return undefined;
  return { run_id: String(data.run_id), name: data.name, status: "running", reason_code: null, jobs: 0, live_jobs: 0, jobs_reused: 0, started_at: String(data.at), ended_at: null, verified: null };
}

const OVER = ["succeeded", "failed", "cancelled"];

/** A step of one job behind an event about that job; the numbers of a mapped step are asked for. */
export function stepPatched(step: Step, data: LiveEvent["data"]): Step {
  const [job] = step.jobs;
  const state = String(data.state);
  const over = OVER.includes(state);
  if (step.mapped || step.jobs.length !== 1 || !job || job.job_id !== data.job_id || OVER.includes(job.state) || !(over || state === "running")) return step;
  const at = Date.parse(String(data.at));
  const started_ms = step.started_ms ?? (over ? null : at);
  return {
    ...step,
    state,
    jobs: [{ ...job, state }],
    running: over ? 0 : 1,
    done: state === "succeeded" ? 1 : step.done,
    failed: state === "failed" ? 1 : 0,
    started_ms,
    ended_ms: over ? at : null,
    ran_ms: over && started_ms !== null ? at - started_ms : step.ran_ms,
  };
}
