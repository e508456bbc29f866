/** Why a run failed first: the step, the error, where in the user's code, and the last lines that it printed. */
import type { JSX } from "preact";
import type { RunFailure } from "../api";
import { fetched } from "../client";
import { useAsk, useLoad } from "../resource";
import { href } from "../router";
import { workspace } from "../session";
import { counted } from "../format";
import { Ansi } from "./ansi";
import { Icon } from "./status";

const LAST_LINES = 6;
const TAIL_BYTES = 16 * 1024;

export function stepName(failure: { step: string; index: number | null }): string {
  return failure.index === null ? failure.step : `${failure.step}[${failure.index}]`;
}

export function FirstFailure({ run, brief = false }: { run: string; brief?: boolean }): JSX.Element | null {
  const outcome = useAsk("GET /v1/runs/{run_id}/outcome", { path: { run_id: run } });
  const failures = outcome.data.value?.failures ?? [];
  const first = failures[0];
  if (!first) return null;
  return brief ? <Brief failure={first} more={failures.length - 1} /> : <Whole failure={first} more={failures.length - 1} />;
}

function Brief({ failure, more }: { failure: RunFailure; more: number }): JSX.Element {
  return (
    <div class="failure-brief">
      <span class="ellipsis">
        <b>{stepName(failure)}</b> {failure.message || failure.code}
        {more > 0 && <span class="faint"> and {counted(more, "more failure")}</span>}
      </span>
      {failure.job_id && (
        <span class="links">
          <a href={href("jobs", failure.job_id, { tab: "why" })}>Why</a>
          <a href={href("jobs", failure.job_id)}>Log</a>
        </span>
      )}
    </div>
  );
}

function Whole({ failure, more }: { failure: RunFailure; more: number }): JSX.Element {
  return (
    <section class="failure" aria-label="First failure">
      <h2>
        <Icon name="cross" /> First failure: {failure.job_id ? <a href={href("jobs", failure.job_id)}>{stepName(failure)}</a> : stepName(failure)}
      </h2>
      <p>
        <b>{failure.code}</b> {failure.message}
        {failure.where && (
          <>
            {" "}
            <code>{failure.where}</code>
          </>
        )}
        <span class="faint">
          {" "}
          {counted(failure.attempts, "attempt")}
          {more > 0 && `, ${counted(more, "more failure")}`}
        </span>
      </p>
      {failure.job_id && <LastLines job={failure.job_id} />}
    </section>
  );
}

/** The end of what a job printed: standard error where it has some, else standard output. */
function LastLines({ job }: { job: string }): JSX.Element | null {
  const lines = useLoad(`${workspace.value} tail ${job}`, async () => {
    for (const stream of ["stderr", "stdout"] as const) {
      const found = await tailOf(job, stream);
      if (found.length) return found;
    }
    return [];
  });
  const found = lines.data.value ?? [];
  if (!found.length) return null;
  return (
    <div class="lastlines">
      <pre tabIndex={0} aria-label="Last lines of output">
        {found.map((one, place) => (
          <Ansi key={place} text={`${one}\n`} />
        ))}
      </pre>
      <p>
        <a href={href("jobs", job)}>Open the log</a> · <a href={href("jobs", job, { tab: "why" })}>Why</a>
      </p>
    </div>
  );
}

async function tailOf(job: string, stream: "stdout" | "stderr"): Promise<string[]> {
  const head = await fetched("GET /v1/jobs/{job_id}/attempts", { path: { job_id: job } });
  const { items } = (await head.json()) as { items: { stdout_bytes: number; stderr_bytes: number }[] };
  const last = items.at(-1);
  const size = last?.[`${stream}_bytes`] ?? 0;
  if (!size) return [];
  const offset = Math.max(0, size - TAIL_BYTES);
  const answer = await fetched("GET /v1/jobs/{job_id}/logs", { path: { job_id: job }, query: { stream, offset }, headers: { Accept: "text/plain" } });
  const text = (await answer.text()).replace(/\n$/, "");
  return text.split("\n").slice(-LAST_LINES);
}
