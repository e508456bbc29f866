/** What a code of an answer means, for everyone: the address of every problem document leads here. */
import type { JSX } from "preact";
import { useAsk } from "../resource";
import { Loaded } from "../parts/states";
import { Head } from "../shell";

export function ProblemPage({ code }: { code: string }): JSX.Element {
  const found = useAsk("GET /problems/{code}", { path: { code } });
  return (
    <main class="alone stack">
      <Loaded of={found} title={code}>
        {(problem) => (
          <>
            <Head title={problem.code} above="What this code means" />
            <p>{problem.title.charAt(0).toUpperCase() + problem.title.slice(1)}.</p>
            <dl class="facts">
              <div>
                <dt>HTTP status</dt>
                <dd>{problem.status}</dd>
              </div>
              <div>
                <dt>exit code</dt>
                <dd>{problem.exit_code}</dd>
              </div>
              <div>
                <dt>trying again</dt>
                <dd>{problem.retryable ? "may succeed" : "gives the same result"}</dd>
              </div>
            </dl>
            <p>
              <a href="/">Go to the dashboard</a>
            </p>
          </>
        )}
      </Loaded>
    </main>
  );
}
