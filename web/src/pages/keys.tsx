/** The keys of programs: what each may do, until when, and when it was used last. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { KeyBody, KeySecret, KeyShown } from "../api";
import { Action } from "../actions";
import { ask } from "../client";
import { counted, quoted } from "../format";
import { useList } from "../lists";
import { setQuery, at } from "../router";
import { lacks } from "../session";
import { Button, CopyLine, Dialog } from "../parts/basics";
import { CheckFields, FormDialog, NumberField, SelectField, TextField } from "../parts/form";
import { ListFoot } from "../parts/listfoot";
import { Secret } from "../parts/secret";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { ACTIONS, Table, type Column } from "../parts/table";
import { msOf, Time } from "../parts/time";
import { Head } from "../shell";

type Role = NonNullable<KeyBody["role"]>;
type Scope = NonNullable<KeyBody["scopes"]>[number];
export const ROLES: [Role, string][] = [
  ["viewer", "Viewer: reads"],
  ["submitter", "Submitter: submits, and cancels its own work"],
  ["operator", "Operator: submits, cancels and retries everything"],
  ["auditor", "Auditor: reads, exports and verifies"],
  ["admin", "Admin: manages the workspace"],
  ["server_admin", "Server admin: manages the server"],
];
const SCOPES: Scope[] = ["jobs:read", "jobs:write", "runs:read", "runs:write", "tasks:write", "logs:read", "artifacts:read", "artifacts:write", "jobs:cancel", "runs:cancel", "queue:read", "workers:read", "sessions:read", "sessions:write", "audit:read", "ledger:read", "ledger:export", "metrics:read"];
const SOON_MS = 14 * 86_400_000;

export function Keys(): JSX.Element {
  const revoked = at.value.query.get("revoked") === "yes";
  const list = useList<"GET /v1/keys", KeyShown>("GET /v1/keys", revoked ? { revoked: true } : {}, (one) => one.key_id, ["audit"]);
  const [made, setMade] = useState<KeySecret>();
  const reload = () => void list.resource.reload();
  return (
    <>
      <Head title="Keys" note="Programs authenticate with keys. People log in with a link, or with a key of their own.">
        <NewKey
          done={(secret) => {
            setMade(secret);
            reload();
          }}
        />
      </Head>
      <div class="filters">
        <Button pressed={revoked} onClick={() => setQuery({ revoked: revoked ? undefined : "yes" })}>
          Show revoked and expired keys
        </Button>
      </div>
      <Loaded of={list.resource}>
        {() =>
          list.rows.length ? (
            <>
              <Table label="Keys" rows={list.rows} rowKey={(one) => one.key_id} columns={columns(setMade, reload)} />
              <ListFoot list={list} line="detent keys api" />
            </>
          ) : (
            <Empty title="No keys yet">
              <p>Programs need one to submit or read. Create it here, or on the server's machine:</p>
              <pre class="sample" tabIndex={0}>detent keys create ci --role submitter</pre>
            </Empty>
          )
        }
      </Loaded>
      {made && (
        <Dialog title={`Key ${made.key.name ?? made.key.key_id}`} onClose={() => setMade(undefined)}>
          <Secret value={made.secret} />
          <CopyLine text={`export DETENT_URL=${quoted(location.origin)} DETENT_KEY=${made.secret}`} />
        </Dialog>
      )}
    </>
  );
}

function columns(tell: (made: KeySecret) => void, reload: () => void): Column<KeyShown>[] {
  return [
    { name: "state", head: "State", cell: (one) => <StatusBadge state={one.state} /> },
    { name: "name", head: "Name", kind: "main", cell: (one) => one.name ?? <span class="mono">{one.key_id}</span> },
    { name: "role", head: "Role", kind: "grow", cell: (one) => <span class="ellipsis" title={one.scopes.join(", ")}>{one.role?.replace("_", " ") ?? counted(one.scopes.length, "scope")}</span> },
    { name: "ends", head: "Ends", kind: "num", short: "ends", cell: (one) => <Ends of={one} /> },
    { name: "used", head: "Last used", kind: "num", short: "last used", cell: (one) => (one.last_used_at ? <Time of={one.last_used_at} /> : <span class="faint">never</span>) },
    { name: "by", head: "Created by", short: "created by", cell: (one) => one.made_by },
    { name: "actions", head: ACTIONS, cell: (one) => <Changes of={one} tell={tell} reload={reload} /> },
  ];
}

function Ends({ of }: { of: KeyShown }): JSX.Element {
  if (!of.expires_at) return <span class="tone-wait">never</span>;
  const soon = msOf(of.expires_at) - Date.now() < SOON_MS;
  return (
    <span class={soon && of.state === "active" ? "tone-wait" : ""}>
      <Time of={of.expires_at} />
    </span>
  );
}

function Changes({ of, tell, reload }: { of: KeyShown; tell: (made: KeySecret) => void; reload: () => void }): JSX.Element | null {
  if (of.revoked_at) return null;
  const path = { key_id: of.key_id };
  return (
    <span class="buttons">
      <Action
        label="Rotate"
        scope="keys:write"
        line={`detent keys rotate ${of.key_id}`}
        ask="The key gets a new secret. The old one stays valid for 24 hours."
        run={async () => {
          tell(await ask("POST /v1/keys/{key_id}/rotate", { path }));
          reload();
          return undefined;
        }}
      />
      <Action
        label="Revoke"
        kind="danger"
        scope="keys:write"
        line={`detent keys revoke ${of.key_id}`}
        ask="The key stops working immediately, including for open streams. This cannot be undone."
        run={async () => {
          await ask("DELETE /v1/keys/{key_id}", { path });
          reload();
          return "Key revoked";
        }}
      />
    </span>
  );
}

function NewKey({ done }: { done: (made: KeySecret) => void }): JSX.Element {
  const [open, setOpen] = useState(false);
  const [role, setRole] = useState("submitter");
  return (
    <>
      <Button kind="main" why={lacks("keys:write")} onClick={() => setOpen(true)}>
        New key
      </Button>
      {open && (
        <FormDialog
          title="New key"
          action="Create key"
          onClose={() => setOpen(false)}
          line={<CopyLine text={`detent keys create NAME ${role ? `--role ${role}` : "--scope jobs:read"}`} />}
          submit={async (said) => {
            const scopes = (said.scopes ?? "").split(" ").filter(Boolean) as Scope[];
            const made = await ask("POST /v1/keys", {
              body: { name: said.name ?? "", ...(said.role ? { role: said.role as Role } : { scopes }), expires_days: Number(said.days) },
            });
            setOpen(false);
            done(made);
          }}
        >
          <TextField name="name" label="Name" required hint="What uses it: ci, billing-app" maxLength={100} />
          <SelectField name="role" label="Role" value={role} onChange={setRole} options={[...ROLES, ["", "Individual scopes…"]]} hint="A key never has more rights than whoever created it." />
          {!role && <CheckFields name="scopes" label="Scopes" options={SCOPES} checked={["jobs:read"]} />}
          <NumberField name="days" label="Valid for, in days" value={90} min={1} max={400} />
        </FormDialog>
      )}
    </>
  );
}
