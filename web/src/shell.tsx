/** What surrounds every page: navigation, workspace, user, theme, the state of the connection. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask } from "./client";
import { clock, principal, sentence } from "./format";
import { useKeys } from "./keys";
import { asOf, connection } from "./live";
import { destinations } from "./pages";
import { forget } from "./resource";
import { at, go, href, hrefIn } from "./router";
import { isDark, me, nextTheme, singleKeys, theme, type Theme, workspace, zone } from "./session";
import { Button, Toasts } from "./parts/basics";
import { helpShown, Help } from "./help";
import { Palette, paletteShown } from "./palette";

export function Shell({ children }: { children: ComponentChildren }): JSX.Element {
  const [menu, setMenu] = useState(false);
  useEffect(() => setMenu(false), [at.value.path]);
  const keys = Object.fromEntries(
    destinations().filter((one) => one.key).map((one) => [`g ${one.key}`, [`go to ${one.label.toLowerCase()}`, () => go(href(...one.path))] as [string, () => void]]),
  );
  useKeys("Everywhere", {
    ...keys,
    "?": ["show these keys", () => (helpShown.value = true)],
    t: ["light or dark", nextTheme],
    "mod+k": ["open the command palette", () => (paletteShown.value = !paletteShown.value)],
    "/": ["search", () => searchFocus()],
  });
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to content
      </a>
      <header class="side">
        <div class="brand">
          <a href={href()} aria-label="Detent: overview">
            <Mark /> <span>Detent</span>
          </a>
          <button type="button" class="button quiet menu" aria-expanded={menu} aria-controls="nav" onClick={() => setMenu(!menu)}>
            Menu
          </button>
        </div>
        <div id="nav" class={menu ? "open" : ""}>
          <button type="button" class="search" onClick={() => (paletteShown.value = true)}>
            <span>Search or jump to…</span> <kbd>{/Mac/.test(navigator.platform) ? "⌘" : "Ctrl"} K</kbd>
          </button>
          <nav aria-label="Pages">
            {destinations().map((one) => {
              const head = one.path[0] ?? "";
              const here = at.value.parts[0] === head && (head !== "settings" || at.value.parts[1] === one.path[1]);
              return (
                <a key={one.label} href={href(...one.path)} aria-current={here ? "page" : undefined} class={one.group ? "group" : ""}>
                  {one.label}
                </a>
              );
            })}
          </nav>
          <Foot />
        </div>
      </header>
      <div class="content">
        <Connection />
        <main id="main" tabIndex={-1}>
          {children}
        </main>
      </div>
      <Toasts />
      {helpShown.value && <Help />}
      {paletteShown.value && <Palette />}
    </div>
  );
}

function searchFocus(): void {
  const field = document.querySelector<HTMLInputElement>("main input[type=search]");
  if (field) field.focus();
  else paletteShown.value = true;
}

/** Shown while the stream is lost: what is seen is as old as this says. */
function Connection(): JSX.Element | null {
  const lost = connection.value === "lost";
  const [late, setLate] = useState(false);
  useEffect(() => {
    setLate(false);
    if (!lost) return;
    const timer = setTimeout(() => setLate(true), 800);
    return () => clearTimeout(timer);
  }, [lost]);
  return (
    <div role="status" aria-live="polite">
      {lost && late && <div class="offline">Reconnecting. Data as of {clock(asOf.value)}.</div>}
    </div>
  );
}

function Foot(): JSX.Element {
  const known = me.value;
  const several = (known?.workspaces.length ?? 0) > 1;
  return (
    <div class="foot">
      <label class="row">
        <span class="visually-hidden">Workspace</span>
        {several ? (
          <select
            value={workspace.value}
            onChange={(event) => {
              forget();
              go(hrefIn(event.currentTarget.value));
            }}
          >
            {known?.workspaces.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        ) : (
          <span class="faint ellipsis" title="Workspace">
            {workspace.value}
          </span>
        )}
      </label>
      <details class="user">
        <summary>
          <span class="ellipsis">{known?.name ?? sentence(principal(known?.principal ?? ""))}</span>
        </summary>
        <div class="popover">
          <label>
            Theme
            <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
              <option value="system">Same as the system</option>
              <option value="light">Light</option>
              <option value="dark">Dark</option>
            </select>
          </label>
          <label>
            Times
            <select value={zone.value} onChange={(event) => (zone.value = event.currentTarget.value as "local" | "utc")}>
              <option value="local">Local</option>
              <option value="utc">UTC</option>
            </select>
          </label>
          <label>
            Single-key shortcuts
            <select value={singleKeys.value} onChange={(event) => (singleKeys.value = event.currentTarget.value as "on" | "off")}>
              <option value="on">On</option>
              <option value="off">Off</option>
            </select>
          </label>
          <Button onClick={() => (helpShown.value = true)}>Keyboard shortcuts</Button>
          {known?.via === "session" && <Button onClick={() => void logOut()}>Log out</Button>}
        </div>
      </details>
      <Button kind="quiet" label={isDark.value ? "Use the light theme" : "Use the dark theme"} title="Light or dark (t)" onClick={nextTheme}>
        <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
          <path d={isDark.value ? "M8 5a3 3 0 1 0 .01 0zM8 1.2v1.6M8 13.2v1.6M1.2 8h1.6M13.2 8h1.6M3.2 3.2l1.1 1.1M11.7 11.7l1.1 1.1M3.2 12.8l1.1-1.1M11.7 4.3l1.1-1.1" : "M13 9.8A5.6 5.6 0 0 1 6.2 3 5.6 5.6 0 1 0 13 9.8z"} />
        </svg>
      </Button>
    </div>
  );
}

async function logOut(): Promise<void> {
  try {
    await ask("DELETE /v1/login");
  } finally {
    forget();
    me.value = null;
    go("/login");
  }
}

export function Mark(): JSX.Element {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" />
      <path d="M8 8h7a8 8 0 0 1 8 8 8 8 0 0 1-8 8H8z" />
      <circle cx="15" cy="16" r="2.6" />
    </svg>
  );
}

/** The head of a page: where it is, what it is, and what can be done. Sets the title of the window and takes the focus. */
export function Head({ title, above, badge, children, note }: { title: string; above?: ComponentChildren; badge?: ComponentChildren; children?: ComponentChildren; note?: ComponentChildren }): JSX.Element {
  useEffect(() => {
    document.title = `${title} · Detent`;
  }, [title]);
  return (
    <header class="head">
      {above && <p class="above">{above}</p>}
      <div class="row">
        <h1>{title}</h1>
        {badge}
        {children && <div class="actions">{children}</div>}
      </div>
      {note && <p class="note">{note}</p>}
    </header>
  );
}
