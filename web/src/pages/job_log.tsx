/** The log of a job: attempt, stream, search over the whole of it in the server, follow, wrap, a link for every line. */
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Attempt, JobDetail } from "../api";
import { fetched } from "../client";
import { Log, type StreamName, WHOLE_BYTES } from "../log";
import { at, setQuery } from "../router";
import { count, counted, quoted, size } from "../format";
import { useLive } from "../live";
import { useLoad } from "../resource";
import { workspace } from "../session";
import { Button, Choice, CopyLine, Filter } from "../parts/basics";
import { LogView, WRAP_MAX } from "../parts/logview";
import { Loaded, ProblemBox } from "../parts/states";
import { spans } from "../parts/ansi";

const WINDOW_STEP = 8 * 1024 * 1024;
const RUNNING_READ_MS = 2_000;

export function JobLog({ job, attempts }: { job: JobDetail; attempts: Attempt[] }): JSX.Element {
  const { query } = at.value;
  const last = attempts.at(-1);
  const number = Number(query.get("attempt")) || last?.attempt || 0;
  const attempt = attempts.find((one) => one.attempt === number);
  // Where a failure says why, and where anything was said at all.
  const first: StreamName = attempt?.stderr_bytes && (job.state === "failed" || !attempt.stdout_bytes) ? "stderr" : "stdout";
  const stream = (query.get("stream") as StreamName | null) ?? first;
  const known = attempt && !attempt.running ? attempt[`${stream}_bytes`] : 0;
  const begin = query.get("from");
  const key = `${job.job_id} ${number} ${stream} ${begin ?? ""} ${attempt?.running ?? false}`;
  const log = useMemo(() => new Log({ job: job.job_id, attempt: number, stream }, known, begin === null ? null : Number(begin)), [key]);
  useEffect(() => () => log.end(), [log]);
  const running = !!attempt?.running || (!attempts.length && job.state === "running");
  useLive(running ? [`log:${job.job_id}`] : [], (event) => {
    const told = event.data;
    if (event.event === "again") void log.read();
    else if (event.event === "log" && told.job_id === job.job_id && told.stream === stream && told.attempt === number) log.told(Number(told.offset), String(told.text));
  });
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => void log.read(), RUNNING_READ_MS); // What no event told: streams may be cut.
    return () => clearInterval(timer);
  }, [running, log]);
  const [follow, setFollow] = useState(running || job.state === "failed");
  const [wrap, setWrap] = useState(false);
  const find = query.get("find") ?? "";
  return (
    <>
      <div class="logbar">
        {attempts.length > 1 && <Choice param="attempt" label="Attempt" first={String(last?.attempt ?? "")} options={attempts.slice(-8).map((one): [string, string] => [String(one.attempt), `Attempt ${one.attempt}`])} />}
        <Choice
          param="stream"
          label="Stream"
          first={first}
          options={(["stdout", "stderr"] as const).map((one): [string, string] => [one, attempt ? `${one} ${size(attempt[`${one}_bytes`])}` : one])}
        />
        <Filter param="find" label="Find" placeholder="in the whole log" />
        <Button pressed={follow} onClick={() => setFollow(!follow)}>
          Follow
        </Button>
        <Button pressed={wrap} why={log.lines.value.length > WRAP_MAX ? `A log of more than ${count(WRAP_MAX)} lines is not wrapped` : undefined} onClick={() => setWrap(!wrap)}>
          Wrap
        </Button>
        <span class="faint" role="status">
          {counted(log.lines.value.length, "line")}
          {log.truncated.value && ", cut off at the size limit"}
        </span>
      </div>
      {known > WHOLE_BYTES && <Windows log={log} known={known} />}
      {find && <Found job={job.job_id} attempt={number} stream={stream} find={find} />}
      {log.problem.value && !log.lines.value.length ? (
        <ProblemBox problem={log.problem.value} again={() => void log.read()} />
      ) : log.lines.value.length ? (
        <LogView log={log} follow={follow} wrap={wrap} mark={find} label={`Log of ${stream}`} />
      ) : (
        !log.loading.value && <p class="faint">{nothing(log.content.value, running, stream)}</p>
      )}
      <CopyLine text={`detent logs ${quoted(job.job_id)}${running ? " -f" : ""}`} />
    </>
  );
}

/** Why there is nothing to see: three different things. */
function nothing(content: string, running: boolean, stream: string): string {
  if (content === "erased") return "Its output was erased. The ledger still shows that it ran.";
  if (content === "absent" || content === "damaged") return `Its output is ${content === "absent" ? "missing" : content} in this home.`;
  return running ? `Nothing on ${stream} yet.` : `Nothing was written to ${stream}.`;
}

/** Moves through a log that is too large to be here whole. */
function Windows({ log, known }: { log: Log; known: number }): JSX.Element {
  const to = (offset: number) => setQuery({ from: String(Math.max(0, Math.min(known - 1, offset))) });
  return (
    <div class="row">
      <span class="soft">
        {size(known)} in total; showing from {size(log.from.value)}.
      </span>
      <Button onClick={() => to(0)}>Beginning</Button>
      <Button onClick={() => to(log.from.value - WINDOW_STEP)}>Earlier</Button>
      <Button onClick={() => to(log.from.value + WINDOW_STEP)}>Later</Button>
      <Button onClick={() => setQuery({ from: undefined })}>End</Button>
    </div>
  );
}

/** Lines that have the text, found by the server in the whole log. */
function Found({ job, attempt, stream, find }: { job: string; attempt: number; stream: StreamName; find: string }): JSX.Element {
  const found = useLoad(`${workspace.value} find ${job} ${attempt} ${stream} ${find}`, async () => {
    const answer = await fetched("GET /v1/jobs/{job_id}/logs", {
      path: { job_id: job },
      query: { ...(attempt > 0 && { attempt }), stream, q: find },
      headers: { Accept: "text/plain" },
    });
    const offsets = (answer.headers.get("detent-log-offsets") ?? "").split(",").filter(Boolean);
    const lines = (await answer.text()).split("\n");
    return { offsets, lines, more: answer.headers.get("detent-log-end") === "false" };
  });
  return (
    <Loaded of={found} lines={2}>
      {(all) => (
        <section aria-label="Lines found" class="stack">
          <p class="soft" role="status">
            {counted(all.offsets.length, "line")} found{all.more && all.offsets.length >= 500 ? ", and there are more" : ""}
          </p>
          {all.offsets.length > 0 && (
            <div class="found">
              {all.offsets.slice(0, 200).map((offset, place) => (
                <button key={offset} type="button" onClick={() => void jump(job, attempt, stream, Number(offset))}>
                  {spans(all.lines[place] ?? "")
                    .map((one) => one.text)
                    .join("")
                    .slice(0, 300)}
                </button>
              ))}
            </div>
          )}
        </section>
      )}
    </Loaded>
  );
}

/** Go to the line at an offset: its number is the count of lines before it. */
async function jump(job: string, attempt: number, stream: StreamName, offset: number): Promise<void> {
  if (offset > WHOLE_BYTES) return setQuery({ from: String(offset) });
  let line = 1;
  for (let at = 0; at < offset; ) {
    const limit = Math.min(1024 * 1024, offset - at);
    const answer = await fetched("GET /v1/jobs/{job_id}/logs", { path: { job_id: job }, query: { ...(attempt > 0 && { attempt }), stream, offset: at, limit }, headers: { Accept: "text/plain" } });
    const data = new Uint8Array(await answer.arrayBuffer());
    if (!data.length) break;
    for (const byte of data) if (byte === 10) line += 1;
    at += data.length;
  }
  setQuery({ from: undefined }, { hash: `L${line}` });
}
