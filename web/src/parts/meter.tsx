/** How full something is: a bar, and the numbers beside it. */
import type { JSX } from "preact";
import { count } from "../format";

export function Meter({ label, value, max }: { label: string; value: number; max: number }): JSX.Element {
  const text = `${count(value)} of ${count(max)}`;
  return (
    <span class={`meter${value >= max ? " tone-bad" : value > max * 0.8 ? " tone-wait" : ""}`}>
      <span class="meter-label">{label}</span>
      <progress max={max} value={value} aria-label={`${label}: ${text} waiting`} />
      <span class="num">{text}</span>
    </span>
  );
}
