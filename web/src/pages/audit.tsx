/** What operators did: each action is a signed record, with its proof one click away. */
import type { ComponentChildren, JSX } from "preact";
import type { ActionProof, ActionShown } from "../api";
import type { Asked } from "../client";
import { quoted } from "../format";
import { useList } from "../lists";
import { useAsk } from "../resource";
import { at, go, href } from "../router";
import { may } from "../session";
import { Button, Choice, Copy, CopyLine, Dialog, Filter } from "../parts/basics";
import { Fresh, ListFoot } from "../parts/listfoot";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { Time } from "../parts/time";
import { Head } from "../shell";
import { sinceOf } from "./runs";

type Query = NonNullable<Asked<"GET /v1/audit">["query"]>;
const SINCE: [string, string][] = [
  ["", "any time"],
  ["24h", "24 h"],
  ["7d", "7 d"],
  ["30d", "30 d"],
];
const ACTION = /^[a-z]+(\.[a-z]+)?$/;

export function Audit(): JSX.Element {
  const { query } = at.value;
  const since = sinceOf(query.get("since"));
  const action = query.get("action") ?? "";
  const asked: Query = {};
  if (ACTION.test(action)) asked.action = action as NonNullable<Query["action"]>;
  for (const name of ["principal", "object"] as const) {
    const said = query.get(name);
    if (said) asked[name] = said;
  }
  if (since) asked.since = since;
  if (query.get("of") === "server") asked.server = true;
  const list = useList<"GET /v1/audit", ActionShown>("GET /v1/audit", asked, (one) => one.record, ["audit"]);
  const record = query.get("record");
  return (
    <>
      <Head title="Audit" note="Every operator action is recorded on the ledger, in the same commit as its effect." />
      <div class="filters">
        {may("server:admin") && (
          <Choice
            param="of"
            label="Whose actions"
            first=""
            options={[
              ["", "This workspace"],
              ["server", "The server"],
            ]}
          />
        )}
        <Filter param="action" label="Action" placeholder="run.cancel" />
        <Filter param="principal" label="By" placeholder="p_…" />
        <Filter param="object" label="Object" placeholder="whole id" />
        <Choice param="since" label="Within" first="" options={SINCE} />
      </div>
      <Fresh list={list} noun="action" />
      <Loaded of={list.resource} lines={10}>
        {() =>
          list.rows.length ? (
            <>
              <Table label="Actions" rows={list.rows} rowKey={(one) => one.record} columns={COLUMNS} onOpen={(one) => show(one.record)} current={record ?? undefined} />
              <ListFoot list={list} line={`curl -H "Authorization: Bearer $DETENT_KEY" ${quoted(`${location.origin}/v1/audit`)}`} />
            </>
          ) : Object.keys(asked).length ? (
            <Empty title="No action matches">
              <p>
                <Button onClick={() => go(href("audit"))}>Show all actions</Button>
              </p>
            </Empty>
          ) : (
            <Empty title="No operator has done anything here yet">
              <p class="faint">Logins, keys, cancellations, retries, exports and refused attempts appear here.</p>
            </Empty>
          )
        }
      </Loaded>
      {record && <Proof record={record} onClose={() => show(undefined)} />}
    </>
  );
}

function show(record: string | undefined): void {
  const query = new URLSearchParams(location.search);
  if (record) query.set("record", record);
  else query.delete("record");
  go(`${location.pathname}${query.size ? `?${query}` : ""}`, { replace: true });
}

const COLUMNS: Column<ActionShown>[] = [
  { name: "at", head: "When", kind: "num", cell: (one) => <Time of={one.at} /> },
  { name: "who", head: "By", short: "by", cell: (one) => <span title={`${one.principal}, credential ${one.credential}`}>{one.name ?? one.principal}</span> },
  { name: "action", head: "Action", kind: "main", cell: (one) => <code>{one.action}</code> },
  { name: "object", head: "Object", kind: "grow", cell: (one) => <ObjectLink of={one} /> },
  { name: "outcome", head: "Outcome", cell: (one) => (one.outcome === "OK" ? <StatusBadge state="succeeded" text="done" /> : <StatusBadge state="failed" text={one.outcome} />) },
  { name: "signed", head: "Signed by", short: "signed by", cell: (one) => (one.signed_by_operator ? "the operator" : <span class="faint">the server</span>) },
  { name: "batch", head: "Batch", kind: "num", short: "batch", cell: (one) => <button type="button" class="button quiet" aria-label={`Proof of record ${one.record}`} onClick={() => show(one.record)}>{one.batch.toLocaleString("en-US")}</button> },
];

function ObjectLink({ of }: { of: ActionShown }): JSX.Element {
  const text = of.object_id;
  if (of.object_kind === "run") return <a class="mono ellipsis" href={href("runs", text)}>{text}</a>;
  if (of.object_kind === "job") return <a class="mono ellipsis" href={href("jobs", text)}>{text}</a>;
  return <span class="mono ellipsis" title={`${of.object_kind} ${text}`}>{text}</span>;
}

function Proof({ record, onClose }: { record: string; onClose: () => void }): JSX.Element {
  const proof = useAsk("GET /v1/audit/{record}", { path: { record } });
  return (
    <Dialog title={`Record ${record}`} onClose={onClose} wide>
      <Loaded of={proof}>{(found) => <Proved found={found} />}</Loaded>
    </Dialog>
  );
}

function Proved({ found }: { found: ActionProof }): JSX.Element {
  const { action } = found;
  return (
    <>
      <dl class="facts">
        <Fact name="Action">{action.action}</Fact>
        <Fact name="When"><Time of={action.at} mode="clock" /></Fact>
        <Fact name="By">{action.name ?? action.principal}</Fact>
        <Fact name="Credential">{action.credential}</Fact>
        <Fact name="Object">{action.object_kind} {action.object_id}</Fact>
        <Fact name="Outcome">{action.outcome}</Fact>
        {action.reason && <Fact name="Reason">{action.reason}</Fact>}
        {action.request_id && <Fact name="Request">{action.request_id}</Fact>}
      </dl>
      {Object.keys(action.parameters).length > 0 && <pre class="sample" tabIndex={0}>{JSON.stringify(action.parameters, null, 2)}</pre>}
      <h3>Proof</h3>
      <p class="faint">
        The record is part of batch {action.batch.toLocaleString("en-US")}, which the owner signed; {found.path.length} hashes lead from it to the root of the tree of {found.size.toLocaleString("en-US")} batches.
      </p>
      <p>
        Root <code>{found.root}</code> <Copy text={found.root} label="Copy the root of the tree" />
      </p>
      <p>
        <Button onClick={() => save(found)}>Download the proof</Button>
      </p>
      <CopyLine text={`curl -H "Authorization: Bearer $DETENT_KEY" ${quoted(`${location.origin}/v1/audit/${action.record}`)}`} />
    </>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** The proof as a file, made here: it holds what the dialog shows, and the bytes. */
function save(found: ActionProof): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(found, null, 2)], { type: "application/json" }));
  link.download = `record-${found.action.record.replace(":", "-")}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
}
