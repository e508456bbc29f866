/** The steps of a run as a table, and one step beside the graph. */
import type { JSX } from "preact";
import { useDeferred } from "../deferred";
import type { RunExplanation, Step } from "../api";
import { type Resource, useAsk } from "../resource";
import { at, href, setQuery } from "../router";
import { count, durationText } from "../format";
import type { Steps } from "../steps";
import { Button, Choice, CopyLine, Filter } from "../parts/basics";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge, word } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { Duration, Time } from "../parts/time";

/** The job that a step stands for: the one that failed, runs, or came first. */
export function jobOf(step: Step): string | undefined {
  const found = step.jobs.find((job) => job.state === "failed") ?? step.jobs.find((job) => job.state === "running") ?? step.jobs[0];
  return found?.job_id;
}

export function StepsTable({ steps }: { steps: Resource<Steps> }): JSX.Element {
  const show = at.value.query.get("show") ?? "";
  const find = useDeferred(at.value.query.get("find")?.toLowerCase() ?? "");
  return (
    <Loaded of={steps} lines={8}>
      {(found) => {
        const states = [...new Set(found.list.map((one) => one.state))];
        const rows = found.list.filter((one) => (!show || one.state === show) && (!find || one.step.toLowerCase().includes(find) || one.name.toLowerCase().includes(find)));
        return (
          <>
            <div class="filters">
              <Choice param="show" label="State" first="" options={[["", "All"], ...[...new Set([...states, ...(show ? [show] : [])])].map((one): [string, string] => [one, word(one)])]} />
              <Filter param="find" label="Find" placeholder="step" />
              <span class="faint">{count(rows.length)} shown</span>
            </div>
            {rows.length ? (
              <Table label="Steps" rows={rows} rowKey={(step) => step.step} columns={COLUMNS} onOpen={(step) => setQuery({ step: step.step })} current={at.value.query.get("step") ?? undefined} />
            ) : (
              <Empty title="No step matches">
                <Button onClick={() => setQuery({ show: undefined, find: undefined })}>Show all steps</Button>
              </Empty>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

const COLUMNS: Column<Step>[] = [
  { name: "state", head: "State", cell: (step) => <StatusBadge state={step.state} /> },
  {
    name: "step",
    head: "Step",
    kind: "main",
    cell: (step) => {
      const job = jobOf(step);
      return job ? <a href={href("jobs", job)}>{step.name}</a> : step.name;
    },
  },
  { name: "elements", head: "Elements", kind: "num", cell: (step) => (step.mapped && step.total !== null ? `${count(step.done)}/${count(step.total)}` : "") },
  {
    name: "said",
    head: "Message or needs",
    kind: "grow",
    cell: (step) =>
      step.message ? (
        <span class={`ellipsis ${step.state === "failed" ? "tone-bad" : ""}`} title={step.message}>
          {step.message}
        </span>
      ) : (
        <span class="ellipsis faint">{step.needs.join(", ")}</span>
      ),
  },
  { name: "retries", head: "Retries", kind: "num", short: "retries", cell: (step) => (step.retries ? step.retries : "") },
  { name: "ran", head: "Took", kind: "num", short: "took", cell: (step) => (step.ran_ms === null ? "" : <Duration ms={step.ran_ms} />) },
  { name: "started", head: "Started", kind: "num", cell: (step) => (step.started_ms === null ? "" : <Time of={step.started_ms} mode="clock" />) },
];

/** One step: where it stands, why, and its jobs. */
export function StepPanel({ run, step, close }: { run: string; step: Step; close: () => void }): JSX.Element {
  const why = useAsk("GET /v1/runs/{run_id}/explain", { path: { run_id: run }, query: { step: step.step } });
  const job = jobOf(step);
  return (
    <aside class="panel" aria-label={`Step ${step.name}`}>
      <header>
        <h2>{step.name}</h2>
        <Button kind="quiet" label="Close" onClick={close}>
          <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
            <path d="M4 4l8 8M12 4l-8 8" />
          </svg>
        </Button>
      </header>
      <p>
        <StatusBadge state={step.state} />{" "}
        {step.mapped && step.total !== null && (
          <span class="soft">
            map {count(step.total)}: {[[step.done, "done"] as const, [step.reused, "reused"] as const, [step.failed, "failed"] as const, [step.running, "running"] as const]
              .filter(([number]) => number)
              .map(([number, text]) => `${count(number)} ${text}`)
              .join(", ")}
          </span>
        )}
      </p>
      {step.message && <p class={step.state === "failed" ? "tone-bad" : ""}>{step.message}</p>}
      <dl class="facts">
        {step.ran_ms !== null && <Fact name="took" value={durationText(step.ran_ms)} />}
        {step.retries > 0 && <Fact name="retries" value={count(step.retries)} />}
        {step.needs.length > 0 && <Fact name="needs" value={step.needs.join(", ")} />}
        {step.waits_for.length > 0 && <Fact name="waits for" value={step.waits_for.join(", ")} />}
      </dl>
      <Loaded of={why} lines={2}>
        {(found) => <Lines lines={linesOf(found, step.step)} />}
      </Loaded>
      {step.jobs.length > 0 && (
        <ul class="plain jobs">
          {step.jobs.map((one) => (
            <li key={`${one.job_id} ${one.index}`}>
              <StatusBadge state={one.reused ? "reused" : one.state} />{" "}
              <a href={href("jobs", one.job_id)}>
                {step.name}
                {one.index !== null && `[${one.index}]`}
              </a>
            </li>
          ))}
        </ul>
      )}
      {step.mapped && step.total !== null && step.total > step.jobs.length && (
        <p>
          <a href={href("jobs", { run })}>All jobs of the run</a>
        </p>
      )}
      <CopyLine text={`detent explain ${run} ${step.step}`} />
      {job && (
        <p class="row">
          <a href={href("jobs", job)}>Log</a>
          <a href={href("jobs", job, { tab: "why" })}>Why</a>
        </p>
      )}
    </aside>
  );
}

function Fact({ name, value }: { name: string; value: string }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

export function Lines({ lines }: { lines: string[] }): JSX.Element {
  return (
    <ul class="lines">
      {lines.map((one, place) => (
        <li key={place}>{one}</li>
      ))}
    </ul>
  );
}

/** The sentences about one step. */
export function linesOf(found: RunExplanation, step: string): string[] {
  for (const one of found.steps) {
    if (one && typeof one === "object" && "step" in one && one.step === step && "lines" in one && Array.isArray(one.lines)) return one.lines.map(String);
  }
  return found.lines;
}
