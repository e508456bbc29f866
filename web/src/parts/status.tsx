/** States of runs, jobs, steps and workers: an icon, a word and a colour, never a colour alone. */
import type { JSX } from "preact";

type Look = [tone: "ok" | "bad" | "run" | "wait" | "off" | "kept", icon: keyof typeof PATHS];
const LOOKS: Record<string, Look> = {
  succeeded: ["ok", "check"],
  ready: ["wait", "clock"],
  reused: ["kept", "again"],
  running: ["run", "dot"],
  retrying: ["wait", "again"],
  queued: ["wait", "clock"],
  waiting: ["wait", "clock"],
  pending: ["wait", "clock"],
  failed: ["bad", "cross"],
  timed_out: ["bad", "cross"],
  cancelled: ["off", "bar"],
  skipped: ["off", "skip"],
  blocked: ["off", "bar"],
  interrupted: ["wait", "bar"],
  stopped: ["off", "bar"],
  active: ["ok", "check"],
  on: ["ok", "check"],
  off: ["bad", "cross"],
  paused: ["wait", "bar"],
  idle: ["ok", "check"],
  busy: ["run", "dot"],
  draining: ["wait", "clock"],
  silent: ["bad", "warn"],
  never: ["off", "bar"],
  retired: ["off", "cross"],
  revoked: ["off", "cross"],
  expired: ["off", "clock"],
  used: ["off", "check"],
};
const PATHS = {
  check: "M3.2 8.4l3 3 6.6-6.8",
  cross: "M4 4l8 8M12 4l-8 8",
  dot: "M8 4.2a3.8 3.8 0 1 0 .01 0z",
  clock: "M8 2.5a5.5 5.5 0 1 0 .01 0zM8 5v3.2l2.1 1.4",
  again: "M12.6 6.2A5 5 0 1 0 13 8.6M12.8 2.8v3.5H9.4",
  bar: "M3.5 8h9",
  skip: "M4 4l4 4-4 4M9 4l4 4-4 4",
  warn: "M8 2.5l6 11H2zM8 6.5v3.2M8 11.6v.1",
} as const;

export function toneOf(state: string): Look[0] {
  return LOOKS[state]?.[0] ?? "off";
}

export function Icon({ name }: { name: keyof typeof PATHS }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The word of a state as people read it. */
export function word(state: string): string {
  return state.replaceAll("_", " ");
}

export function StatusBadge({ state, text, tone }: { state: string; text?: string; tone?: Look[0] }): JSX.Element {
  const look = LOOKS[state];
  return (
    <span class={`badge tone-${tone ?? look?.[0] ?? "off"}${state === "running" ? " live" : ""}`}>
      <Icon name={look?.[1] ?? "bar"} />
      {text ?? word(state)}
    </span>
  );
}
