/** Whether the history holds: what was proved, what was not, and how to check it without this server. */
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Head as LedgerHead, Verified } from "../api";
import { Action } from "../actions";
import { addressOf, ask } from "../client";
import { count, counted } from "../format";
import { useAsk, type Resource } from "../resource";
import { may } from "../session";
import { Copy, CopyLine } from "../parts/basics";
import { Empty, Loaded } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { Time } from "../parts/time";
import { Head } from "../shell";

const LOOK_MS = 1_000;

export function Verify(): JSX.Element {
  const audits = may("server:audit");
  const found = useAsk(audits ? "GET /v1/ledger/verify" : null);
  const head = useAsk(may("ledger:read") ? "GET /v1/ledger/head" : null);
  useWhileRunning(found);
  return (
    <>
      <Head title="Verify" note="Checks the signatures, chains, trees, transitions and evidence of the whole ledger, in a separate process.">
        {audits && (
          <>
            <Action
              label="Verify the ledger"
              kind="main"
              scope="server:audit"
              line="detent verify"
              run={async () => {
                found.put(await ask("POST /v1/ledger/verify", { body: {} }));
                return "Verification started";
              }}
            />
            <a class="button" href={addressOf("GET /v1/ledger/bundle")} download="ledger.detent">
              Download the bundle
            </a>
          </>
        )}
      </Head>
      {audits ? (
        <Loaded of={found}>{(verified) => <Result verified={verified} head={head.data.value} />}</Loaded>
      ) : (
        <Empty title="Your credential cannot verify the whole ledger">
          <p>That needs the scope server:audit. You can still verify a single run on its page.</p>
        </Empty>
      )}
      {head.data.value && <TreeHead head={head.data.value} />}
    </>
  );
}

/** Ask again while a verification runs: it tells no events. */
export function useWhileRunning(found: Resource<Verified>): void {
  const running = found.data.value?.state === "running";
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => void found.reload(), LOOK_MS);
    return () => clearInterval(timer);
  }, [running, found]);
}

/** What a verification found; also for one run. */
export function Result({ verified, head }: { verified: Verified; head?: LedgerHead | undefined }): JSX.Element {
  if (verified.state === "never") {
    return (
      <Empty title="Not verified since the server started">
        <p class="faint">Start a verification, or check a bundle on another machine, which does not depend on trusting this server.</p>
      </Empty>
    );
  }
  return (
    <>
      <section class="card">
        <h2>
          <Verdict verified={verified} />
        </h2>
        <p>
          {verified.state === "running" ? "Started " : "Checked "}
          <Time of={verified.ended_at ?? verified.started_at ?? null} />
          {head && verified.state === "done" && <span class="faint">; the ledger has {counted(head.size, "batch", "batches")} now</span>}
        </p>
        {verified.error && <p class="tone-bad">{verified.error}</p>}
        <Counts of={verified} />
        {verified.root && (
          <p>
            Root <code>{verified.root}</code> <Copy text={verified.root} label="Copy the root digest" />
          </p>
        )}
        <CopyLine text={`detent verify FILE.detent --root ${verified.root ?? "sha256:…"}`} />
      </section>
      {(verified.findings?.length ?? 0) > 0 && <Findings of={verified} />}
      <div class="pair">
        <Claims title="Proved" lines={verified.proved ?? []} />
        <Claims title="Not proved" lines={verified.not_proved ?? []} />
      </div>
    </>
  );
}

function Verdict({ verified }: { verified: Verified }): JSX.Element {
  if (verified.state === "running") return <StatusBadge state="running" text="Verifying" />;
  if (verified.ok) return <StatusBadge state="succeeded" text="Verified" />;
  const total = verified.findings_total ?? 0;
  return <StatusBadge state="failed" text={verified.state === "failed" ? "Could not be checked" : counted(total, "finding")} />;
}

function Counts({ of }: { of: Verified }): JSX.Element | null {
  const entries = Object.entries(of.counts ?? {}).filter(([, value]) => typeof value === "number");
  if (!entries.length) return null;
  return (
    <dl class="facts">
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name.replaceAll("_", " ")}</dt>
          <dd class="num">{count(value as number)}</dd>
        </div>
      ))}
    </dl>
  );
}

function Claims({ title, lines }: { title: string; lines: string[] }): JSX.Element {
  return (
    <section class="card">
      <h2>{title}</h2>
      {lines.length ? (
        <ul class="plain">
          {lines.map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      ) : (
        <p class="faint">Nothing yet.</p>
      )}
    </section>
  );
}

type Finding = NonNullable<Verified["findings"]>[number];
const FINDINGS: Column<Finding & { place_in_list: number }>[] = [
  { name: "code", head: "Finding", kind: "main", cell: (one) => <code class="tone-bad">{one.code}</code> },
  { name: "place", head: "Where", short: "where", cell: (one) => one.place ?? "–" },
  { name: "message", head: "What", kind: "grow", cell: (one) => <span title={one.meaning}>{one.message}</span> },
];

function Findings({ of }: { of: Verified }): JSX.Element {
  const rows = (of.findings ?? []).map((one, place_in_list) => ({ ...one, place_in_list }));
  return (
    <section>
      <h2>Findings</h2>
      <Table label="Findings" rows={rows} rowKey={(one) => String(one.place_in_list)} columns={FINDINGS} />
      {(of.findings_total ?? 0) > rows.length && <p class="faint">The first {count(rows.length)} of {count(of.findings_total ?? 0)}.</p>}
    </section>
  );
}

/** The newest signed tree head: kept elsewhere, it shows any later change of what it covers. */
function TreeHead({ head }: { head: LedgerHead }): JSX.Element {
  return (
    <section class="card">
      <h2>Tree head</h2>
      <p>
        {counted(head.size, "batch", "batches")}, {counted(head.records, "record")}, epoch {head.epoch}
      </p>
      {head.note ? (
        <>
          <p class="faint">Keep this note on another machine. If the ledger ever stops containing what the note signs, it was changed or rolled back.</p>
          <div class="row">
            <pre class="sample" tabIndex={0}>{head.note}</pre>
            <Copy text={head.note} label="Copy the tree head" />
          </div>
          <CopyLine text="detent verify FILE.detent --root sha256:… --head kept.note" />
        </>
      ) : (
        <p class="faint">No tree head has been signed yet.</p>
      )}
    </section>
  );
}
