/** Workers on other machines: what each offers and does, and the tokens that enrol more of them. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { EnrolmentMade, EnrolmentShown, WorkerShown } from "../api";
import { Action } from "../actions";
import { ask } from "../client";
import { count, durationText, quoted, shortId } from "../format";
import { coalesced, useLive } from "../live";
import { useAsk, type Resource } from "../resource";
import { may, workspace } from "../session";
import { Button, CopyLine, Dialog } from "../parts/basics";
import { FormDialog, NumberField, TextField } from "../parts/form";
import { Secret } from "../parts/secret";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { ACTIONS, Table, type Column } from "../parts/table";
import { Time } from "../parts/time";
import { Head } from "../shell";

export function Workers(): JSX.Element {
  const workers = useAsk("GET /v1/workers");
  const refresh = useMemo(() => coalesced(() => void workers.reload(), 1_000), [workers]);
  useLive(["workers"], (event) => {
    if (event.event === "worker" || event.event === "again") refresh();
  });
  const reload = () => void workers.reload();
  return (
    <>
      <Head title="Workers" note="Workers on other machines. The server's own workers are not listed.">
        {may("workers:write") && <NewToken done={reload} />}
      </Head>
      <Loaded of={workers}>
        {(found) =>
          found.items.length ? (
            <Table label="Workers" rows={found.items} rowKey={(one) => one.worker_id} columns={columns(reload)} />
          ) : (
            <Empty title="No workers on other machines yet">
              <p>Create an enrolment token, then start a worker on any machine that can reach this server:</p>
              <pre class="sample" tabIndex={0}>{`detent worker --connect ${quoted(location.origin)} --enrol-file TOKEN_FILE`}</pre>
            </Empty>
          )
        }
      </Loaded>
      {may("workers:write") && <Tokens />}
    </>
  );
}

function columns(reload: () => void): Column<WorkerShown>[] {
  return [
    { name: "state", head: "State", cell: (one) => <StatusBadge state={one.state} /> },
    { name: "name", head: "Worker", kind: "main", cell: (one) => <span class="mono" title={`key ${one.key_id}`}>{one.worker_id}</span> },
    { name: "pool", head: "Pool", short: "pool", cell: (one) => one.pools?.join(", ") || <span class="faint">any</span> },
    { name: "offers", head: "Offers", kind: "grow", cell: (one) => <Offers worker={one} /> },
    { name: "slots", head: "Busy", kind: "num", short: "busy", cell: (one) => `${count(one.leases)} of ${count(one.slots)}` },
    { name: "heard", head: "Last turn", kind: "num", short: "last turn", cell: (one) => (one.silent_ms === null ? <span class="faint">not since the server started</span> : `${durationText(one.silent_ms)} ago`) },
    { name: "version", head: "Version", short: "version", cell: (one) => one.version || <span class="faint">–</span> },
    { name: "actions", head: ACTIONS, cell: (one) => <Ending worker={one} reload={reload} /> },
  ];
}

function Offers({ worker }: { worker: WorkerShown }): JSX.Element {
  const offered = [...worker.labels, ...Object.entries(worker.resources).map(([name, amount]) => `${name} ${count(amount)}`)];
  const text = offered.join(", ");
  return text ? <span class="ellipsis" title={text}>{text}</span> : <span class="faint">–</span>;
}

function Ending({ worker, reload }: { worker: WorkerShown; reload: () => void }): JSX.Element | null {
  if (worker.state === "retired") return null;
  const path = { worker_id: worker.worker_id };
  const url = (verb: string) => `curl -X POST -H "Authorization: Bearer $DETENT_KEY" ${quoted(`${location.origin}/v1/workers/${worker.worker_id}/${verb}`)}`;
  return (
    <span class="buttons">
      {worker.state !== "draining" && (
        <Action
          label="Drain"
          scope="workers:write"
          line={url("drain")}
          ask={`${worker.worker_id} takes no more jobs, finishes the ones it is running, and exits.`}
          run={async () => {
            await ask("POST /v1/workers/{worker_id}/drain", { path });
            reload();
            return "The worker is draining";
          }}
        />
      )}
      <Action
        label="Retire"
        kind="danger"
        scope="workers:write"
        line={url("retire")}
        ask={`The server stops accepting anything signed with the key of ${worker.worker_id}. Its running jobs go to other workers. This cannot be undone, but the machine can be enrolled again.`}
        run={async () => {
          await ask("POST /v1/workers/{worker_id}/retire", { path });
          reload();
          return "Worker retired";
        }}
      />
    </span>
  );
}

// -- enrolment tokens -------------------------------------------------------------------------------------------------

function NewToken({ done }: { done: () => void }): JSX.Element {
  const [open, setOpen] = useState(false);
  const [made, setMade] = useState<EnrolmentMade>();
  return (
    <>
      <Button kind="main" onClick={() => setOpen(true)}>
        New enrolment token
      </Button>
      {open && (
        <FormDialog
          title="New enrolment token"
          action="Create token"
          onClose={() => setOpen(false)}
          submit={async (said) => {
            const found = await ask("POST /v1/enrolments", {
              body: { tenants: [workspace.value], labels: words(said.labels), pools: words(said.pool).length ? words(said.pool) : null, uses: Number(said.uses), ttl_seconds: 3_600 * Number(said.hours) },
            });
            setOpen(false);
            setMade(found);
            done();
          }}
        >
          <p class="faint">Machines that enrol with this token run jobs of this workspace, with the rights of the user who starts the worker.</p>
          <TextField name="pool" label="Pool" hint="Leave empty for any pool" />
          <TextField name="labels" label="Labels" hint="Separated by spaces, for example: a100 cuda" />
          <NumberField name="uses" label="Machines" value={1} min={1} max={1_000} />
          <NumberField name="hours" label="Valid for, in hours" value={1} min={1} max={720} />
        </FormDialog>
      )}
      {made && (
        <Dialog title="Enrolment token" onClose={() => setMade(undefined)}>
          <Secret value={made.token} />
          <p>On the other machine, with the token in a file:</p>
          <CopyLine text={`detent worker --connect ${quoted(location.origin)} --enrol-file token`} />
        </Dialog>
      )}
    </>
  );
}

function words(text: string | undefined): string[] {
  return (text ?? "").split(/[\s,]+/).filter(Boolean);
}

function Tokens(): JSX.Element {
  const tokens = useAsk("GET /v1/enrolments");
  useLive(["workers"], (event) => {
    if (event.event === "worker" || event.event === "again") void tokens.reload();
  });
  return (
    <Loaded of={tokens} lines={2}>
      {(found) =>
        found.items.length > 0 && (
          <section>
            <h2>Enrolment tokens</h2>
            <Table label="Enrolment tokens" rows={found.items} rowKey={(one) => one.enrolment_id} columns={tokenColumns(tokens)} />
          </section>
        )
      }
    </Loaded>
  );
}

function tokenColumns(tokens: Resource<unknown>): Column<EnrolmentShown>[] {
  return [
    { name: "state", head: "State", cell: (one) => <StatusBadge state={one.state} /> },
    { name: "id", head: "Token", kind: "main", cell: (one) => <span class="mono">{shortId(one.enrolment_id)}</span> },
    { name: "offers", head: "Pool and labels", kind: "grow", cell: (one) => [...(one.pools ?? []), ...one.labels].join(", ") || <span class="faint">any</span> },
    { name: "used", head: "Used", kind: "num", short: "used", cell: (one) => `${count(one.used)} of ${count(one.uses)}` },
    { name: "ends", head: "Expires", kind: "num", short: "expires", cell: (one) => <Time of={one.expires_at} /> },
    {
      name: "actions",
      head: ACTIONS,
      cell: (one) =>
        one.state === "active" && (
          <Action
            label="Revoke"
            kind="danger"
            scope="workers:write"
            line={`detent keys revoke ${one.enrolment_id}`}
            ask="No more machines can enrol with it. Machines already enrolled stay enrolled."
            run={async () => {
              await ask("DELETE /v1/enrolments/{enrolment_id}", { path: { enrolment_id: one.enrolment_id } });
              await tokens.reload();
              return "Token revoked";
            }}
          />
        ),
    },
  ];
}

