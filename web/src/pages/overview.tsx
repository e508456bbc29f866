/** What goes on now, what needs attention, and the newest runs. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type Resource, useAsk } from "../resource";
import { href } from "../router";
import { count, counted } from "../format";
import { coalesced, type LiveEvent, perFrame, useLive } from "../live";
import { runPatched, type RunRow, runStarted } from "../patches";
import { may, workspace } from "../session";
import { Loaded } from "../parts/states";
import { Table } from "../parts/table";
import { Head } from "../shell";
import { FirstFailure } from "../parts/failure";
import { COLUMNS, FirstRun } from "./runs";

const NEWEST = 8;
const DAY_MS = 86_400_000;

export function Overview(): JSX.Element {
  const counts = useAsk("GET /v1/counts");
  const runs: Resource<{ items: RunRow[]; next: string | null }> = useAsk("GET /v1/runs", { query: { limit: NEWEST } });
  const since = useMemo(() => new Date(Math.floor((Date.now() - DAY_MS) / 3_600_000) * 3_600_000).toISOString(), []);
  const failed = useAsk("GET /v1/runs", { query: { status: "failed", since, limit: 5 } });
  const queue = useAsk(may("queue:read") ? "GET /v1/queue" : null);
  const workers = useAsk(may("workers:read") ? "GET /v1/workers" : null);
  const refresh = useMemo(
    () => coalesced(() => [counts, runs, failed, queue].forEach((one) => void one.reload()), 1_000),
    [counts, runs, failed, queue],
  );
  const apply = useMemo(
    () =>
      perFrame<LiveEvent["data"]>((batch) => {
        let page = runs.data.peek();
        for (const data of batch) {
          if (!page) return;
          const started = runStarted(data);
          const known = page.items.some((run) => run.run_id === data.run_id);
          if (started && !known) page = { ...page, items: [started, ...page.items].slice(0, NEWEST) };
          else if (known) page = { ...page, items: page.items.map((run) => (run.run_id === data.run_id ? runPatched(run, data) : run)) };
        }
        if (page) runs.put(page);
      }),
    [runs],
  );
  useLive(["runs", "jobs", "queue", "workers"], (event) => {
    if (event.event === "run") apply(event.data);
    if (event.event === "worker") void workers.reload();
    else if (["run", "job", "queue", "again"].includes(event.event)) refresh();
  });
  const jobs = counts.data.value?.jobs ?? {};
  const waiting = (jobs.queued ?? 0) + (jobs.retrying ?? 0);
  const elsewhere = workers.data.value?.items ?? [];
  const failures = failed.data.value?.items ?? [];
  return (
    <>
      <Head title="Overview" note={`Workspace ${workspace.value}`} />
      <div class="tiles">
        <Tile label="Runs in flight" value={counts.data.value?.runs.running ?? (counts.data.value && 0)} to={href("runs", { status: "running" })} tone="run" />
        <Tile label="Jobs running" value={counts.data.value && (jobs.running ?? 0)} to={href("jobs", { state: "running" })} tone="run" />
        <Tile label="Jobs waiting" value={counts.data.value && waiting} to={href("jobs", { state: "queued" })} tone="wait" />
        <Tile label="Failed in 24 h" value={failed.data.value && failures.length} more={!!failed.data.value?.next} to={href("runs", { status: "failed", since: "24h" })} tone={failures.length ? "bad" : "ok"} />
        {elsewhere.length > 0 && <Tile label="Remote workers" value={elsewhere.filter((one) => one.state !== "silent").length} of={elsewhere.length} to={href("workers")} tone="ok" />}
      </div>
      {failures.length > 0 && (
        <section class="card">
          <h2>Needs you</h2>
          <ul class="plain">
            {failures.map((run) => (
              <li key={run.run_id}>
                <a class="mono" href={href("runs", run.run_id)}>
                  {run.run_id}
                </a>
                <FirstFailure run={run.run_id} brief />
              </li>
            ))}
          </ul>
        </section>
      )}
      <Loaded of={runs}>
        {(page) =>
          page.items.length ? (
            <section class="stack">
              <h2>Newest runs</h2>
              <Table label="Newest runs" rows={page.items} rowKey={(run) => run.run_id} columns={COLUMNS} href={(run) => href("runs", run.run_id)} />
              <p>
                <a href={href("runs")}>All {counted(Object.values(counts.data.value?.runs ?? {}).reduce((sum, one) => sum + one, 0), "run")}</a>
              </p>
            </section>
          ) : (
            <FirstRun />
          )
        }
      </Loaded>
    </>
  );
}

function Tile(props: { label: string; value: number | undefined; of?: number; more?: boolean; to: string; tone: string }): JSX.Element {
  return (
    <a class={`tile ${props.value ? `tone-${props.tone}` : ""}`} href={props.to}>
      <span class="value">
        {props.value === undefined ? "–" : count(props.value)}
        {props.more && "+"}
        {props.of !== undefined && <small> of {count(props.of)}</small>}
      </span>
      <span class="label">{props.label}</span>
    </a>
  );
}
