/** Why each step of a run is where it is. A large run is explained step by step: those that failed or wait come first. */
import type { JSX } from "preact";
import type { RunDetail } from "../api";
import { type Resource, useAsk } from "../resource";
import { href } from "../router";
import { count, quoted } from "../format";
import type { Steps } from "../steps";
import { CopyLine } from "../parts/basics";
import { Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { jobOf, Lines, linesOf } from "./run_steps";

const WHOLE_MAX = 300;
const SHOWN_MAX = 50;

export function RunWhy({ run, steps }: { run: RunDetail; steps: Resource<Steps> }): JSX.Element {
  return (
    <Loaded of={steps} lines={6}>
      {(found) => (found.list.length <= WHOLE_MAX ? <Whole run={run} steps={found} /> : <Some run={run} steps={found} />)}
    </Loaded>
  );
}

function Whole({ run, steps }: { run: RunDetail; steps: Steps }): JSX.Element {
  const why = useAsk("GET /v1/runs/{run_id}/explain", { path: { run_id: run.run_id } });
  return (
    <Loaded of={why} lines={6}>
      {(found) => (
        <>
          {found.driven === false && <p class="tone-wait">No process is driving this run. It continues when one resumes it.</p>}
          <Lines lines={found.lines} />
          <dl class="why">
            {steps.list.map((step) => {
              const job = jobOf(step);
              return (
                <div key={step.step}>
                  <dt>
                    <StatusBadge state={step.state} /> {job ? <a href={href("jobs", job, { tab: "why" })}>{step.name}</a> : step.name}
                  </dt>
                  <dd>
                    <Lines lines={linesOf(found, step.step)} />
                  </dd>
                </div>
              );
            })}
          </dl>
          <CopyLine text={`detent explain ${quoted(run.run_id)}`} />
        </>
      )}
    </Loaded>
  );
}

function Some({ run, steps }: { run: RunDetail; steps: Steps }): JSX.Element {
  const order = ["failed", "blocked", "running", "ready", "waiting"];
  const shown = steps.list
    .filter((step) => order.includes(step.state))
    .sort((one, other) => order.indexOf(one.state) - order.indexOf(other.state))
    .slice(0, SHOWN_MAX);
  return (
    <>
      <p class="soft">
        {count(steps.list.length)} steps. {shown.length ? `Here are the first ${count(shown.length)} that failed or are waiting. ` : "All of them succeeded. "}Choose a step in the graph or the table to see why it ran.
      </p>
      <ul class="plain">
        {shown.map((step) => (
          <li key={step.step}>
            <StatusBadge state={step.state} /> <a href={href("runs", run.run_id, { view: "steps", step: step.step })}>{step.name}</a> {step.message && <span class="soft">{step.message}</span>}
          </li>
        ))}
      </ul>
    </>
  );
}
