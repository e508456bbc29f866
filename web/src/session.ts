/** Who is logged in, in which workspace, and how the page is set up. Kept as signals, which every part reads. */
import { computed, effect, signal } from "@preact/signals";
import type { Me } from "./api";
import { at } from "./router";

/** Undefined while it is being asked, null when nobody is logged in. */
export const me = signal<Me | null | undefined>(undefined);

/** The workspace of the address: `/w/{workspace}/...`. */
export const workspace = computed(() => at.value.workspace);

export function may(scope: string): boolean {
  return me.value?.scopes.includes(scope) ?? false;
}

/** What a viewer lacks, as the title of a disabled button; undefined when it may. */
export function lacks(scope: string): string | undefined {
  return may(scope) ? undefined : `Your credential lacks the scope ${scope}`;
}

function kept<T extends string>(name: string, first: T) {
  let found: string | null = null;
  try {
    found = localStorage.getItem(name);
  } catch {
    // Storage may be forbidden: the setting then lasts as long as the page.
  }
  const value = signal<T>((found as T | null) ?? first);
  effect(() => {
    try {
      localStorage.setItem(name, value.value);
    } catch {
      // As above.
    }
  });
  return value;
}

export type Theme = "system" | "light" | "dark";
export const theme = kept<Theme>("detent-theme", "system");
export const zone = kept<"local" | "utc">("detent-zone", "local");
/** Single keys can be switched off (WCAG 2.1.4). */
export const singleKeys = kept<"on" | "off">("detent-keys", "on");

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

/** Whether the page is dark now. */
const dark = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(dark.matches);
dark.addEventListener("change", () => (systemDark.value = dark.matches));
export const isDark = computed(() => theme.value === "dark" || (theme.value === "system" && systemDark.value));

export function nextTheme(): void {
  theme.value = isDark.value ? "light" : "dark";
}

const narrowQuery = matchMedia("(max-width: 720px)");
export const narrow = signal(narrowQuery.matches);
narrowQuery.addEventListener("change", () => (narrow.value = narrowQuery.matches));
