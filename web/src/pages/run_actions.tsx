/** What can be done with a run: retry, cancel, take its bundle along, verify it. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { RunDetail, Verified } from "../api";
import { ask, fetched, onceKey } from "../client";
import { type Resource, useAsk } from "../resource";
import { at, go, href, setQuery } from "../router";
import { counted, quoted } from "../format";
import { may } from "../session";
import { Action } from "../actions";
import { Button, Copy, CopyLine, Dialog } from "../parts/basics";
import { Loaded } from "../parts/states";
import { Icon } from "../parts/status";
import { Time } from "../parts/time";
import { useWhileRunning } from "./verify";

export function RunActions({ detail, reload, cancelling, closed }: { detail: RunDetail; reload: () => void; cancelling: boolean; closed: () => void }): JSX.Element {
  const id = detail.run_id;
  const over = detail.status !== "running";
  return (
    <>
      {!over && (
        <Action
          label="Cancel"
          kind="danger"
          scope="runs:cancel"
          line={`detent cancel ${quoted(id)}`}
          ask="Running jobs are stopped. Finished work is kept, and a retry continues from there."
          open={cancelling}
          onClose={closed}
          run={async () => {
            await ask("POST /v1/runs/{run_id}/cancel", { path: { run_id: id }, body: {} });
            reload();
            return "Run cancelled";
          }}
        />
      )}
      {over && detail.status !== "succeeded" && (
        <Action
          label="Retry failed"
          kind="main"
          scope="runs:write"
          line={`detent retry ${quoted(id)}`}
          run={async () => {
            const started = await ask("POST /v1/runs/{run_id}/retry", { path: { run_id: id }, body: {}, idempotencyKey: onceKey() });
            go(href("runs", started.run_id));
            return "Restarted; finished work is kept";
          }}
        />
      )}
      {over && <Verify id={id} />}
      {over && <Bundle id={id} />}
    </>
  );
}

/** Saves the run's bundle; the digest to pin is shown with the command that checks it. */
function Bundle({ id }: { id: string }): JSX.Element {
  const [root, setRoot] = useState<string>();
  return (
    <>
      <Action
        label="Bundle"
        scope="ledger:export"
        line={`detent export ${quoted(id)} --output ${quoted(`${id}.detent`)}`}
        run={async () => {
          const answer = await fetched("GET /v1/runs/{run_id}/bundle", { path: { run_id: id }, headers: { Accept: "*/*" } });
          const link = document.createElement("a");
          link.href = URL.createObjectURL(await answer.blob());
          link.download = `${id}.detent`;
          link.click();
          setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
          setRoot(answer.headers.get("detent-root") ?? "");
          return undefined;
        }}
      />
      {root !== undefined && (
        <Dialog title="Bundle saved" onClose={() => setRoot(undefined)}>
          <p>Anyone can check it offline, with the root digest and nothing else:</p>
          <CopyLine text={`detent verify ${quoted(`${id}.detent`)} --root ${root}`} />
          <p class="faint">Send the digest separately from the file.</p>
        </Dialog>
      )}
    </>
  );
}

function Verify({ id }: { id: string }): JSX.Element | null {
  const known = useAsk("GET /v1/runs/{run_id}/verify", { path: { run_id: id } });
  useWhileRunning(known);
  if (!may("runs:read")) return null;
  const ok = known.data.value?.ok;
  return (
    <>
      <Button title={`$ detent verify`} onClick={() => setQuery({ verify: "open" }, { replace: false })}>
        {ok === true ? (
          <>
            <Icon name="check" /> Verified
          </>
        ) : ok === false ? (
          <>
            <Icon name="cross" /> Not verified
          </>
        ) : (
          "Verify"
        )}
      </Button>
      {at.value.query.get("verify") === "open" && <VerifyDialog id={id} state={known} close={() => setQuery({ verify: undefined })} />}
    </>
  );
}

function VerifyDialog({ id, state, close }: { id: string; state: Resource<Verified>; close: () => void }): JSX.Element {
  return (
    <Dialog title="Verify this run" onClose={close} wide>
      <Loaded of={state} lines={3}>
        {(found) => <Verdict found={found} />}
      </Loaded>
      <footer>
        <CopyLine text={`detent export ${quoted(id)} --output run.detent && detent verify run.detent`} />
        <Action
          label="Verify now"
          kind="main"
          scope="runs:read"
          line={`detent verify`}
          run={async () => {
            state.put(await ask("POST /v1/runs/{run_id}/verify", { path: { run_id: id }, body: {} }));
            return undefined;
          }}
        />
      </footer>
    </Dialog>
  );
}

/** What was proved and what was not: always both. */
export function Verdict({ found }: { found: Verified }): JSX.Element {
  if (found.state === "never") return <p>This run has not been verified here yet.</p>;
  if (found.state === "running") return <p role="status">A separate process is checking every record…</p>;
  return (
    <div class="verdict">
      <p class={found.ok ? "tone-ok" : "tone-bad"}>
        <Icon name={found.ok ? "check" : "cross"} /> <b>{found.ok ? "Verified" : (found.error ?? counted(found.findings_total ?? 0, "finding"))}</b> <Time of={found.ended_at} />
      </p>
      {found.root && (
        <p>
          root <code>{found.root}</code> <Copy text={found.root} label="Copy the root digest" />
        </p>
      )}
      {(found.findings ?? []).length > 0 && (
        <ul>
          {found.findings?.map((one, place) => (
            <li key={place}>
              <b>{one.code}</b> {one.message} {one.place && <code>{one.place}</code>}
            </li>
          ))}
        </ul>
      )}
      <h3>Proved</h3>
      <ul>
        {found.proved?.map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
      <h3>Not proved</h3>
      <ul>
        {found.not_proved?.map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
    </div>
  );
}
