/** Moments and lengths of time. Moments are relative, with the whole time in their title. */
import type { JSX } from "preact";
import { useSignalEffect } from "@preact/signals";
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { absolute, clock, relative, shortDuration } from "../format";

/** Ticks once a second while the page is seen. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1_000);
document.addEventListener("visibilitychange", () => (now.value = Date.now()));

export function msOf(moment: string | number): number {
  return typeof moment === "number" ? moment : Date.parse(moment);
}

/** `3 min ago`; `mode="clock"` gives `12:03:10`. */
export function Time({ of, mode = "relative" }: { of: string | number | null | undefined; mode?: "relative" | "clock" }): JSX.Element {
  if (of === null || of === undefined) return <span class="faint">–</span>;
  const ms = msOf(of);
  return (
    <time dateTime={new Date(ms).toISOString()} title={absolute(ms)}>
      {mode === "clock" ? clock(ms) : <Ticking make={() => relative(ms, now.value)} />}
    </time>
  );
}

/** `12m03s`; from a moment to another, or to now. */
export function Duration({ ms, from, to }: { ms?: number | null; from?: string | number | null; to?: string | number | null }): JSX.Element {
  if (ms !== undefined && ms !== null) return <span class="num">{shortDuration(ms)}</span>;
  if (from === undefined || from === null) return <span class="faint">–</span>;
  const begin = msOf(from);
  if (to !== undefined && to !== null) return <span class="num">{shortDuration(Math.max(0, msOf(to) - begin))}</span>;
  return (
    <span class="num">
      <Ticking make={() => shortDuration(Math.max(0, now.value - begin))} />
    </span>
  );
}

/** Text that follows the clock; nothing around it is drawn again. */
function Ticking({ make }: { make: () => string }): JSX.Element {
  const [text, setText] = useState(make);
  useSignalEffect(() => setText(make()));
  return <>{text}</>;
}
