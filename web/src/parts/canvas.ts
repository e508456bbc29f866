/** What drawings on canvas share: the tokens of the theme as colours, and a canvas as sharp as the screen. */
import { useEffect, useRef } from "preact/hooks";
import { isDark } from "../session";

const NAMES = ["ground", "panel", "ink", "soft", "faint", "line", "strong-line", "accent", "hover", "ok", "bad", "run", "wait", "off", "kept", "ok-soft", "bad-soft", "run-soft", "wait-soft", "off-soft", "kept-soft"] as const;
export type Palette = Record<(typeof NAMES)[number], string>;

/** The tokens as the browser computes them now. */
export function palette(element: Element): Palette {
  const probe = document.createElement("span");
  element.append(probe);
  const found = {} as Palette;
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

type Draw = (context: CanvasRenderingContext2D, width: number, height: number, colours: Palette) => void;

/** A canvas that fills its box; `redraw()` asks for one frame, however often it is called. */
export function useCanvas(draw: Draw) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const current = useRef(draw);
  current.current = draw;
  const frame = useRef(0);
  const redraw = useRef(() => {
    if (frame.current) return;
    frame.current = requestAnimationFrame(() => {
      frame.current = 0;
      const element = canvas.current;
      const context = element?.getContext("2d");
      const box = element?.parentElement;
      if (!element || !context || !box) return;
      const ratio = devicePixelRatio || 1;
      const width = element.clientWidth;
      const height = element.clientHeight;
      if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
        element.width = Math.round(width * ratio);
        element.height = Math.round(height * ratio);
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      current.current(context, width, height, palette(box));
    });
  }).current;
  useEffect(() => {
    const watch = new ResizeObserver(redraw);
    if (canvas.current) watch.observe(canvas.current);
    return () => {
      watch.disconnect();
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  }, []);
  useEffect(redraw);
  void isDark.value; // Another theme draws again.
  return { canvas, redraw };
}
