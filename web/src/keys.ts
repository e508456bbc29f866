/**
 * Keyboard: `useKeys("Runs", { "j": ["next row", fn], "g r": ["go to runs", fn] })`.
 * Keys of the part that was shown last win. Single keys do nothing while someone types, and can be switched off.
 */
import { useLayoutEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { singleKeys } from "./session";

export type Keys = Record<string, [what: string, run: (event: KeyboardEvent) => void]>;
interface Layer {
  name: string;
  keys: () => Keys;
}

/** What is possible now, for the help. A key works as soon as its part is seen, so layers are set before the browser paints. */
export const layers = signal<Layer[]>([]);

export function useKeys(name: string, keys: Keys): void {
  const current = useRef(keys);
  current.current = keys;
  useLayoutEffect(() => {
    const layer: Layer = { name, keys: () => current.current };
    layers.value = [...layers.peek(), layer];
    return () => {
      layers.value = layers.peek().filter((one) => one !== layer);
    };
  }, [name]);
}

const PREFIX_MS = 1_200;
let prefix = "";
let prefixAt = 0;

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing) return;
  const chord = (event.ctrlKey || event.metaKey) && !event.altKey ? `mod+${event.key.toLowerCase()}` : "";
  if (!chord && (event.ctrlKey || event.metaKey || event.altKey)) return;
  const inDialog = (event.target as Element | null)?.closest?.("dialog");
  if (!chord && (singleKeys.value === "off" || typing(event.target) || inDialog)) return;
  const plain = chord || event.key;
  const second = prefix && Date.now() - prefixAt < PREFIX_MS ? `${prefix} ${plain}` : "";
  const all = [...layers.value].reverse();
  for (const written of second ? [second, plain] : [plain]) {
    for (const layer of all) {
      const found = layer.keys()[written];
      if (!found) continue;
      prefix = "";
      event.preventDefault();
      found[1](event);
      return;
    }
  }
  const begins = all.some((layer) => Object.keys(layer.keys()).some((one) => one.startsWith(`${plain} `)));
  prefix = begins ? plain : "";
  prefixAt = Date.now();
});
