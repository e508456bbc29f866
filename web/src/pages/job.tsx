/** One job: what it printed, why it is where it is, what went in and came out, every attempt, and its records. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Attempt, JobDetail } from "../api";
import { ask, onceKey } from "../client";
import { useAsk } from "../resource";
import { at, go, href, setQuery } from "../router";
import { durationText, quoted, size } from "../format";
import { useKeys } from "../keys";
import { coalesced, useLive } from "../live";
import { Action } from "../actions";
import { CopyLine, Tabs, TabPanel, useBack } from "../parts/basics";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { Duration, Time } from "../parts/time";
import { Head } from "../shell";
import { Artifacts, Input, JobWhy, Records, Result } from "./job_parts";
import { JobLog } from "./job_log";

const OPEN = ["queued", "running", "retrying"];

export function JobPage({ id }: { id: string }): JSX.Element {
  const job = useAsk("GET /v1/jobs/{job_id}", { path: { job_id: id } });
  const attempts = useAsk("GET /v1/jobs/{job_id}/attempts", { path: { job_id: id } });
  const refresh = useMemo(
    () =>
      coalesced(() => {
        void job.reload();
        void attempts.reload();
      }),
    [job, attempts],
  );
  const over = job.data.value !== undefined && !OPEN.includes(job.data.value.state);
  useLive(over ? [] : [`job:${id}`], (event) => {
    if (event.event === "again" || event.data.job_id === id) refresh();
  });
  const run = job.data.value?.run_id;
  useBack(run ? href("runs", run) : href("jobs"), go);
  return (
    <Loaded of={job} title={id}>
      {(detail) => <Job detail={detail} attempts={attempts.data.value?.items} reload={refresh} />}
    </Loaded>
  );
}

function Job({ detail, attempts, reload }: { detail: JobDetail; attempts: Attempt[] | undefined; reload: () => void }): JSX.Element {
  const id = detail.job_id;
  const tab = at.value.query.get("tab") ?? "log";
  const [cancelling, setCancelling] = useState(false);
  const name = detail.step === null ? (detail.label ?? id) : detail.index === null ? detail.step : `${detail.step}[${detail.index}]`;
  useKeys("Job", {
    l: ["log", () => setQuery({ tab: undefined }, { replace: false })],
    y: ["why", () => setQuery({ tab: "why" }, { replace: false })],
    c: ["cancel (asks first)", () => setCancelling(OPEN.includes(detail.state))],
  });
  return (
    <>
      <Head
        title={name}
        above={
          detail.run_id ? (
            <>
              <a href={href("runs")}>Runs</a> / <a href={href("runs", detail.run_id)}>{detail.run_id}</a>
            </>
          ) : (
            <a href={href("jobs")}>Jobs</a>
          )
        }
        badge={<StatusBadge state={detail.detail ?? detail.status} />}
        note={<Note detail={detail} />}
      >
        <JobActions detail={detail} reload={reload} cancelling={cancelling} closed={() => setCancelling(false)} />
      </Head>
      {detail.error && <Failure detail={detail} />}
      <Tabs
        param="tab"
        label="Views of the job"
        tabs={[
          { name: "log", label: "Log" },
          { name: "why", label: "Why" },
          { name: "input", label: "Input" },
          { name: "result", label: "Result" },
          { name: "artifacts", label: "Artifacts" },
          { name: "attempts", label: "Attempts", count: attempts?.length },
          { name: "records", label: "Records", count: detail.transition_seq + 1 },
        ]}
      />
      <TabPanel param="tab" name={tab}>
        {tab === "why" ? (
          <JobWhy id={id} version={detail.transition_seq} />
        ) : tab === "input" ? (
          <Input id={id} />
        ) : tab === "result" ? (
          <Result detail={detail} />
        ) : tab === "artifacts" ? (
          <Artifacts id={id} version={detail.transition_seq} />
        ) : tab === "attempts" ? (
          <Attempts attempts={attempts} />
        ) : tab === "records" ? (
          <Records id={id} version={detail.transition_seq} />
        ) : (
          attempts && <JobLog job={detail} attempts={attempts} />
        )}
      </TabPanel>
    </>
  );
}

function Note({ detail }: { detail: JobDetail }): JSX.Element {
  return (
    <>
      <code>{detail.job_id}</code> {detail.attempts > 0 && `attempt ${detail.attempt ?? detail.attempts} of up to ${detail.max_retries + 1}, `}
      waited {durationText(detail.waited_ms)}, ran{" "}
      {detail.state === "running" && detail.started_at ? <Duration from={detail.started_at} /> : durationText(detail.ran_ms)}
      {detail.worker && (
        <span class="faint">
          {" "}
          on <span class="mono">{detail.worker}</span>
        </span>
      )}
      {detail.retry_of && (
        <>
          {" "}
          retry of <a href={href("jobs", detail.retry_of)}>{detail.retry_of}</a>
        </>
      )}
    </>
  );
}

function Failure({ detail }: { detail: JobDetail }): JSX.Element {
  const { error } = detail;
  return (
    <section class="card error" aria-label="Error">
      <h2 class="tone-bad">
        {error?.type ? `${error.type}: ` : ""}
        {error?.message}
      </h2>
      <p class="faint">
        {error?.category} · {error?.code}
      </p>
      {error?.traceback && (
        <details>
          <summary>Traceback</summary>
          <pre tabIndex={0} aria-label="Traceback">
            {error.traceback}
          </pre>
        </details>
      )}
    </section>
  );
}

function JobActions({ detail, reload, cancelling, closed }: { detail: JobDetail; reload: () => void; cancelling: boolean; closed: () => void }): JSX.Element {
  const id = detail.job_id;
  if (OPEN.includes(detail.state)) {
    return (
      <Action
        label="Cancel"
        kind="danger"
        scope="jobs:cancel"
        line={`detent cancel ${quoted(id)}`}
        ask="If the job is running, it is stopped. Its history is kept."
        open={cancelling}
        onClose={closed}
        run={async () => {
          await ask("POST /v1/jobs/{job_id}/cancel", { path: { job_id: id }, body: { transition_seq: detail.transition_seq } });
          reload();
          return "Job cancelled";
        }}
      />
    );
  }
  if (detail.state === "succeeded") return <></>;
  return (
    <Action
      label="Retry"
      kind="main"
      scope="jobs:write"
      line={`detent retry ${quoted(id)}`}
      run={async () => {
        const taken = await ask("POST /v1/jobs/{job_id}/retry", { path: { job_id: id }, body: {}, idempotencyKey: onceKey() });
        go(href("jobs", taken.job_id));
        return "Submitted again";
      }}
    />
  );
}

const COLUMNS: Column<Attempt>[] = [
  { name: "attempt", head: "Attempt", kind: "main", cell: (one) => `Attempt ${one.attempt}` },
  { name: "status", head: "Status", cell: (one) => <StatusBadge state={one.running ? "running" : (one.status ?? "waiting")} /> },
  { name: "reason", head: "Reason", cell: (one) => (one.reason_code ? <code>{one.reason_code}</code> : "") },
  { name: "started", head: "Started", kind: "num", cell: (one) => <Time of={one.started_at} mode="clock" /> },
  { name: "waited", head: "Waited", kind: "num", short: "waited", cell: (one) => <Duration ms={one.waited_ms} /> },
  { name: "ran", head: "Ran", kind: "num", short: "ran", cell: (one) => <Duration ms={one.ran_ms} /> },
  { name: "printed", head: "Printed", kind: "num", short: "printed", cell: (one) => size(one.stdout_bytes + one.stderr_bytes) },
  { name: "worker", head: "Worker", kind: "grow", cell: (one) => <span class="ellipsis faint mono">{one.worker}</span> },
];

function Attempts({ attempts }: { attempts: Attempt[] | undefined }): JSX.Element {
  if (!attempts) return <></>;
  if (!attempts.length) {
    return (
      <Empty title="No worker has started it yet">
        <CopyLine text="detent explain" />
      </Empty>
    );
  }
  return <Table label="Attempts" rows={attempts} rowKey={(one) => String(one.attempt)} columns={COLUMNS} onOpen={(one) => setQuery({ tab: undefined, attempt: String(one.attempt) }, { replace: false })} />;
}
