/** Numbers, sizes, times and names as people read them; durations as the command line writes them. */
import { zone } from "./session";

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** `1 job`, `2 jobs`, `1,000 jobs`. */
export function counted(value: number, noun: string, plural = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** In columns: `0.4s`, `59.9s`, `12m03s`, `3h07m`, `12d03h`. */
export function shortDuration(ms: number): string {
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)}s`;
  const seconds = Math.round(ms / 1000);
  const two = (value: number) => String(value).padStart(2, "0");
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m${two(seconds % 60)}s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)}h${two(Math.floor(seconds / 60) % 60)}m`;
  return `${Math.floor(seconds / 86_400)}d${two(Math.floor(seconds / 3_600) % 24)}h`;
}

/** In sentences: `250 ms`, `1.5 s`, `12 min 3 s`, `2 h 5 min`. */
export function durationText(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return pair(minutes, "min", Math.floor(ms / 1000) % 60, "s");
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? pair(hours, "h", minutes % 60, "min") : pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

function pair(large: number, unit: string, small: number, smaller: string): string {
  return small ? `${large} ${unit} ${small} ${smaller}` : `${large} ${unit}`;
}

/** `512 B`, `1.5 KiB`. */
export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(1)} ${units[unit]}`;
}

/** `just now`, `12 s ago`, `3 min ago`, `2 h ago`, `5 d ago`; `in 9 h` for what is to come. */
export function relative(ms: number, now: number): string {
  const seconds = Math.round(Math.abs(now - ms) / 1000);
  if (seconds < 2) return "just now";
  const [value, unit] =
    seconds < 60 ? [seconds, "s"] : seconds < 3_600 ? [Math.floor(seconds / 60), "min"] : seconds < 172_800 ? [Math.floor(seconds / 3_600), "h"] : [Math.floor(seconds / 86_400), "d"];
  return now >= ms ? `${value} ${unit} ago` : `in ${value} ${unit}`;
}

const part = (value: number, width = 2) => String(value).padStart(width, "0");

/** `2026-11-17 12:03:10.120 UTC`, in the zone that the user chose. */
export function absolute(ms: number): string {
  const moment = new Date(ms);
  if (zone.value === "utc") return `${moment.toISOString().replace("T", " ").replace("Z", "")} UTC`;
  const date = `${moment.getFullYear()}-${part(moment.getMonth() + 1)}-${part(moment.getDate())}`;
  return `${date} ${clock(ms)}.${part(moment.getMilliseconds(), 3)}`;
}

/** `12:03:10`. */
export function clock(ms: number): string {
  const moment = new Date(ms);
  return zone.value === "utc"
    ? `${part(moment.getUTCHours())}:${part(moment.getUTCMinutes())}:${part(moment.getUTCSeconds())}`
    : `${part(moment.getHours())}:${part(moment.getMinutes())}:${part(moment.getSeconds())}`;
}

/** The beginning of an id or digest: enough to tell it from its neighbours. */
export function shortId(id: string): string {
  const plain = id.startsWith("sha256:") ? id.slice(7) : id;
  return plain.length > 14 ? `${plain.slice(0, 12)}…` : plain;
}

/** What a principal is called: the one of a home has no name. */
export function principal(name: string): string {
  return name === "p_local" ? "this machine's user" : name;
}

/** A sentence begins with a capital letter, also one that the server wrote for the middle of a line. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A word for the shell, quoted where it has to be. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
