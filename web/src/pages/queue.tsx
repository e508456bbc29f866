/** What waits: how full each class of each pool is, and the jobs of this workspace in the order in which they came. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { JobSummary, QueueClass, QueuePool } from "../api";
import { count } from "../format";
import { useList } from "../lists";
import { JOB_ROWS } from "../patches";
import { coalesced, useLive } from "../live";
import { useAsk } from "../resource";
import { href } from "../router";
import { ListFoot } from "../parts/listfoot";
import { Meter } from "../parts/meter";
import { Empty, Loaded } from "../parts/states";
import { ACTIONS, Table, type Column } from "../parts/table";
import { Duration } from "../parts/time";
import { Head } from "../shell";

export function QueuePage(): JSX.Element {
  const queue = useAsk("GET /v1/queue");
  const refresh = useMemo(() => coalesced(() => void queue.reload(), 500), [queue]);
  useLive(["queue"], (event) => {
    if (event.event === "queue" || event.event === "again") refresh();
  });
  return (
    <>
      <Head title="Queue" note="Counts cover the jobs of all workspaces; the list below shows only this one." />
      <Loaded of={queue}>
        {(found) => (
          <>
            <p class="row">
              <Meter label="All pools" value={found.waiting} max={found.capacity} />
            </p>
            {found.pools.map((pool) => (
              <Pool key={pool.pool} pool={pool} />
            ))}
          </>
        )}
      </Loaded>
      <Waiting />
    </>
  );
}

function Pool({ pool }: { pool: QueuePool }): JSX.Element {
  const classes = [...pool.classes].filter((one) => one.waiting > 0).sort((a, b) => b.priority - a.priority);
  return (
    <section class="card">
      <h2>{pool.pool ? `Pool ${pool.pool}` : "Any worker"}</h2>
      {classes.length ? (
        <ul class="plain meters">
          {classes.map((one: QueueClass) => (
            <li key={one.priority}>
              <Meter label={`Priority ${one.priority}`} value={one.waiting} max={one.capacity} />
            </li>
          ))}
        </ul>
      ) : (
        <p class="faint">Nothing is waiting.</p>
      )}
    </section>
  );
}

/** The waiting jobs of this workspace; each job's page says what it waits for. */
function Waiting(): JSX.Element {
  const list = useList<"GET /v1/jobs", JobSummary>("GET /v1/jobs", { state: "queued" }, (job) => job.job_id, ["jobs"], { patch: JOB_ROWS });
  const waiting = list.rows.filter((job) => job.state === "queued"); // A worker may have taken one meanwhile.
  return (
    <Loaded of={list.resource}>
      {() =>
        waiting.length ? (
          <section>
            <h2>Waiting in this workspace</h2>
            <Table label="Waiting jobs" rows={waiting} rowKey={(job) => job.job_id} columns={COLUMNS} href={(job) => href("jobs", job.job_id, { tab: "why" })} />
            <ListFoot list={list} line="detent list --jobs --state queued" />
          </section>
        ) : (
          <Empty title="No job in this workspace is waiting">
            <p class="faint">A job that cannot start yet appears here, and its page says what it is waiting for.</p>
          </Empty>
        )
      }
    </Loaded>
  );
}

const COLUMNS: Column<JobSummary>[] = [
  {
    name: "job",
    head: "Job",
    kind: "main",
    cell: (job) => (
      <a class="mono" href={href("jobs", job.job_id)}>
        {job.job_id}
      </a>
    ),
  },
  { name: "run", head: "Run", kind: "grow", cell: (job) => (job.run_id ? <a class="mono ellipsis" href={href("runs", job.run_id)}>{job.run_id}</a> : <span class="faint">–</span>) },
  { name: "priority", head: "Priority", kind: "num", short: "priority", cell: (job) => count(job.priority) },
  { name: "waits", head: "Waiting", kind: "num", short: "waiting", cell: (job) => <Duration from={job.submitted_at} /> },
  { name: "why", head: ACTIONS, cell: (job) => <a href={href("jobs", job.job_id, { tab: "why" })} aria-label={`Why ${job.job_id} is waiting`}>Why</a> },
];

