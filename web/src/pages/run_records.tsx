/** A run's records on the ledger, page by page: its own, and the submissions of its jobs. */
import type { JSX } from "preact";
import type { LedgerRecord, RunDetail } from "../api";
import { useList } from "../lists";
import { count, quoted } from "../format";
import { Button, CopyLine } from "../parts/basics";
import { RecordList } from "../parts/records";
import { Loaded, ProblemBox } from "../parts/states";

export function RunRecords({ run }: { run: RunDetail }): JSX.Element {
  const path = { run_id: run.run_id };
  const topics = run.status === "running" ? [`run:${run.run_id}`] : [];
  const list = useList<"GET /v1/runs/{run_id}/records", LedgerRecord>("GET /v1/runs/{run_id}/records", { limit: 100 }, (one) => `${one.partition}:${one.position}`, topics, { path });
  return (
    <Loaded of={list.resource} lines={6}>
      {() => (
        <>
          <p class="faint">Records of the run itself, and the submission of each job. See a job's own page for what happened to it after that.</p>
          <RecordList records={list.rows} jobs />
          <footer class="listfoot">
            <span class="faint">{count(list.rows.length)} shown</span>
            {list.more && (
              <Button onClick={list.more} busy={list.loadingMore}>
                {list.loadingMore ? "Loading…" : "Show more"}
              </Button>
            )}
            {list.problem && <ProblemBox problem={list.problem} again={list.more} />}
            <CopyLine text={`detent show ${quoted(run.run_id)}`} />
          </footer>
        </>
      )}
    </Loaded>
  );
}
