/** What a webhook was sent: how often, what its receiver answered, and when it is tried again. */
import type { JSX } from "preact";
import type { WebhookDelivery } from "../api";
import { quoted } from "../format";
import { useList } from "../lists";
import { useLive } from "../live";
import { useAsk } from "../resource";
import { go, href } from "../router";
import { useBack } from "../parts/basics";
import { Fresh, ListFoot } from "../parts/listfoot";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { Time } from "../parts/time";
import { Head } from "../shell";
import { hookAddress, TestHook } from "./webhooks";

export function Deliveries({ id }: { id: string }): JSX.Element {
  const path = { hook_id: id };
  const hook = useAsk("GET /v1/webhooks/{hook_id}", { path });
  useLive(["audit"], (event) => {
    if (event.event === "operated" || event.event === "again") void hook.reload();
  });
  const list = useList<"GET /v1/webhooks/{hook_id}/deliveries", WebhookDelivery>("GET /v1/webhooks/{hook_id}/deliveries", {}, (one) => one.job_id, ["jobs"], { path });
  const above = href("settings", "webhooks");
  useBack(above, go);
  const known = hook.data.value;
  return (
    <>
      <Head
        title="Deliveries"
        above={<a href={above}>Webhooks</a>}
        badge={known && <StatusBadge state={known.state} text={known.state} />}
        note={
          <>
            <code>{known?.url ?? id}</code>
            {known?.reason && <> is off: {known.reason}</>}
          </>
        }
      >
        <TestHook id={id} />
      </Head>
      <Fresh list={list} noun="delivery" plural="deliveries" />
      <Loaded of={list.resource}>
        {() =>
          list.rows.length ? (
            <>
              <Table label="Deliveries" rows={list.rows} rowKey={(one) => one.job_id} columns={COLUMNS} href={(one) => href("jobs", one.job_id)} />
              <ListFoot list={list} line={`curl -H "Authorization: Bearer $DETENT_KEY" ${quoted(`${hookAddress(id)}/deliveries`)}`} />
            </>
          ) : (
            <Empty title="Nothing has been sent yet">
              <p class="faint">Events appear here once they are sent. To try it now, send a test.</p>
            </Empty>
          )
        }
      </Loaded>
    </>
  );
}

const COLUMNS: Column<WebhookDelivery>[] = [
  { name: "state", head: "Status", cell: (one) => <StatusBadge state={one.state} /> },
  { name: "event", head: "Event", kind: "main", cell: (one) => <a href={href("jobs", one.job_id)}>{one.event ?? "erased"}</a> },
  { name: "sent", head: "Sent", kind: "num", short: "sent", cell: (one) => `${one.attempts} of ${one.attempts_max}` },
  {
    name: "answer",
    head: "Last answer",
    kind: "grow",
    cell: (one) => (one.last_answer ? <span class="ellipsis" title={one.last_answer}>{one.last_answer}</span> : <span class="faint">none yet</span>),
  },
  { name: "next", head: "Next try", kind: "num", short: "next try", cell: (one) => (one.state === "queued" ? "when a worker is free" : <Time of={one.next_at} />) },
  { name: "submitted", head: "Submitted", kind: "num", short: "submitted", cell: (one) => <Time of={one.submitted_at} /> },
  { name: "changed", head: "Changed", kind: "num", short: "changed", cell: (one) => <Time of={one.changed_at} /> },
];
