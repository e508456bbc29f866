/** The command palette: pages, and whatever an id, its beginning or a name stands for. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { ask } from "./client";
import { destinations } from "./pages";
import { go, href } from "./router";
import { nextTheme } from "./session";
import { Dialog } from "./parts/basics";
import { helpShown } from "./help";

export const paletteShown = signal(false);

interface Entry {
  label: string;
  hint: string;
  run: () => void;
}

const PAUSE_MS = 150;
const BEGINNING_MIN = 4; // The routes take no shorter beginning of an id.

export function Palette(): JSX.Element {
  const [text, setText] = useState("");
  const [found, setFound] = useState<Entry[]>([]);
  const [chosen, setChosen] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const field = useRef<HTMLInputElement>(null);
  // After the dialog has opened, which gives its first button the focus; before the next key is pressed.
  useLayoutEffect(() => field.current?.focus(), []);
  const close = () => (paletteShown.value = false);

  const wanted = text.trim().toLowerCase();
  const pages: Entry[] = [
    ...destinations().map((one) => ({ label: one.label, hint: "page", run: () => go(href(...one.path)) })),
    { label: "Failed runs", hint: "filter", run: () => go(href("runs", { status: "failed" })) },
    { label: "Runs in flight", hint: "filter", run: () => go(href("runs", { status: "running" })) },
    { label: "Failed jobs", hint: "filter", run: () => go(href("jobs", { state: "failed" })) },
    { label: "Light or dark", hint: "setting", run: nextTheme },
    { label: "Keyboard shortcuts", hint: "help", run: () => (helpShown.value = true) },
  ].filter((one) => one.label.toLowerCase().includes(wanted));
  const entries = [...found, ...pages];

  useEffect(() => {
    setChosen(0);
    setFound([]);
    if (wanted.length < 2) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      void search(text.trim(), stop.signal).then((entries) => {
        if (!stop.signal.aborted) setFound(entries);
      });
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);

  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    close();
    entry.run();
  };
  return (
    <Dialog title="Search or jump to" onClose={close}>
      <input
        type="text"
        role="combobox"
        ref={field}
        aria-label="Search or jump to"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant={entries.length ? `palette-${chosen}` : undefined}
        placeholder="A page, a run or job id, or a run's name"
        spellcheck={false}
        autocomplete="off"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          if (step) {
            event.preventDefault();
            setChosen((chosen + step + entries.length) % Math.max(1, entries.length));
          } else if (event.key === "Enter") {
            event.preventDefault();
            run(entries[chosen]);
          }
        }}
      />
      <ul id="palette" role="listbox" aria-label="Results" class="palette" ref={list}>
        {entries.map((entry, place) => (
          <li key={`${entry.hint} ${entry.label}`} id={`palette-${place}`} role="option" aria-selected={place === chosen} onClick={() => run(entry)} onMouseMove={() => setChosen(place)}>
            <span class="ellipsis">{entry.label}</span> <span class="faint">{entry.hint}</span>
          </li>
        ))}
      </ul>
      {!entries.length && <p class="faint">Nothing matches.</p>}
    </Dialog>
  );
}

/** Runs and jobs whose ids begin with the text, and the newest run of that name. */
async function search(text: string, signal: AbortSignal): Promise<Entry[]> {
  const named = ask("GET /v1/runs", { query: { name: text, limit: 5 }, signal }).catch(() => null);
  const beginning = text.length >= BEGINNING_MIN && /^[A-Za-z0-9._:-]+$/.test(text);
  const runs = beginning ? ask("GET /v1/runs", { query: { q: text, limit: 5 }, signal }).catch(() => null) : null;
  const jobs = beginning ? ask("GET /v1/jobs", { query: { q: text, limit: 5 }, signal }).catch(() => null) : null;
  const answers = await Promise.all([runs, named, jobs]);
  const entries = new Map<string, Entry>();
  for (const run of [...(answers[0]?.items ?? []), ...(answers[1]?.items ?? [])]) {
    entries.set(run.run_id, { label: run.run_id, hint: `run, ${run.status}`, run: () => go(href("runs", run.run_id)) });
  }
  for (const job of answers[2]?.items ?? []) {
    entries.set(job.job_id, { label: job.job_id, hint: `job, ${job.status}`, run: () => go(href("jobs", job.job_id)) });
  }
  return [...entries.values()];
}
