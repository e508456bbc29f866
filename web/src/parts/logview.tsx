/** A log as rows that are in the document only while they are seen; a click on a line number puts it into the address. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Log } from "../log";
import { at, go } from "../router";
import { Ansi } from "./ansi";

const LINE_PX = 18;
const BEYOND = 20;
export const WRAP_MAX = 4_000;

export function LogView({ log, follow, wrap, mark, label }: { log: Log; follow: boolean; wrap: boolean; mark: string; label: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 80]);
  const lines = log.lines.value;
  const wrapped = wrap && lines.length <= WRAP_MAX;
  const here = /^L(\d+)$/.exec(at.value.hash)?.[1];
  const look = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / LINE_PX) - BEYOND);
    const last = Math.ceil((element.scrollTop + element.clientHeight) / LINE_PX) + BEYOND;
    setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
  };
  useEffect(() => {
    const element = box.current;
    element?.addEventListener("scroll", look, { passive: true });
    const watch = new ResizeObserver(look);
    if (element) watch.observe(element);
    return () => {
      element?.removeEventListener("scroll", look);
      watch.disconnect();
    };
  }, []);
  const went = useRef("");
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    if (here && Number(here) <= lines.length && went.current !== here) {
      went.current = here;
      element.scrollTop = (Number(here) - 1) * LINE_PX - element.clientHeight / 3;
    } else if (follow && !here) element.scrollTop = element.scrollHeight;
  }, [lines, follow, here]);
  const [first, last] = wrapped ? [0, lines.length] : [range[0], Math.min(lines.length, range[1])];
  return (
    <div ref={box} class={`logbox${wrapped ? " wrap" : ""}`} tabIndex={0} role="region" aria-label={label}>
      {!wrapped && <div style={{ height: `${lines.length * LINE_PX}px`, width: "1px" }} />}
      <div class="rows" style={wrapped ? undefined : { top: `${first * LINE_PX}px` }}>
        {lines.slice(first, last).map((line, offset) => {
          const number = first + offset + 1;
          return (
            <div key={number} class={`line${here === String(number) ? " here" : ""}`}>
              {log.from.value === 0 ? (
                // Not a link for the keyboard: thousands of them would be in its way. Lines that were searched for are buttons.
                <span
                  class="no"
                  aria-hidden="true"
                  title="Link to this line"
                  onClick={() => {
                    went.current = String(number); // It is seen already: nothing jumps.
                    go(`${location.pathname}${location.search}#L${number}`, { replace: true });
                  }}
                >
                  {number}
                </span>
              ) : (
                <span class="no" aria-hidden="true" />
              )}
              <span>
                <Ansi text={line} mark={mark || undefined} />
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}
