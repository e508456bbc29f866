/** All jobs, newest first. */
import type { JSX } from "preact";
import type { JobSummary } from "../api";
import { useList } from "../lists";
import { at, go, href, setQuery } from "../router";
import { count, quoted } from "../format";
import { useKeys } from "../keys";
import { coalesced, useLive } from "../live";
import { JOB_ROWS } from "../patches";
import { useAsk } from "../resource";
import { Button, Choice, Filter } from "../parts/basics";
import { Fresh, ListFoot } from "../parts/listfoot";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge, word } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { Time } from "../parts/time";
import { Head } from "../shell";
import { FirstRun } from "./runs";

type State = "queued" | "running" | "retrying" | "succeeded" | "failed" | "cancelled";
type By = (typeof BY)[number];
const BY = ["q", "label", "pool", "run"] as const;
/** Those that `detent list` has, too. */
const OPTIONS = ["label", "pool", "run"] as const;
const STATES: State[] = ["queued", "running", "retrying", "failed", "succeeded", "cancelled"];

export function Jobs(): JSX.Element {
  const { query } = at.value;
  const state = query.get("state") as State | null;
  // Each of these has an index of its own: the server answers one of them at a time.
  const by = Object.fromEntries(BY.flatMap((name) => (query.get(name) ? [[name, query.get(name)]] : []))) as Partial<Record<By, string>>;
  const asked = { ...(state && { state }), ...by };
  const list = useList<"GET /v1/jobs", JobSummary>("GET /v1/jobs", asked, (job) => job.job_id, ["jobs"], { patch: JOB_ROWS });
  useKeys("Jobs", { f: ["failed only, or all", () => setQuery({ state: state === "failed" ? undefined : "failed" })] });
  return (
    <>
      <Head title="Jobs" />
      <div class="filters">
        <StateChoice />
        <Filter param="q" label="Id" placeholder="begins with" instead={BY} />
        <Filter param="label" label="Label" placeholder="workflow/step" instead={BY} />
        <Filter param="pool" label="Pool" placeholder="whole name" instead={BY} />
        <Filter param="run" label="Run" placeholder="whole id" instead={BY} />
      </div>
      <Fresh list={list} noun="job" />
      <Loaded of={list.resource} lines={10}>
        {() =>
          list.rows.length ? (
            <>
              <Table label="Jobs" rows={list.rows} rowKey={(job) => job.job_id} columns={COLUMNS} href={(job) => href("jobs", job.job_id)} />
              <ListFoot list={list} line={`detent list --jobs${state ? ` --state ${state}` : ""}${OPTIONS.map((name) => (by[name] ? ` --${name} ${quoted(by[name])}` : "")).join("")}`} />
            </>
          ) : Object.keys(asked).length ? (
            <Empty title="No job matches">
              <p>
                <Button onClick={() => go(href("jobs"))}>Show all jobs</Button>
              </p>
            </Empty>
          ) : (
            <FirstRun />
          )
        }
      </Loaded>
    </>
  );
}

function StateChoice(): JSX.Element {
  const counts = useAsk("GET /v1/counts");
  const refresh = coalesced(() => void counts.reload(), 1_000);
  useLive(["jobs"], (event) => {
    if (event.event === "job" || event.event === "again") refresh();
  });
  const jobs = counts.data.value?.jobs ?? {};
  const all = Object.values(jobs).reduce((sum, one) => sum + one, 0);
  const label = (text: string, number: number) => (
    <>
      {text} <span class="count">{counts.data.value ? count(number) : ""}</span>
    </>
  );
  return (
    <Choice
      param="state"
      label="State"
      first=""
      options={[["", label("All", all)], ...STATES.filter((one) => jobs[one] || one === at.value.query.get("state")).map((one): [string, JSX.Element] => [one, label(word(one), jobs[one] ?? 0)])]}
    />
  );
}

const COLUMNS: Column<JobSummary>[] = [
  { name: "status", head: "Status", cell: (job) => <StatusBadge state={job.detail ?? job.status} /> },
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
  { name: "reason", head: "Reason", cell: (job) => (job.reason_code ? <code>{job.reason_code}</code> : <span class="faint">–</span>) },
  { name: "attempt", head: "Attempt", kind: "num", short: "attempt", cell: (job) => job.attempt ?? "–" },
  { name: "submitted", head: "Submitted", kind: "num", cell: (job) => <Time of={job.submitted_at} /> },
  { name: "changed", head: "Changed", kind: "num", short: "changed", cell: (job) => <Time of={job.changed_at} /> },
];
