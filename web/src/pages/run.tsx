/** One run: how it stands, why it failed, its steps as graph, timeline and table, and why each of them ran. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Graph, RunDetail, Step } from "../api";
import { type Resource, useAsk } from "../resource";
import { at, go, href, setQuery } from "../router";
import { counted, principal } from "../format";
import { useKeys } from "../keys";
import { coalesced, useLive } from "../live";
import { runPatched } from "../patches";
import { type Steps, useSteps } from "../steps";
import { Tabs, TabPanel, useBack } from "../parts/basics";
import { Loaded } from "../parts/states";
import { StatusBadge, word } from "../parts/status";
import { Duration, Time } from "../parts/time";
import { FirstFailure } from "../parts/failure";
import { RunGraph } from "../parts/graph";
import { TimelineView } from "../parts/timeline";
import { Head } from "../shell";
import { RunActions } from "./run_actions";
import { jobOf, StepPanel, StepsTable } from "./run_steps";
import { RunRecords } from "./run_records";
import { RunWhy } from "./run_why";

export function RunPage({ id }: { id: string }): JSX.Element {
  const run = useAsk("GET /v1/runs/{run_id}", { path: { run_id: id } });
  const refresh = useMemo(() => coalesced(() => void run.reload(), 500), [run]);
  const ended = run.data.value !== undefined && run.data.value.status !== "running";
  useLive(ended ? [] : [`run:${id}`], (event) => {
    const shown = run.data.peek();
    if (shown && event.event === "run" && event.data.run_id === id) run.put(runPatched(shown, event.data));
    if (event.event === "again" || event.data.run_id === id) refresh();
  });
  useBack(href("runs"), go);
  // Asked for together: none of them waits for another.
  const view = at.value.query.get("view") ?? "graph";
  const steps = useSteps(id, run.data.value?.status === "running");
  const graph = useAsk(view === "graph" ? "GET /v1/runs/{run_id}/graph" : null, { path: { run_id: id } });
  return (
    <Loaded of={run} title={id}>
      {(detail) => <Run detail={detail} view={view} steps={steps} graph={graph} reload={() => void run.reload()} />}
    </Loaded>
  );
}

const VIEWS = [
  { name: "graph", label: "Graph" },
  { name: "timeline", label: "Timeline" },
  { name: "steps", label: "Steps" },
  { name: "why", label: "Why" },
  { name: "records", label: "Records" },
];

function Run({ detail, view, steps, graph, reload }: { detail: RunDetail; view: string; steps: Resource<Steps>; graph: Resource<Graph>; reload: () => void }): JSX.Element {
  const id = detail.run_id;
  const chosen = at.value.query.get("step");
  const [cancelling, setCancelling] = useState(false);
  const firstFailed = () => steps.data.peek()?.list.find((one) => one.state === "failed");
  const open = (key: string) => {
    const step = steps.data.peek()?.byKey.get(key);
    const job = step && jobOf(step);
    if (job) go(href("jobs", job));
  };
  useKeys("Run", {
    y: ["why", () => setQuery({ view: "why" }, { replace: false })],
    l: [
      "log of the chosen step, or of the first failure",
      () => {
        const key = chosen ?? firstFailed()?.step;
        if (key) open(key);
      },
    ],
    f: [
      "choose the first failed step",
      () => {
        const step = firstFailed();
        if (step) setQuery({ step: step.step });
      },
    ],
    c: ["cancel (asks first)", () => setCancelling(detail.status === "running")],
  });
  return (
    <>
      <Head title={id} above={<Above name={detail.name} />} badge={<StatusBadge state={detail.status} />} note={<Note detail={detail} />}>
        <RunActions detail={detail} reload={reload} cancelling={cancelling} closed={() => setCancelling(false)} />
      </Head>
      {detail.message && <p class="tone-bad">{detail.message}</p>}
      {detail.status === "failed" && <FirstFailure run={id} />}
      <Tabs param="view" label="Views of the run" tabs={VIEWS.map((one) => (one.name === "steps" ? { ...one, count: steps.data.value?.list.length } : one))} />
      <TabPanel param="view" name={view}>
        {view === "timeline" ? (
          <Timeline run={detail} />
        ) : view === "steps" ? (
          <StepsTable steps={steps} />
        ) : view === "why" ? (
          <RunWhy run={detail} steps={steps} />
        ) : view === "records" ? (
          <RunRecords run={detail} />
        ) : (
          <GraphView run={detail} steps={steps} graph={graph} open={open} />
        )}
      </TabPanel>
      {chosen && (view === "steps" || view === "timeline") && <Chosen run={id} steps={steps} chosen={chosen} />}
    </>
  );
}

function Above({ name }: { name: string }): JSX.Element {
  return (
    <>
      <a href={href("runs")}>Runs</a> / <a href={href("runs", { name })}>{name}</a>
    </>
  );
}

function Note({ detail }: { detail: RunDetail }): JSX.Element {
  const params = detail.params && typeof detail.params === "object" ? Object.entries(detail.params) : [];
  return (
    <>
      {detail.status === "running" ? "for " : "took "}
      <Duration from={detail.started_at} to={detail.ended_at} />, started <Time of={detail.started_at} />
      {detail.requested_by && <> by {principal(detail.requested_by)}</>}
      {detail.file && (
        <>
          , from <code>{detail.file}</code>
        </>
      )}
      {params.slice(0, 6).map(([name, value]) => (
        <span key={name} class="param">
          {name} <code>{JSON.stringify(value).slice(0, 60)}</code>
        </span>
      ))}
      {detail.steps && (
        <span class="counts">
          {detail.steps.map((one) => (
            <a key={one.state} href={href("runs", detail.run_id, { view: "steps", show: one.state })}>
              <StatusBadge state={one.state} text={`${one.steps.toLocaleString("en-US")} ${word(one.state)}`} />
            </a>
          ))}
        </span>
      )}
    </>
  );
}

function GraphView({ run, steps, graph, open }: { run: RunDetail; steps: Resource<Steps>; graph: Resource<Graph>; open: (step: string) => void }): JSX.Element {
  const chosen = at.value.query.get("step");
  return (
    <Loaded of={graph} lines={8}>
      {(found) => (
        <div class={chosen ? "beside" : ""}>
          <RunGraph graph={found} steps={steps.data.value?.byKey ?? NONE} chosen={chosen} choose={(step) => setQuery({ step })} open={open} />
          {chosen && <Chosen run={run.run_id} steps={steps} chosen={chosen} />}
        </div>
      )}
    </Loaded>
  );
}

const NONE = new Map<string, Step>();

function Chosen({ run, steps, chosen }: { run: string; steps: Resource<Steps>; chosen: string }): JSX.Element | null {
  const step = steps.data.value?.byKey.get(chosen);
  return step ? <StepPanel key={chosen} run={run} step={step} close={() => setQuery({ step: undefined })} /> : null;
}

function Timeline({ run }: { run: RunDetail }): JSX.Element {
  const timeline = useAsk("GET /v1/runs/{run_id}/timeline", { path: { run_id: run.run_id } });
  const refresh = useMemo(() => coalesced(() => void timeline.reload(), 1_000), [timeline]);
  useLive(run.status === "running" ? [`run:${run.run_id}`] : [], (event) => {
    if (event.event === "again" || event.data.run_id === run.run_id) refresh();
  });
  return (
    <Loaded of={timeline} lines={8}>
      {(columns) =>
        columns.step.length ? (
          <TimelineView columns={columns} open={(job) => go(href("jobs", job))} />
        ) : (
          <p class="faint">{counted(run.jobs_reused, "job")} reused. This run had nothing to run itself.</p>
        )
      }
    </Loaded>
  );
}
