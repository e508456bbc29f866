/** Loading, empty, failed and offline are four different things, and look like it. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Problem } from "../problem";
import type { Resource } from "../resource";
import { sentence } from "../format";
import { Button, Copy } from "./basics";
import { Icon } from "./status";

const SKELETON_AFTER_MS = 150;

/** Grey lines, after a moment: an answer that comes at once makes nothing flicker. */
export function Skeleton({ lines = 6 }: { lines?: number }): JSX.Element | null {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), SKELETON_AFTER_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {shown && Array.from({ length: lines }, (_, place) => <div key={place} class={`bar w${place % 4}`} />)}
    </div>
  );
}

/** Why something could not be shown, and what to do. */
export function ProblemBox({ problem, again }: { problem: Problem; again?: (() => void) | undefined }): JSX.Element {
  const { title, detail, hint, instance, code, errors } = problem.document;
  return (
    <section class="problem" role="alert">
      <h2>
        <Icon name="warn" /> {sentence(title)}
      </h2>
      <p>{sentence(detail)}</p>
      {errors && errors.length > 1 && (
        <ul>
          {errors.map((one) => (
            <li key={one.path}>
              <code>{one.path}</code> {one.message}
            </li>
          ))}
        </ul>
      )}
      {hint && <p class="hint">{sentence(hint)}</p>}
      <div class="row">
        {again && <Button onClick={again}>Try again</Button>}
        {problem.document.type === `/problems/${code}` && !problem.offline ? (
          <a class="faint" href={`/problems/${code}`} target="_blank" rel="noreferrer">
            {code}
          </a>
        ) : (
          <span class="faint">{code}</span>
        )}
        {instance && (
          <span class="faint">
            request <code>{instance}</code> <Copy text={instance} label="Copy the request id" />
          </span>
        )}
      </div>
    </section>
  );
}

/** Nothing is there, and that is fine: says so, and how to change it. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <section class="empty">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/**
 * What a resource has: its content, a skeleton, or its problem. Data stays while the server is away.
 * `title` is for the resource that a whole page is about: the page then has a heading before it has anything else.
 */
export function Loaded<T>({ of, children, lines, title }: { of: Resource<T>; children: (data: T) => ComponentChildren; lines?: number; title?: string }): JSX.Element {
  const data = of.data.value;
  const problem = of.problem.value;
  if (data !== undefined) return <>{children(data)}</>;
  return (
    <>
      {title && <h1 class="mono">{title}</h1>}
      {problem ? <ProblemBox problem={problem} again={() => void of.reload()} /> : <Skeleton lines={lines ?? 6} />}
    </>
  );
}
