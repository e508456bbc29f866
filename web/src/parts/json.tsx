/** A value as text, cut where it is long. Nothing in it becomes markup. */
import type { JSX } from "preact";
import { size } from "../format";
import { Copy } from "./basics";

const PREVIEW_BYTES = 1024 * 1024;

export function Json({ value, label }: { value: unknown; label: string }): JSX.Element {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const cut = text.length > PREVIEW_BYTES;
  return (
    <div class="stack">
      <pre class="json" tabIndex={0} aria-label={label}>
        {cut ? text.slice(0, PREVIEW_BYTES) : text}
      </pre>
      <p class="row faint">
        {cut && `The first ${size(PREVIEW_BYTES)} of ${size(text.length)}.`} <Copy text={text} label={`Copy: ${label}`} />
      </p>
    </div>
  );
}
