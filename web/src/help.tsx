/** The keys that work now. */
import type { JSX } from "preact";
import { signal } from "@preact/signals";
import { layers } from "./keys";
import { Dialog } from "./parts/basics";

export const helpShown = signal(false);

export function Help(): JSX.Element {
  const groups = new Map<string, Map<string, string>>();
  for (const layer of layers.value) {
    const found = groups.get(layer.name) ?? new Map<string, string>();
    for (const [key, [what]] of Object.entries(layer.keys())) found.set(key, what);
    groups.set(layer.name, found);
  }
  return (
    <Dialog title="Keyboard" onClose={() => (helpShown.value = false)} wide>
      <div class="keys">
        {[...groups].reverse().map(([name, keys]) => (
          <section key={name}>
            <h3>{name}</h3>
            <dl>
              {[...keys].map(([key, what]) => (
                <div key={key}>
                  <dt>
                    {key.split(" ").map((one) => (
                      <kbd key={one}>{one.replace("mod+", "Ctrl ").replace(/ k$/, " K")}</kbd>
                    ))}
                  </dt>
                  <dd>{what}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <p class="faint">You can turn single-key shortcuts off in the menu under your name.</p>
    </Dialog>
  );
}
