/** Small parts: buttons, copying, tabs, dialogs, notices, fields. */
import type { ComponentChildren, JSX } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { at, setQuery } from "../router";
import { useKeys } from "../keys";

export function Button(props: {
  children: ComponentChildren;
  onClick?: (() => void) | undefined;
  kind?: "plain" | "main" | "danger" | "quiet";
  /** Why it cannot be used now; the button stays focusable and says it. */
  why?: string | undefined;
  title?: string | undefined;
  label?: string | undefined;
  busy?: boolean;
  type?: "button" | "submit";
  pressed?: boolean;
}): JSX.Element {
  const off = props.why !== undefined || props.busy === true;
  return (
    <button
      type={props.type ?? "button"}
      class={`button ${props.kind ?? "plain"}`}
      aria-disabled={off || undefined}
      aria-pressed={props.pressed}
      aria-label={props.label}
      title={props.why ?? props.title}
      onClick={(event) => {
        if (off) event.preventDefault();
        else props.onClick?.();
      }}
    >
      {props.children}
    </button>
  );
}

/** A command line with a button that copies it: `<CopyLine text="detent retry ID" />`. */
export function CopyLine({ text, prompt = "$ " }: { text: string; prompt?: string }): JSX.Element {
  return (
    <span class="copyline">
      <code>
        <span class="faint" aria-hidden="true">
          {prompt}
        </span>
        {text}
      </code>
      <Copy text={text} label={`Copy ${text}`} />
    </span>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }): JSX.Element {
  return (
    <button type="button" class="button quiet icon-only" aria-label={label} title="Copy" onClick={() => void copy(text)}>
      <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
        <path d="M5.5 5.5h7v8h-7zM3.5 10.5v-8h7" />
      </svg>
    </button>
  );
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("The browser did not allow copying", "bad");
  }
}

export interface Tab {
  name: string;
  label: string;
  count?: number | undefined;
}

/** Tabs that are part of the address: `?view=steps`. The first one is the default and leaves no trace there. */
export function Tabs({ tabs, param, label }: { tabs: Tab[]; param: string; label: string }): JSX.Element {
  const chosen = at.value.query.get(param) ?? tabs[0]?.name;
  const move = (event: KeyboardEvent, by: number) => {
    const place = tabs.findIndex((one) => one.name === chosen);
    const next = tabs[(place + by + tabs.length) % tabs.length];
    if (!next) return;
    event.preventDefault();
    setQuery({ [param]: next.name === tabs[0]?.name ? undefined : next.name });
    const list = (event.currentTarget as HTMLElement).parentElement;
    requestAnimationFrame(() => list?.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label={label}>
      {tabs.map((tab) => (
        <button
          key={tab.name}
          type="button"
          role="tab"
          id={`tab-${param}-${tab.name}`}
          aria-selected={tab.name === chosen}
          tabIndex={tab.name === chosen ? 0 : -1}
          onClick={() => setQuery({ [param]: tab.name === tabs[0]?.name ? undefined : tab.name }, { replace: false })}
          onKeyDown={(event) => {
            if (event.key === "ArrowRight") move(event, 1);
            if (event.key === "ArrowLeft") move(event, -1);
          }}
        >
          {tab.label}
          {tab.count !== undefined && <span class="count">{tab.count.toLocaleString("en-US")}</span>}
        </button>
      ))}
    </div>
  );
}

/** What a tab shows. */
export function TabPanel({ param, name, children }: { param: string; name: string; children: ComponentChildren }): JSX.Element {
  return (
    <div role="tabpanel" aria-labelledby={`tab-${param}-${name}`} class="tabpanel">
      {children}
    </div>
  );
}

/** A choice of one of a few, in the address: filters of lists. */
export function Choice({ param, label, options, first }: { param: string; label: string; options: [value: string, label: ComponentChildren][]; first: string }): JSX.Element {
  const chosen = at.value.query.get(param) ?? first;
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([value, text]) => (
        <button key={value} type="button" aria-pressed={value === chosen} onClick={() => setQuery({ [param]: value === first ? undefined : value, cursor: undefined })}>
          {text}
        </button>
      ))}
    </div>
  );
}

/** A text filter that is kept in the address; `instead` are filters that it takes the place of. */
export function Filter({ param, label, placeholder, wide, instead = [] }: { param: string; label: string; placeholder?: string; wide?: boolean; instead?: readonly string[] }): JSX.Element {
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  const said = at.value.query.get(param) ?? "";
  // The address changes by other filters and by going back, too; what is being typed is ahead of it.
  useLayoutEffect(() => {
    if (field.current && field.current !== document.activeElement) field.current.value = said;
  }, [said]);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  return (
    <span class={`field${wide ? " wide" : ""}`}>
      <label for={id}>{label}</label>
      <input
        id={id}
        ref={field}
        type="search"
        spellcheck={false}
        autocomplete="off"
        placeholder={placeholder}
        defaultValue={said}
        onInput={(event) => {
          const { value } = event.currentTarget;
          clearTimeout(timer.current);
          timer.current = setTimeout(() => setQuery({ ...(value.trim() && Object.fromEntries(instead.map((one) => [one, undefined]))), [param]: value.trim() || undefined, cursor: undefined }), 200);
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
    </span>
  );
}

/** A modal dialog: it has the focus, Escape closes it, and the focus goes back. */
export function Dialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }): JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    if (dialog && !dialog.open) dialog.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={wide ? "wide" : ""}
      aria-labelledby={id}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === event.currentTarget) onClose();
      }}
    >
      <div class="dialog">
        <header>
          <h2 id={id}>{title}</h2>
          <Button kind="quiet" label="Close" onClick={onClose}>
            <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
              <path d="M4 4l8 8M12 4l-8 8" />
            </svg>
          </Button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** Ask before something is done that cannot be undone; the command line that does the same is shown. */
export function Confirm(props: {
  title: string;
  children?: ComponentChildren;
  action: string;
  line?: string | undefined;
  busy?: boolean;
  onYes: () => void;
  onClose: () => void;
}): JSX.Element {
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      {props.children}
      {props.line && <CopyLine text={props.line} />}
      <footer>
        <Button onClick={props.onClose}>Go back</Button>
        <Button kind="danger" busy={props.busy ?? false} onClick={props.onYes}>
          {props.action}
        </Button>
      </footer>
    </Dialog>
  );
}

interface Notice {
  key: number;
  text: ComponentChildren;
  tone: "ok" | "bad";
}
const notices = signal<Notice[]>([]);
let noticed = 0;

/** Say that something happened; it goes by itself, and screen readers hear it. */
export function toast(text: ComponentChildren, tone: Notice["tone"] = "ok"): void {
  noticed += 1;
  const key = noticed;
  notices.value = [...notices.value.slice(-3), { key, text, tone }];
  setTimeout(() => (notices.value = notices.value.filter((one) => one.key !== key)), tone === "bad" ? 12_000 : 4_000);
}

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {notices.value.map((one) => (
        <div key={one.key} class={`toast tone-${one.tone}`}>
          {one.text}
        </div>
      ))}
    </div>
  );
}

/** Escape leads to the page above. */
export function useBack(address: string, go: (address: string) => void): void {
  useKeys("Page", { Escape: ["back to the list", () => go(address)] });
}
