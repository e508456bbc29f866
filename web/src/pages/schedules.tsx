/** Contracts that run by themselves: when next, how the last one went, and what was missed. */
import type { JSX } from "preact";
import type { ScheduleShown } from "../api";
import { Action } from "../actions";
import { ask } from "../client";
import { counted, quoted } from "../format";
import { useList } from "../lists";
import { useLive } from "../live";
import { useAsk } from "../resource";
import { at, go, href } from "../router";
import { Button, Choice } from "../parts/basics";
import { ListFoot } from "../parts/listfoot";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { ACTIONS, Table, type Column } from "../parts/table";
import { Time } from "../parts/time";
import { Head } from "../shell";

type State = "active" | "paused";

export function Schedules(): JSX.Element {
  const one = at.value.query.get("schedule");
  return one ? <OneSchedule id={one} /> : <AllSchedules />;
}

/** The schedule that started a run. */
function OneSchedule({ id }: { id: string }): JSX.Element {
  const found = useAsk("GET /v1/schedules/{schedule_id}", { path: { schedule_id: id } });
  useLive(["runs"], (event) => {
    if (event.event === "run" || event.event === "again") void found.reload();
  });
  return (
    <>
      <Head title="Schedules" />
      <p>
        <a href={href("schedules")}>Show all schedules</a>
      </p>
      <Loaded of={found}>{(shown) => <Rows rows={[shown]} reload={() => void found.reload()} />}</Loaded>
    </>
  );
}

function Rows({ rows, reload }: { rows: ScheduleShown[]; reload: () => void }): JSX.Element {
  return <Table label="Schedules" rows={rows} rowKey={(one) => one.schedule_id} columns={columns(reload)} below={(one) => (one.failure || one.missed) && <Trouble of={one} />} />;
}

function AllSchedules(): JSX.Element {
  const state = at.value.query.get("state") as State | null;
  const list = useList<"GET /v1/schedules", ScheduleShown>("GET /v1/schedules", state ? { state } : {}, (one) => one.schedule_id, ["runs", "audit"]);
  const reload = () => void list.resource.reload();
  return (
    <>
      <Head title="Schedules" />
      <div class="filters">
        <Choice
          param="state"
          label="State"
          first=""
          options={[
            ["", "All"],
            ["active", "Active"],
            ["paused", "Paused"],
          ]}
        />
      </div>
      <Loaded of={list.resource}>
        {() =>
          list.rows.length ? (
            <>
              <Rows rows={list.rows} reload={reload} />
              <ListFoot list={list} line={`detent schedules list --connect ${quoted(location.origin)}`} />
            </>
          ) : state ? (
            <Empty title={`No schedule is ${state}`}>
              <p>
                <Button onClick={() => go(href("schedules"))}>Show all schedules</Button>
              </p>
            </Empty>
          ) : (
            <Empty title="Nothing is scheduled">
              <p>Add a schedule to a contract, and send it to the server:</p>
              <pre class="sample" tabIndex={0}>{`name: nightly
schedule: {cron: "0 2 * * *", timezone: Europe/Oslo}
steps:
  - id: report
    run: {shell: "make report"}`}</pre>
              <pre class="sample" tabIndex={0}>{`detent schedules create nightly.yaml --connect ${quoted(location.origin)}`}</pre>
            </Empty>
          )
        }
      </Loaded>
    </>
  );
}

function columns(reload: () => void): Column<ScheduleShown>[] {
  return [
    { name: "state", head: "State", cell: (one) => <StatusBadge state={one.state} /> },
    { name: "name", head: "Name", kind: "main", cell: (one) => <a href={href("runs", { name: one.name })}>{one.name}</a> },
    { name: "when", head: "When", kind: "grow", cell: (one) => <span class="ellipsis" title={one.when}>{one.when}</span> },
    { name: "next", head: "Next", kind: "num", short: "next", cell: (one) => <span title={one.upcoming.join("\n")}><Time of={one.next_at} /></span> },
    { name: "last", head: "Last", short: "last", cell: (one) => (one.last ? <a href={href("runs", one.last.run_id)}><StatusBadge state={one.last.status} /></a> : <span class="faint">none yet</span>) },
    { name: "started", head: "Started", kind: "num", cell: (one) => (one.last ? <Time of={one.last.started_at} /> : <span class="faint">–</span>) },
    { name: "actions", head: ACTIONS, cell: (one) => <Actions of={one} reload={reload} /> },
  ];
}

/** What went wrong: runs that could not be started, and occurrences that passed without one. */
function Trouble({ of }: { of: ScheduleShown }): JSX.Element {
  return (
    <p class="tone-wait">
      {of.failure && (
        <>
          Could not start: <code>{of.failure.code}</code> {of.failure.reason}{" "}
        </>
      )}
      {of.missed && (
        <>
          Missed {counted(of.missed.count, "occurrence")}, the last <Time of={of.missed.last} />.
        </>
      )}
    </p>
  );
}

function Actions({ of, reload }: { of: ScheduleShown; reload: () => void }): JSX.Element {
  const path = { schedule_id: of.schedule_id };
  const line = (verb: string) => `detent schedules ${verb} ${of.schedule_id} --connect ${quoted(location.origin)}`;
  return (
    <span class="buttons">
      {of.state === "active" ? (
        <Action
          label="Pause"
          scope="runs:write"
          line={line("pause")}
          run={async () => {
            await ask("POST /v1/schedules/{schedule_id}/pause", { path, body: {} });
            reload();
            return `${of.name} is paused`;
          }}
        />
      ) : (
        <Action
          label="Resume"
          scope="runs:write"
          line={line("resume")}
          run={async () => {
            await ask("POST /v1/schedules/{schedule_id}/resume", { path, body: {} });
            reload();
            return `${of.name} is active again`;
          }}
        />
      )}
      <Action
        label="Delete"
        kind="danger"
        scope="runs:write"
        line={line("delete")}
        ask={`${of.name} stops starting runs. Runs that it has started are kept.`}
        run={async () => {
          await ask("DELETE /v1/schedules/{schedule_id}", { path });
          reload();
          return "Schedule deleted";
        }}
      />
    </span>
  );
}
