/** All runs, newest first: what is in flight, what failed and why, and two of them to compare. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { RunListed } from "../api";
import { useList } from "../lists";
import { useAsk } from "../resource";
import { at, go, href, setQuery } from "../router";
import { count, principal, quoted } from "../format";
import { useKeys } from "../keys";
import { coalesced, useLive } from "../live";
import { RUN_ROWS, type RunRow } from "../patches";
import { Button, Choice, Filter } from "../parts/basics";
import { Fresh, ListFoot } from "../parts/listfoot";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { Duration, Time } from "../parts/time";
import { Head } from "../shell";
import { FirstFailure } from "../parts/failure";
import { Progress } from "../parts/progress";
import { useWhileRunning } from "./verify";

type Status = "running" | "succeeded" | "failed" | "cancelled";
const SINCE: [string, string][] = [
  ["", "any time"],
  ["1h", "1 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
];

export function Runs(): JSX.Element {
  const { query } = at.value;
  const status = query.get("status") as Status | null;
  const name = query.get("name");
  const prefix = query.get("q");
  const since = sinceOf(query.get("since"));
  const asked = prefix ? { q: prefix } : { ...(status && { status }), ...(name && { name }), ...(since && { since }) };
  const list = useList<"GET /v1/runs", RunListed>("GET /v1/runs", asked, (run) => run.run_id, ["runs", "jobs"], { patch: RUN_ROWS });
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const select = (id: string) => {
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    setSelected(next);
  };
  const [second, first] = [...selected].slice(-2).reverse();
  const compare = first && second ? () => go(href("diff", first, second)) : undefined;
  useKeys("Runs", {
    f: ["failed only, or all", () => setQuery({ status: status === "failed" ? undefined : "failed" })],
    d: ["compare the two selected runs", () => compare?.()],
  });
  return (
    <>
      <Head title="Runs" />
      <div class="filters">
        <StatusChoice />
        <Filter param="name" label="Name" placeholder="whole name" />
        <Filter param="q" label="Id" placeholder="begins with" />
        <Choice param="since" label="Started within" first="" options={SINCE} />
        {selected.size > 0 && (
          <Button onClick={compare} why={compare ? undefined : "Select two runs to compare them"}>
            Compare {selected.size} of 2
          </Button>
        )}
      </div>
      <Fresh list={list} noun="run" />
      <Loaded of={list.resource} lines={10}>
        {() =>
          list.rows.length ? (
            <>
              <Table
                label="Runs"
                rows={list.rows}
                rowKey={(run) => run.run_id}
                columns={COLUMNS}
                href={(run) => href("runs", run.run_id)}
                selected={selected}
                onSelect={select}
                below={(run) => run.status === "failed" && <FirstFailure run={run.run_id} brief />}
              />
              <ListFoot list={list} line={`detent list${status ? ` --state ${status}` : ""}`} />
            </>
          ) : (
            <NoRuns filtered={Object.keys(asked).length > 0} />
          )
        }
      </Loaded>
    </>
  );
}

/** How many runs there are of each status; exact, from the server's own counters. */
function StatusChoice(): JSX.Element {
  const counts = useAsk("GET /v1/counts");
  const refresh = coalesced(() => void counts.reload(), 1_000);
  useLive(["runs"], (event) => {
    if (event.event === "run" || event.event === "again") refresh();
  });
  const runs = counts.data.value?.runs ?? {};
  const all = Object.values(runs).reduce((sum, one) => sum + one, 0);
  const label = (text: string, number: number | undefined) => (
    <>
      {text} <span class="count">{counts.data.value ? count(number ?? 0) : ""}</span>
    </>
  );
  return (
    <Choice
      param="status"
      label="Status"
      first=""
      options={[
        ["", label("All", all)],
        ["running", label("In flight", runs.running)],
        ["failed", label("Failed", runs.failed)],
        ["succeeded", label("Succeeded", runs.succeeded)],
        ["cancelled", label("Cancelled", runs.cancelled)],
      ]}
    />
  );
}

export const COLUMNS: Column<RunRow>[] = [
  { name: "status", head: "Status", cell: (run) => <StatusBadge state={run.status} /> },
  {
    name: "run",
    head: "Run",
    kind: "main",
    cell: (run) => (
      <a class="mono" href={href("runs", run.run_id)}>
        {run.run_id}
      </a>
    ),
  },
  { name: "name", head: "Name", kind: "grow", cell: (run) => <span class="ellipsis" title={run.name}>{run.name}</span> },
  { name: "jobs", head: "Jobs", cell: (run) => <Progress run={run} /> },
  { name: "took", head: "Took", kind: "num", short: "took", cell: (run) => <Duration from={run.started_at} to={run.ended_at} /> },
  { name: "started", head: "Started", kind: "num", cell: (run) => <Time of={run.started_at} /> },
  { name: "by", head: "By", short: "by", cell: (run) => <StartedBy run={run} /> },
  { name: "verified", head: "Verified", short: "verified:", cell: (run) => <VerifiedLink run={run} /> },
];

/** Who or what started a run: a dash where that was a command in the home itself. */
function StartedBy({ run }: { run: RunRow }): JSX.Element | null {
  if (run.requested_by === undefined) return null; // It has just started, and its row is being asked for.
  if (run.schedule_id) return <a href={href("schedules", { schedule: run.schedule_id })}>schedule</a>;
  return <>{run.requested_by ? principal(run.requested_by) : <span class="faint">–</span>}</>;
}

/** Whether this server has verified a run, with the way to what it proved; a run is verified when it has ended. */
function VerifiedLink({ run }: { run: RunRow }): JSX.Element | null {
  const verifying = run.verified?.state === "running";
  const asked = useAsk(verifying ? "GET /v1/runs/{run_id}/verify" : null, { path: { run_id: run.run_id } });
  useWhileRunning(asked);
  if (run.status === "running") return null;
  const found = (verifying && asked.data.value) || run.verified;
  return <a href={href("runs", run.run_id, { verify: "open" })}>{found ? <Verdict of={found} /> : "not yet"}</a>;
}

function Verdict({ of }: { of: { state: string; ok?: boolean | null } }): JSX.Element {
  if (of.state === "running") return <StatusBadge state="running" text="verifying" />;
  if (of.ok) return <StatusBadge state="succeeded" text="ok" />;
  return <StatusBadge state="failed" text={of.state === "failed" ? "not checked" : "failed"} />;
}

function NoRuns({ filtered }: { filtered: boolean }): JSX.Element {
  if (filtered) {
    return (
      <Empty title="No run matches">
        <p>
          <Button onClick={() => go(href("runs"))}>Show all runs</Button>
        </p>
      </Empty>
    );
  }
  return <FirstRun />;
}

/** For a home in which nothing has run yet: what to type. */
export function FirstRun(): JSX.Element {
  const url = quoted(location.origin);
  return (
    <Empty title="Nothing has run here yet">
      <p>Describe some steps in a file and run it:</p>
      <pre class="sample" tabIndex={0}>{`name: hello
steps:
  - id: greet
    run: {shell: "echo hello"}`}</pre>
      <pre class="sample" tabIndex={0}>{`detent run hello.yaml
detent run hello.yaml --connect ${url}`}</pre>
      <p class="faint">The first command runs it in this home; the second sends it to this server. The run appears here automatically.</p>
    </Empty>
  );
}

/** A length of time back from now, as the moment that the API takes. */
export function sinceOf(text: string | null): string | undefined {
  const found = /^(\d+)([hd])$/.exec(text ?? "");
  if (!found) return undefined;
  const hours = Number(found[1]) * (found[2] === "d" ? 24 : 1);
  // To the minute, so that the same question has the same answer for a while.
  return new Date(Math.floor((Date.now() - hours * 3_600_000) / 60_000) * 60_000).toISOString();
}
