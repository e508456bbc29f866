/** Sessions with budgets: what each has left, live. */
import type { JSX } from "preact";
import type { Remaining } from "../api";
import { Action } from "../actions";
import { ask } from "../client";
import { count, durationText, quoted } from "../format";
import { useLive } from "../live";
import { useLoad } from "../resource";
import { workspace } from "../session";
import { Empty, Loaded } from "../parts/states";
import { ACTIONS, Table, type Column } from "../parts/table";
import { Head } from "../shell";

/** As many as one page asks about, and as one stream follows. */
const SHOWN_MAX = 40;

interface Session {
  id: string;
  remaining: Remaining;
}
interface Found {
  sessions: Session[];
  total: number;
}

export function Sessions(): JSX.Element {
  const found = useLoad<Found>(`${workspace.value} sessions`, read);
  const shown = found.data.value?.sessions ?? [];
  useLive(
    shown.map((one) => `session:${one.id}`),
    (event) => {
      if (event.event === "again") return void found.reload();
      if (event.event !== "metrics") return;
      const before = found.data.peek();
      const sessions = before?.sessions.map((one) => (one.id === event.data.session_id ? { ...one, remaining: event.data.remaining as Remaining } : one));
      if (before && sessions) found.put({ ...before, sessions });
    },
  );
  return (
    <>
      <Head title="Sessions" note="A session limits what its jobs may use in total: tokens, time and cost." />
      <Loaded of={found}>
        {({ sessions, total }) =>
          sessions.length ? (
            <>
              <Table label="Sessions" rows={sessions} rowKey={(one) => one.id} columns={columns(() => void found.reload())} />
              {total > sessions.length && <p class="faint">The first {count(sessions.length)} of {count(total)}.</p>}
            </>
          ) : (
            <Empty title="No session is open">
              <p>Open one with a budget, and name it in the jobs that share the budget:</p>
              <pre class="sample" tabIndex={0}>{`curl -H "Authorization: Bearer $DETENT_KEY" --json '{"tokens": 20000}' ${quoted(`${location.origin}/v1/sessions`)}`}</pre>
            </Empty>
          )
        }
      </Loaded>
    </>
  );
}

async function read(): Promise<Found> {
  const { items } = await ask("GET /v1/sessions");
  const sessions = await Promise.all(
    items.slice(0, SHOWN_MAX).map(async (id) => {
      const one = await ask("GET /v1/sessions/{session_id}", { path: { session_id: id } });
      return { id, remaining: one.remaining };
    }),
  );
  return { sessions, total: items.length };
}

function columns(reload: () => void): Column<Session>[] {
  return [
    { name: "id", head: "Session", kind: "main", cell: (one) => <span class="mono">{one.id}</span> },
    { name: "tokens", head: "Tokens left", kind: "num", short: "tokens left", cell: (one) => left(one.remaining.tokens, count) },
    { name: "time", head: "Time left", kind: "num", short: "time left", cell: (one) => left(one.remaining.time_ms, durationText) },
    { name: "cost", head: "Cost left", kind: "num", short: "cost left", cell: (one) => left(one.remaining.cost, count) },
    {
      name: "actions",
      head: ACTIONS,
      cell: (one) => (
        <Action
          label="Close"
          kind="danger"
          scope="sessions:write"
          line={`curl -X DELETE -H "Authorization: Bearer $DETENT_KEY" ${quoted(`${location.origin}/v1/sessions/${one.id}`)}`}
          ask="Jobs that name it will be refused."
          run={async () => {
            await ask("DELETE /v1/sessions/{session_id}", { path: { session_id: one.id } });
            reload();
            return "Session closed";
          }}
        />
      ),
    },
  ];
}

function left(amount: number | null | undefined, written: (value: number) => string): JSX.Element | string {
  if (amount === null || amount === undefined) return <span class="faint">no limit</span>;
  return amount > 0 ? written(amount) : <b class="tone-bad">{written(amount)}</b>;
}
