/** What a job's page has beside the log: why, input, result, files, records. Everything that a job or user wrote is shown as text. */
import type { ComponentChildren, JSX } from "preact";
import type { Artifact, JobDetail } from "../api";
import { ask } from "../client";
import { useAsk, useLoad } from "../resource";
import { counted, quoted, size } from "../format";
import { workspace } from "../session";
import { Copy, CopyLine } from "../parts/basics";
import { Json } from "../parts/json";
import { RecordList } from "../parts/records";
import { Empty, Loaded } from "../parts/states";
import { Time } from "../parts/time";
import { Lines } from "./run_steps";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** The story of a job, sentence by sentence. `version` asks again when the job has moved on. */
export function JobWhy({ id, version }: { id: string; version: number }): JSX.Element {
  const why = useLoad(`${workspace.value} why ${id} ${version}`, () => ask("GET /v1/jobs/{job_id}/explain", { path: { job_id: id } }));
  return (
    <Loaded of={why} lines={6}>
      {(found) => (
        <>
          <section class="card">
            <h2>Now</h2>
            <Lines lines={found.now} />
            {found.ahead_total > 0 && <p class="soft">{counted(found.ahead_total, "job")} ahead of it in the queue.</p>}
            {sentences(found.reuse).length > 0 && (
              <>
                <h3>Why it ran</h3>
                <Lines lines={sentences(found.reuse)} />
              </>
            )}
          </section>
          <section class="stack">
            <h2>How it got here</h2>
            <ol class="story">
              {found.story.map((one, place) => (
                <Event key={place} one={one} />
              ))}
            </ol>
          </section>
          <CopyLine text={`detent explain ${quoted(id)}`} />
        </>
      )}
    </Loaded>
  );
}

function Event({ one }: { one: unknown }): JSX.Element | null {
  if (!one || typeof one !== "object") return null;
  const { at, what, why, attempt } = one as Record<string, unknown>;
  return (
    <li>
      <span>
        <b>{String(what).replace("->", "→")}</b> {typeof attempt === "number" && <span class="faint">attempt {attempt}</span>} {typeof at === "string" && <Time of={at} mode="clock" />}
      </span>
      {Array.isArray(why) && <Lines lines={why.map(String)} />}
    </li>
  );
}

function sentences(value: unknown): string[] {
  const lines = value && typeof value === "object" && "lines" in value ? value.lines : [];
  return Array.isArray(lines) ? lines.map(String) : [];
}

/** What it was asked to do, and what its key is made of. */
export function Input({ id }: { id: string }): JSX.Element {
  const shown = useAsk("GET /v1/pages/show", { path: {}, query: { id, what: "job" } });
  return (
    <Loaded of={shown} lines={5}>
      {(page) => {
        const order = field(page.document, "order") ?? field(page.document, "payload");
        return order && typeof order === "object" ? <Order order={order as Record<string, unknown>} /> : <Empty title="Its input was erased" />;
      }}
    </Loaded>
  );
}

const ORDER_TEXTS = ["kind", "target", "command", "shell", "base", "pool"];

function Order({ order }: { order: Record<string, unknown> }): JSX.Element {
  const ingredients = order.ingredients && typeof order.ingredients === "object" ? Object.entries(order.ingredients) : [];
  const values = Object.fromEntries(Object.entries(order).filter(([name]) => !["ingredients", "action", "run_id", "step", "index", "label", ...ORDER_TEXTS].includes(name)));
  return (
    <>
      <dl class="facts">
        {ORDER_TEXTS.filter((name) => typeof order[name] === "string").map((name) => (
          <Named key={name} name={name}>
            <code>{String(order[name])}</code>
          </Named>
        ))}
      </dl>
      {Object.keys(values).length > 0 && <Json value={values} label="Arguments" />}
      {ingredients.length > 0 && (
        <section class="stack">
          <h2>What its reuse key is made from</h2>
          <dl class="facts">
            {ingredients.map(([name, digest]) => (
              <Named key={name} name={name}>
                <code>{String(digest)}</code>
              </Named>
            ))}
          </dl>
        </section>
      )}
    </>
  );
}

function Named({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function field(document: unknown, name: string): unknown {
  return document && typeof document === "object" && name in document ? (document as Record<string, unknown>)[name] : undefined;
}

export function Result({ detail }: { detail: JobDetail }): JSX.Element {
  if (detail.result !== null) return <Json value={detail.result} label="Result" />;
  if (detail.value_digest === null) {
    return <Empty title={detail.state === "succeeded" ? "It returned nothing" : "It has no result"}>{detail.error && <p class="soft">{detail.error.message}</p>}</Empty>;
  }
  return (
    <>
      <p class="row soft">
        <code>{detail.value_digest}</code> <Copy text={detail.value_digest} label="Copy the digest" />
      </p>
      <Json value={detail.value} label="Value" />
      <CopyLine text={`detent show ${quoted(detail.job_id)}`} />
    </>
  );
}

/** The files of a job: pictures are shown, all else is offered as a download. */
export function Artifacts({ id, version }: { id: string; version: number }): JSX.Element {
  const files = useLoad(`${workspace.value} files ${id} ${version}`, () => ask("GET /v1/jobs/{job_id}/artifacts", { path: { job_id: id } }));
  return (
    <Loaded of={files} lines={3}>
      {(found) =>
        found.items.length ? (
          <ul class="plain stack">
            {found.items.map((one) => (
              <File key={one.artifact_id} one={one} />
            ))}
          </ul>
        ) : (
          <Empty title="It produced no files" />
        )
      }
    </Loaded>
  );
}

function File({ one }: { one: Artifact }): JSX.Element {
  const name = String(field(one.metadata, "name") ?? one.artifact_id);
  const url = new URL(one.url, location.origin);
  const here = url.origin === location.origin; // Another host is never asked: the policy of the page forbids it.
  return (
    <li class="card">
      <p class="row">
        <a href={url.href} download={name.split("/").at(-1)}>
          {name}
        </a>
        <span class="faint">
          {size(one.size_bytes)}, {one.content_type}
        </span>
      </p>
      {here && PICTURES.includes(one.content_type) && <img class="preview" src={url.href} alt={`Preview of ${name}`} loading="lazy" />}
      <p class="faint mono">{one.digest}</p>
    </li>
  );
}

/** A job's records on the ledger, as they were signed. */
export function Records({ id, version }: { id: string; version: number }): JSX.Element {
  const records = useLoad(`${workspace.value} records ${id} ${version}`, () => ask("GET /v1/jobs/{job_id}/records", { path: { job_id: id } }));
  return (
    <Loaded of={records} lines={6}>
      {(found) => (
        <>
          <RecordList records={found.items} />
          <CopyLine text={`detent show ${quoted(id)}`} />
        </>
      )}
    </Loaded>
  );
}
