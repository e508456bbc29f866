/** Two runs side by side: what went in, which steps differ, and why the second ran what it ran. */
import type { JSX } from "preact";
import type { Changed, ElementDifference, RunDetail, RunDifference, StepDifference } from "../api";
import { counted, quoted, shortDuration, shortId } from "../format";
import { useAsk } from "../resource";
import { go, href } from "../router";
import { Button, CopyLine, useBack } from "../parts/basics";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { Duration, Time } from "../parts/time";
import { Head } from "../shell";

export function Diff({ before, after }: { before: string; after: string }): JSX.Element {
  const difference = useAsk("GET /v1/runs/{run_id}/diff/{other_id}", { path: { run_id: before, other_id: after } });
  useBack(href("runs"), go);
  return (
    <>
      <Head
        title="Compare two runs"
        above={<a href={href("runs")}>Runs</a>}
        note={
          <>
            <RunLink id={before} /> → <RunLink id={after} />
          </>
        }
      >
        <Button onClick={() => go(href("diff", after, before), { replace: true })}>Swap</Button>
      </Head>
      <Summary before={before} after={after} />
      <Loaded of={difference}>{(found) => <Differences found={found} before={before} after={after} />}</Loaded>
    </>
  );
}

function RunLink({ id }: { id: string }): JSX.Element {
  return (
    <a class="mono" href={href("runs", id)}>
      {id}
    </a>
  );
}

function Summary({ before, after }: { before: string; after: string }): JSX.Element {
  return (
    <div class="pair">
      <Side id={before} label="Before" />
      <Side id={after} label="After" />
    </div>
  );
}

function Side({ id, label }: { id: string; label: string }): JSX.Element {
  const run = useAsk("GET /v1/runs/{run_id}", { path: { run_id: id } });
  return (
    <section class="card" aria-label={label}>
      <Loaded of={run} lines={2}>
        {(detail: RunDetail) => (
          <>
            <h2>
              {label} <StatusBadge state={detail.status} />
            </h2>
            <p>
              {detail.name}, took <Duration from={detail.started_at} to={detail.ended_at} />, started <Time of={detail.started_at} />
            </p>
            <p class="faint">
              {counted(detail.jobs, "job")}, {detail.jobs_reused} reused
            </p>
          </>
        )}
      </Loaded>
    </section>
  );
}

function Differences({ found, before, after }: { found: RunDifference; before: string; after: string }): JSX.Element {
  const same = !found.params.length && !found.steps_added.length && !found.steps_removed.length && !found.steps_changed.length;
  return (
    <>
      {!found.complete && <p class="tone-wait">There are more differences than shown here.</p>}
      {same && (
        <Empty title="No difference">
          <p class="faint">The same parameters, steps, inputs and results.</p>
        </Empty>
      )}
      {found.params.length > 0 && (
        <section>
          <h2>Parameters</h2>
          <Changes label="Parameters" of={found.params} />
        </section>
      )}
      <Names title="Only before" steps={found.steps_removed} />
      <Names title="Only after" steps={found.steps_added} />
      {found.steps_changed.length > 0 && (
        <section>
          <h2>Steps that differ</h2>
          <Table label="Steps that differ" rows={found.steps_changed} rowKey={(one) => one.step} columns={COLUMNS} below={(one) => one.elements.some((element) => element.ingredients.length) && <Why step={one} />} />
        </section>
      )}
      <footer class="listfoot">
        <CopyLine text={`detent export ${quoted(before)} --output before.detent && detent compare before.detent . --run ${quoted(after)}`} />
      </footer>
    </>
  );
}

function Names({ title, steps }: { title: string; steps: string[] }): JSX.Element | null {
  if (!steps.length) return null;
  return (
    <section class="card">
      <h2>{title}</h2>
      <p class="mono">{steps.join(", ")}</p>
    </section>
  );
}

function shown(value: unknown): string {
  if (value === null || value === undefined) return "–";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.startsWith("sha256:") ? shortId(text) : text;
}

function whole(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "–");
}

function Changes({ label, of }: { label: string; of: Changed[] }): JSX.Element {
  const columns: Column<Changed>[] = [
    { name: "name", head: "What", kind: "main", cell: (one) => <code>{one.name}</code> },
    { name: "old", head: "Before", short: "before", cell: (one) => <code title={whole(one.old)}>{shown(one.old)}</code> },
    { name: "new", head: "After", short: "after", kind: "grow", cell: (one) => <code title={whole(one.new)}>{shown(one.new)}</code> },
  ];
  return <Table label={label} rows={of} rowKey={(one) => one.name} columns={columns} />;
}

const state = (step: StepDifference, place: number) => (step.state[place] ? <StatusBadge state={step.state[place]} /> : <span class="faint">–</span>);
const took = (step: StepDifference, place: number) => {
  const ms = step.ran_ms[place];
  return ms === null || ms === undefined ? <span class="faint">–</span> : <Duration ms={ms} />;
};

const COLUMNS: Column<StepDifference>[] = [
  { name: "step", head: "Step", kind: "main", cell: (step) => <code>{step.step}</code> },
  { name: "before", head: "Before", short: "before", cell: (step) => state(step, 0) },
  { name: "after", head: "After", short: "after", cell: (step) => state(step, 1) },
  { name: "took-before", head: "Ran before", kind: "num", short: "ran before", cell: (step) => took(step, 0) },
  { name: "took-after", head: "Ran after", kind: "num", short: "ran after", cell: (step) => took(step, 1) },
  { name: "delta", head: "Difference", kind: "num", short: "difference", cell: (step) => delta(step) },
];

function delta(step: StepDifference): JSX.Element {
  const [before, after] = step.ran_ms;
  if (typeof before !== "number" || typeof after !== "number") return <span class="faint">–</span>;
  const by = after - before;
  return <span class={by > 0 ? "tone-wait" : "tone-ok"}>{`${by < 0 ? "−" : "+"}${shortDuration(Math.abs(by))}`}</span>;
}

const NAMED_MAX = 3;

/** What changed in the work of a step: its code, arguments and files. */
function Why({ step }: { step: StepDifference }): JSX.Element {
  const lines = step.elements.filter((one) => one.ingredients.length).slice(0, NAMED_MAX);
  const more = step.elements.length - lines.length;
  return (
    <ul class="plain why">
      {lines.map((one) => (
        <li key={one.index ?? -1}>
          <Ingredients element={one} />
        </li>
      ))}
      {more > 0 && <li class="faint">and {counted(more, "more element")}</li>}
    </ul>
  );
}

function Ingredients({ element }: { element: ElementDifference }): JSX.Element {
  return (
    <>
      {element.index !== null && <span class="faint">[{element.index}] </span>}
      {element.ingredients.map((one, place) => (
        <span key={one.name}>
          {place > 0 && ", "}
          <code>{one.name}</code>{" "}
          <span title={`${whole(one.old)} → ${whole(one.new)}`}>
            {shown(one.old)} → {shown(one.new)}
          </span>
        </span>
      ))}
    </>
  );
}
