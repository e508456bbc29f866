/**
 * The steps of a run and what they need, on a canvas: 10,000 steps stay quick. Drag to move, wheel (when it has the focus) or the
 * buttons to zoom, arrows to walk along edges; a live region says where one is. The table of steps has the same data.
 */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Graph, Step } from "../api";
import { layout, NODE_H, NODE_W, type Layout } from "../graph_layout";
import { count } from "../format";
import { Button } from "./basics";
import { useCanvas, type Palette } from "./canvas";
import { toneOf, word } from "./status";

interface View {
  x: number;
  y: number;
  zoom: number;
}
const ZOOM_MIN = 0.02;
const ZOOM_MAX = 1.6;
const TEXT_FROM = 0.45;
const MARKS: Record<string, string> = { ok: "✓", bad: "✕", run: "●", wait: "◷", off: "–", kept: "↻" };

export function RunGraph({ graph, steps, chosen, choose, open }: { graph: Graph; steps: Map<string, Step>; chosen: string | null; choose: (step: string) => void; open: (step: string) => void }): JSX.Element {
  const placed = useMemo(() => layout(graph), [graph]);
  const rows = useMemo(() => new Map(graph.steps.map((step, row) => [step, row])), [graph]);
  const view = useRef<View>({ x: 0, y: 0, zoom: 1 });
  const fitted = useRef(false);
  const small = useRef<Minimap | undefined>(undefined);
  const afar = useRef<Afar | undefined>(undefined);
  const box = useRef<HTMLDivElement>(null);
  const [focused, setFocused] = useState(false);
  const row = chosen === null ? undefined : rows.get(chosen);

  const fit = (width: number, height: number) => {
    const zoom = Math.min(1, (width - 32) / placed.width, (height - 32) / placed.height);
    view.current = { zoom: Math.max(ZOOM_MIN, zoom), x: 0, y: 0 };
    view.current.x = Math.max(16, (width - placed.width * view.current.zoom) / 2);
    view.current.y = Math.max(16, (height - placed.height * view.current.zoom) / 2);
  };
  const { canvas, redraw } = useCanvas((context, width, height, colours) => {
    if (!fitted.current && width) {
      fitted.current = true;
      fit(width, height);
      if (row !== undefined) reveal(row, width, height);
    }
    const scene = { graph, steps, placed, view: view.current, row, focused };
    afar.current = drawAfar(context, colours, scene, afar.current);
    if (!afar.current) draw(context, width, height, colours, scene);
    small.current = drawMinimap(context, width, height, colours, scene, small.current);
  });

  /** Bring a step into the view, at a size at which it can be read. */
  const reveal = (one: number, width: number, height: number) => {
    const at = view.current;
    const x = (placed.x[one] ?? 0) * at.zoom + at.x;
    const y = (placed.y[one] ?? 0) * at.zoom + at.y;
    const seen = x > 0 && y > 0 && x + NODE_W * at.zoom < width && y + NODE_H * at.zoom < height;
    if (seen && at.zoom >= TEXT_FROM) return;
    at.zoom = Math.max(at.zoom, 0.8);
    at.x = width / 2 - ((placed.x[one] ?? 0) + NODE_W / 2) * at.zoom;
    at.y = height / 2 - ((placed.y[one] ?? 0) + NODE_H / 2) * at.zoom;
  };
  useEffect(() => {
    const element = canvas.current;
    if (row !== undefined && element && fitted.current) reveal(row, element.clientWidth, element.clientHeight);
    redraw();
  }, [row, placed]);

  const zoomBy = (factor: number, x?: number, y?: number) => {
    const element = canvas.current;
    if (!element) return;
    const at = view.current;
    const [cx, cy] = [x ?? element.clientWidth / 2, y ?? element.clientHeight / 2];
    const zoom = Math.min(ZOOM_MAX, Math.max(ZOOM_MIN, at.zoom * factor));
    at.x = cx - ((cx - at.x) * zoom) / at.zoom;
    at.y = cy - ((cy - at.y) * zoom) / at.zoom;
    at.zoom = zoom;
    redraw();
  };
  useEffect(() => {
    const element = canvas.current;
    const onWheel = (event: WheelEvent) => {
      if (!event.ctrlKey && document.activeElement !== box.current) return;
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    };
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, [placed]);

  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  /** Show the part of the graph that a point of the minimap stands for; false beside the minimap. */
  const jump = (event: PointerEvent): boolean => {
    const [map, element] = [small.current, canvas.current];
    if (!map?.shown || !element) return false;
    const [x, y] = [event.offsetX - map.left, event.offsetY - map.top];
    if (x < 0 || y < 0 || x > map.width || y > map.height) return false;
    view.current.x = element.clientWidth / 2 - (x / map.scale) * view.current.zoom;
    view.current.y = element.clientHeight / 2 - (y / map.scale) * view.current.zoom;
    redraw();
    return true;
  };
  const found = (event: PointerEvent): number | undefined => {
    const area = canvas.current?.getBoundingClientRect();
    if (!area) return undefined;
    const x = (event.clientX - area.left - view.current.x) / view.current.zoom;
    const y = (event.clientY - area.top - view.current.y) / view.current.zoom;
    for (let one = 0; one < graph.steps.length; one += 1) {
      const [left, top] = [placed.x[one] ?? 0, placed.y[one] ?? 0];
      if (x >= left && x <= left + NODE_W && y >= top && y <= top + NODE_H) return one;
    }
    return undefined;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const from = row ?? placed.waves[0]?.[0];
    if (from === undefined) return;
    const wave = placed.waves[graph.wave[from] ?? 0] ?? [];
    const near: Record<string, number | undefined> = {
      ArrowRight: placed.after[from]?.[0],
      ArrowLeft: placed.before[from]?.[0],
      ArrowDown: wave[wave.indexOf(from) + 1],
      ArrowUp: wave[wave.indexOf(from) - 1],
    };
    if (event.key in near) {
      event.preventDefault();
      const to = row === undefined ? from : near[event.key];
      const step = to === undefined ? undefined : graph.steps[to];
      if (step !== undefined) choose(step);
    } else if (event.key === "Enter" && chosen !== null) open(chosen);
    else if (event.key === "+" || event.key === "=") zoomBy(1.25);
    else if (event.key === "-") zoomBy(0.8);
    else if (event.key === "0") {
      if (canvas.current) fit(canvas.current.clientWidth, canvas.current.clientHeight);
      redraw();
    } else return;
    event.preventDefault();
  };
  const step = chosen === null ? undefined : steps.get(chosen);
  return (
    <div class="graph">
      <div
        ref={box}
        class="canvas"
        style={{ height: `${placed.height + 120}px` }}
        tabIndex={0}
        role="application"
        aria-label={`Graph of ${count(graph.steps.length)} steps. Use the arrow keys to move along it and Enter to open a step. The Steps view shows the same as a table.`}
        onKeyDown={onKeyDown}
        onFocus={() => setFocused(true)}
        onBlur={() => setFocused(false)}
      >
        <canvas
          ref={canvas}
          onPointerDown={(event) => {
            if (jump(event)) return;
            event.currentTarget.setPointerCapture(event.pointerId);
            drag.current = { x: event.clientX, y: event.clientY, moved: false };
          }}
          onPointerMove={(event) => {
            const at = drag.current;
            if (!at && event.buttons) jump(event);
            if (!at) return;
            const [dx, dy] = [event.clientX - at.x, event.clientY - at.y];
            if (Math.abs(dx) + Math.abs(dy) < 3 && !at.moved) return;
            view.current.x += dx;
            view.current.y += dy;
            drag.current = { x: event.clientX, y: event.clientY, moved: true };
            redraw();
          }}
          onPointerUp={(event) => {
            const before = drag.current;
            drag.current = null;
            if (!before || before.moved) return;
            const one = found(event);
            const key = one === undefined ? undefined : graph.steps[one];
            if (key !== undefined) choose(key);
          }}
          onDblClick={() => {
            if (chosen !== null) open(chosen);
          }}
        />
      </div>
      <div class="zoom">
        <Button kind="quiet" label="Zoom in" onClick={() => zoomBy(1.25)}>
          +
        </Button>
        <Button kind="quiet" label="Zoom out" onClick={() => zoomBy(0.8)}>
          −
        </Button>
        <Button
          kind="quiet"
          label="Fit to window"
          onClick={() => {
            if (canvas.current) fit(canvas.current.clientWidth, canvas.current.clientHeight);
            redraw();
          }}
        >
          Fit
        </Button>
      </div>
      <p class="visually-hidden" role="status">
        {focused && step ? `${step.name}, ${word(step.state)}${step.mapped && step.total ? `, ${step.done} of ${step.total} done` : ""}${step.needs.length ? `, needs ${step.needs.slice(0, 5).join(", ")}` : ""}` : ""}
      </p>
    </div>
  );
}

/** The whole of a large graph in a corner, drawn once for each state of the steps and theme, with the part that is seen. */
interface Minimap {
  picture: HTMLCanvasElement;
  steps: Map<string, Step>;
  ink: string;
  left: number;
  top: number;
  width: number;
  height: number;
  /** Pixels of the minimap for a unit of the layout. */
  scale: number;
  shown: boolean;
}
const MINI_W = 168;
const MINI_H = 104;

function drawMinimap(context: CanvasRenderingContext2D, width: number, height: number, colours: Palette, scene: Scene, before: Minimap | undefined): Minimap | undefined {
  const { placed, view, steps, graph } = scene;
  const whole = view.x >= 0 && view.y >= 0 && view.x + placed.width * view.zoom <= width && view.y + placed.height * view.zoom <= height;
  if (whole || width < 480) return before && { ...before, shown: false };
  const scale = Math.min(MINI_W / placed.width, MINI_H / placed.height);
  const map: Minimap =
    before?.steps === steps && before.scale === scale && before.ink === colours.ink
      ? before
      : { picture: pictured(graph, steps, placed, colours, scale), steps, ink: colours.ink, left: 0, top: 0, width: placed.width * scale, height: placed.height * scale, scale, shown: true };
  map.shown = true;
  map.left = 10;
  map.top = height - map.height - 10;
  context.fillStyle = colours.panel;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(map.left - 5, map.top - 5, map.width + 10, map.height + 10, 6);
  context.fill();
  context.stroke();
  context.drawImage(map.picture, map.left, map.top, map.width, map.height);
  const [x, y] = [Math.max(0, (-view.x / view.zoom) * scale), Math.max(0, (-view.y / view.zoom) * scale)];
  const [right, bottom] = [Math.min(map.width, ((width - view.x) / view.zoom) * scale), Math.min(map.height, ((height - view.y) / view.zoom) * scale)];
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  if (right > x && bottom > y) context.strokeRect(map.left + x, map.top + y, Math.max(3, right - x), Math.max(3, bottom - y));
  return map;
}

function pictured(graph: Graph, steps: Map<string, Step>, placed: Layout, colours: Palette, scale: number): HTMLCanvasElement {
  const picture = document.createElement("canvas");
  const sharp = scale * 2;
  picture.width = Math.max(1, Math.ceil(placed.width * sharp));
  picture.height = Math.max(1, Math.ceil(placed.height * sharp));
  const context = picture.getContext("2d");
  graph.steps.forEach((key, one) => {
    const step = steps.get(key);
    if (!context) return;
    context.fillStyle = colours[step ? toneOf(step.state) : "off"];
    context.fillRect((placed.x[one] ?? 0) * sharp, (placed.y[one] ?? 0) * sharp, Math.max(1, NODE_W * sharp), Math.max(1, NODE_H * sharp));
  });
  return picture;
}

interface Scene {
  graph: Graph;
  steps: Map<string, Step>;
  placed: Layout;
  view: View;
  row: number | undefined;
  focused: boolean;
}

/** A graph from afar, drawn once: moving it then costs one copy, however many steps it has. */
interface Afar {
  picture: HTMLCanvasElement;
  steps: Map<string, Step>;
  placed: Layout;
  ink: string;
  zoom: number;
  row: number | undefined;
}
const AFAR_FROM = 1_000;
const AFAR_PIXELS_MAX = 8_000_000;

function drawAfar(context: CanvasRenderingContext2D, colours: Palette, scene: Scene, before: Afar | undefined): Afar | undefined {
  const { graph, steps, placed, view, row } = scene;
  const ratio = devicePixelRatio || 1;
  const [width, height] = [Math.ceil(placed.width * view.zoom) + 8, Math.ceil(placed.height * view.zoom) + 8];
  if (graph.steps.length < AFAR_FROM || view.zoom >= TEXT_FROM || width * height * ratio * ratio > AFAR_PIXELS_MAX) return undefined;
  let found = before;
  if (found?.steps !== steps || found.placed !== placed || found.ink !== colours.ink || found.zoom !== view.zoom || found.row !== row) {
    const picture = document.createElement("canvas");
    picture.width = width * ratio;
    picture.height = height * ratio;
    const own = picture.getContext("2d");
    if (!own) return undefined;
    own.scale(ratio, ratio);
    draw(own, width, height, colours, { ...scene, view: { x: 4, y: 4, zoom: view.zoom } });
    found = { picture, steps, placed, ink: colours.ink, zoom: view.zoom, row };
  }
  context.drawImage(found.picture, view.x - 4, view.y - 4, width, height);
  return found;
}

function draw(context: CanvasRenderingContext2D, width: number, height: number, colours: Palette, scene: Scene): void {
  const { graph, steps, placed, view, row } = scene;
  const { zoom } = view;
  context.save();
  context.translate(view.x, view.y);
  context.scale(zoom, zoom);
  const [left, top, right, bottom] = [-view.x / zoom, -view.y / zoom, (width - view.x) / zoom, (height - view.y) / zoom];
  drawEdges(context, scene, colours, [left, top, right, bottom]);
  const detailed = zoom >= TEXT_FROM;
  context.font = `500 12px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  for (let one = 0; one < graph.steps.length; one += 1) {
    const [x, y] = [placed.x[one] ?? 0, placed.y[one] ?? 0];
    if (x > right || x + NODE_W < left || y > bottom || y + NODE_H < top) continue;
    const step = steps.get(graph.steps[one] ?? "");
    const tone = step ? toneOf(step.state) : "off";
    if (!detailed) {
      context.fillStyle = colours[tone];
      context.globalAlpha = tone === "off" || tone === "wait" ? 0.45 : 0.9;
      context.fillRect(x, y, NODE_W, NODE_H);
      context.globalAlpha = 1;
    } else drawNode(context, colours, x, y, graph.names[one] ?? "", step, tone);
    if (one === row) {
      context.strokeStyle = colours.accent;
      context.lineWidth = Math.max(2, 2 / zoom);
      context.strokeRect(x - 3, y - 3, NODE_W + 6, NODE_H + 6);
    }
  }
  context.restore();
}

function drawNode(context: CanvasRenderingContext2D, colours: Palette, x: number, y: number, name: string, step: Step | undefined, tone: ReturnType<typeof toneOf>): void {
  context.fillStyle = colours.panel;
  context.strokeStyle = colours[tone];
  context.lineWidth = 1.2;
  context.beginPath();
  context.roundRect(x, y, NODE_W, NODE_H, 7);
  context.fill();
  context.stroke();
  context.fillStyle = colours[`${tone}-soft`];
  context.beginPath();
  context.roundRect(x + 0.6, y + 0.6, 27, NODE_H - 1.2, [6.5, 0, 0, 6.5]);
  context.fill();
  context.fillStyle = colours[tone];
  context.textAlign = "center";
  context.fillText(MARKS[tone] ?? "", x + 14, y + NODE_H / 2);
  context.textAlign = "left";
  const counts = step?.mapped && step.total !== null ? `${count(step.done)}/${count(step.total)}` : "";
  const wide = counts ? context.measureText(counts).width + 8 : 0;
  context.fillStyle = colours.ink;
  context.fillText(clipped(context, name, NODE_W - 44 - wide), x + 35, y + NODE_H / 2);
  if (counts) {
    context.fillStyle = colours.faint;
    context.textAlign = "right";
    context.fillText(counts, x + NODE_W - 8, y + NODE_H / 2);
    context.textAlign = "left";
  }
}

function drawEdges(context: CanvasRenderingContext2D, { graph, placed, view, row }: Scene, colours: Palette, [left, top, right, bottom]: [number, number, number, number]): void {
  const curved = view.zoom > 0.25;
  const path = (from: number, to: number) => {
    const [x1, y1] = [(placed.x[from] ?? 0) + NODE_W, (placed.y[from] ?? 0) + NODE_H / 2];
    const [x2, y2] = [placed.x[to] ?? 0, (placed.y[to] ?? 0) + NODE_H / 2];
    if (Math.min(x1, x2) > right || Math.max(x1, x2) < left || Math.min(y1, y2) > bottom || Math.max(y1, y2) < top) return;
    context.moveTo(x1, y1);
    if (curved) context.bezierCurveTo(x1 + 28, y1, x2 - 28, y2, x2, y2);
    else context.lineTo(x2, y2);
  };
  context.strokeStyle = colours["strong-line"];
  context.globalAlpha = graph.edges.length > 2_000 && !curved ? 0.18 : 0.55;
  context.lineWidth = Math.max(1, 0.8 / view.zoom);
  context.beginPath();
  for (const [from = 0, to = 0] of graph.edges) path(from, to);
  context.stroke();
  context.globalAlpha = 1;
  if (row === undefined) return;
  context.strokeStyle = colours.accent;
  context.lineWidth = Math.max(1.8, 1.6 / view.zoom);
  context.beginPath();
  for (const from of placed.before[row] ?? []) path(from, row);
  for (const to of placed.after[row] ?? []) path(row, to);
  context.stroke();
}

function clipped(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}
