/** Webhooks: who is told when work ends, and whether the deliveries arrive. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { WebhookBody, WebhookMade, WebhookShown } from "../api";
import { Action } from "../actions";
import { ask } from "../client";
import { quoted } from "../format";
import { useLive } from "../live";
import { useAsk } from "../resource";
import { href } from "../router";
import { lacks } from "../session";
import { Button, Copy, CopyLine, Dialog } from "../parts/basics";
import { CheckFields, FormDialog, SelectField, TextField } from "../parts/form";
import { Secret } from "../parts/secret";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { ACTIONS, Table, type Column } from "../parts/table";
import { Time } from "../parts/time";
import { Head } from "../shell";

type Event = WebhookBody["events"][number];
const EVENTS: Event[] = ["run.ended", "job.ended", "worker.lost", "worker.mismatch", "queue.full", "verify.failed"];

export function Webhooks(): JSX.Element {
  const hooks = useAsk("GET /v1/webhooks");
  useLive(["audit"], (event) => {
    if (event.event === "operated" || event.event === "again") void hooks.reload();
  });
  const [made, setMade] = useState<WebhookMade>();
  const reload = () => void hooks.reload();
  return (
    <>
      <Head title="Webhooks" note="The server calls a URL when work ends. Each delivery is a signed job, retried until it succeeds or runs out of attempts.">
        <NewHook
          done={(hook) => {
            setMade(hook);
            reload();
          }}
        />
      </Head>
      <Loaded of={hooks}>
        {(found) =>
          found.items.length ? (
            <Table label="Webhooks" rows={found.items} rowKey={(one) => one.hook_id} columns={columns(reload)} />
          ) : (
            <Empty title="No webhooks yet">
              <p class="faint">Add one to notify another service when runs and jobs end.</p>
            </Empty>
          )
        }
      </Loaded>
      {made && (
        <Dialog title="Webhook" onClose={() => setMade(undefined)}>
          <p>
            The server now calls <code>{made.webhook.url}</code>.
          </p>
          {made.secret && <Secret value={made.secret} />}
          {made.webhook.public_key && (
            <p>
              Deliveries are signed with the key <code>{made.webhook.public_key}</code> <Copy text={made.webhook.public_key} label="Copy the public key" />
            </p>
          )}
        </Dialog>
      )}
    </>
  );
}

function columns(reload: () => void): Column<WebhookShown>[] {
  return [
    { name: "state", head: "State", cell: (one) => <StatusBadge state={one.state} text={one.state} /> },
    { name: "url", head: "URL", kind: "main", cell: (one) => <span class="mono ellipsis" title={one.url}>{one.url}</span> },
    { name: "events", head: "Events", kind: "grow", cell: (one) => one.events.join(", ") },
    { name: "signature", head: "Signature", cell: (one) => one.signature },
    { name: "reason", head: "Why off", short: "off:", cell: (one) => one.reason },
    { name: "created", head: "Created", kind: "num", short: "created", cell: (one) => <Time of={one.created_at} /> },
    { name: "actions", head: ACTIONS, cell: (one) => <Actions of={one} reload={reload} /> },
  ];
}

function Actions({ of, reload }: { of: WebhookShown; reload: () => void }): JSX.Element {
  const path = { hook_id: of.hook_id };
  return (
    <span class="buttons">
      <a class="button" href={href("settings", "webhooks", of.hook_id)}>
        Deliveries
      </a>
      <TestHook id={of.hook_id} />
      <Action
        label="Delete"
        kind="danger"
        scope="webhooks:write"
        line={`curl -X DELETE -H "Authorization: Bearer $DETENT_KEY" ${quoted(hookAddress(of.hook_id))}`}
        ask="The server stops calling it. Deliveries already made stay on the ledger."
        run={async () => {
          await ask("DELETE /v1/webhooks/{hook_id}", { path });
          reload();
          return "Webhook deleted";
        }}
      />
    </span>
  );
}

export function TestHook({ id }: { id: string }): JSX.Element {
  return (
    <Action
      label="Test"
      scope="webhooks:write"
      line={`curl -X POST -H "Authorization: Bearer $DETENT_KEY" ${quoted(`${hookAddress(id)}/test`)}`}
      run={async () => {
        const tried = await ask("POST /v1/webhooks/{hook_id}/test", { path: { hook_id: id } });
        return (
          <>
            A test is on its way: <a href={href("jobs", tried.job_id)}>the delivery</a>
          </>
        );
      }}
    />
  );
}

export function hookAddress(id: string): string {
  return `${location.origin}/v1/webhooks/${id}`;
}

function NewHook({ done }: { done: (made: WebhookMade) => void }): JSX.Element {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button kind="main" why={lacks("webhooks:write")} onClick={() => setOpen(true)}>
        New webhook
      </Button>
      {open && (
        <FormDialog
          title="New webhook"
          action="Add webhook"
          onClose={() => setOpen(false)}
          line={<CopyLine text={`curl -H "Authorization: Bearer $DETENT_KEY" --json '{"url": "https://…", "events": ["run.ended"]}' ${quoted(`${location.origin}/v1/webhooks`)}`} />}
          submit={async (said) => {
            const events = (said.events ?? "").split(" ").filter(Boolean) as Event[];
            const made = await ask("POST /v1/webhooks", { body: { url: said.url ?? "", events, signature: said.signature as "ed25519" | "hmac" } });
            setOpen(false);
            done(made);
          }}
        >
          <TextField name="url" label="URL" url required maxLength={2_000} hint="Must be https, and at a public address unless the settings allow others." />
          <CheckFields name="events" label="Events" options={EVENTS} checked={["run.ended"]} />
          <SelectField
            name="signature"
            label="Signature"
            options={[
              ["ed25519", "Ed25519: the receiver needs a public key"],
              ["hmac", "HMAC: the receiver needs a secret"],
            ]}
          />
        </FormDialog>
      )}
    </>
  );
}
