/** Records of the ledger, as they were signed: what happened, when, and where it is in the ledger. */
import type { JSX } from "preact";
import type { LedgerRecord } from "../api";
import { count } from "../format";
import { href } from "../router";
import { Json } from "./json";
import { Time } from "./time";

/** `jobs` says whether records name their jobs: on the page of one they do not. */
export function RecordList({ records, jobs }: { records: LedgerRecord[]; jobs?: boolean }): JSX.Element {
  return (
    <ol class="story">
      {records.map((one) => {
        const job = jobs && typeof one.fields.job_id === "string" ? one.fields.job_id : undefined;
        return (
          <li key={`${one.partition}:${one.position}`}>
            <span>
              <b>{one.kind}</b>{" "}
              {"from_state" in one.fields && (
                <>
                  {String(one.fields.from_state)} → {String(one.fields.to_state)} <code>{String(one.fields.reason_code)}</code>{" "}
                </>
              )}
              {job && (
                <>
                  <a class="mono" href={href("jobs", job)}>
                    {job}
                  </a>{" "}
                </>
              )}
              <Time of={one.at} mode="clock" />{" "}
              <span class="faint">
                position {one.partition}:{one.position}, batch {count(one.batch_no)}
              </span>
            </span>
            <details>
              <summary class="faint">Fields</summary>
              <Json value={{ fields: one.fields, evidence: one.evidence }} label={`Record ${one.position}`} />
            </details>
          </li>
        );
      })}
    </ol>
  );
}
