/**
 * When each step ran: a row for each step, a bar for each attempt, hatched while it waited for a worker. Shift and wheel zoom
 * the time, drag moves it; up and down walk the rows. The view Steps has the same as a table.
 */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Timeline as Columns } from "../api";
import { clock, count, counted, durationText, shortDuration } from "../format";
import { at } from "../router";
import { Choice } from "./basics";
import { useCanvas, type Palette } from "./canvas";
import { now } from "./time";
import { toneOf, word } from "./status";

const ROW_H = 24;
const LANES_MAX = 3;
const AXIS_H = 24;

interface Bar {
  row: number;
  lane: number;
  from: number;
  start: number;
  end: number | null;
  place: number;
}
interface Rows {
  names: string[];
  bars: Bar[];
  byRow: Bar[][];
  first: number;
  last: number;
}

export function TimelineView({ columns, open }: { columns: Columns; open: (job: string) => void }): JSX.Element {
  const byWorker = at.value.query.get("group") === "worker";
  const rows = useMemo(() => rowsOf(columns, byWorker), [columns, byWorker]);
  const live = columns.ended_ms.some((end, place) => end === null && columns.started_ms[place] !== null);
  const end = Math.max(rows.last, live ? now.value : 0, rows.first + 1);
  const span = useRef<[number, number] | null>(null);
  const [row, setRow] = useState(0);
  useEffect(() => setRow(0), [byWorker]);
  const box = useRef<HTMLDivElement>(null);
  const labels = Math.min(220, Math.max(70, innerWidth * 0.16));
  const { canvas, redraw } = useCanvas((context, width, height, colours) => {
    const [from, to] = span.current ?? [rows.first - (end - rows.first) * 0.01, end + (end - rows.first) * 0.02];
    draw(context, width, height, colours, { rows, columns, from, to, row, labels, top: box.current?.scrollTop ?? 0, end });
  });
  useEffect(() => {
    const element = box.current;
    const onWheel = (event: WheelEvent) => {
      if (!event.shiftKey && !event.ctrlKey) return;
      event.preventDefault();
      const [from, to] = span.current ?? [rows.first, end];
      const at = from + ((event.offsetX - labels) / Math.max(1, (canvas.current?.clientWidth ?? 1) - labels)) * (to - from);
      const factor = Math.exp((event.deltaY || event.deltaX) / 300);
      span.current = [at - (at - from) * factor, at + (to - at) * factor];
      redraw();
    };
    element?.addEventListener("wheel", onWheel, { passive: false });
    element?.addEventListener("scroll", redraw, { passive: true });
    return () => {
      element?.removeEventListener("wheel", onWheel);
      element?.removeEventListener("scroll", redraw);
    };
  }, [rows, end]);
  const move = (to: number) => {
    const next = Math.max(0, Math.min(rows.names.length - 1, to));
    setRow(next);
    const element = box.current;
    if (!element) return;
    const y = next * ROW_H;
    if (y < element.scrollTop) element.scrollTop = y;
    if (y + ROW_H > element.scrollTop + element.clientHeight - AXIS_H) element.scrollTop = y + ROW_H - element.clientHeight + AXIS_H;
  };
  const said = rows.byRow[row] ?? [];
  const last = said.at(-1);
  const openRow = (place: number) => {
    const bar = (rows.byRow[place] ?? []).find((one) => columns.state[one.place] === "failed") ?? rows.byRow[place]?.at(-1);
    const job = bar === undefined ? undefined : columns.job_id[bar.place];
    if (job) open(job);
  };
  return (
    <div class="timeline stack">
      <Choice
        param="group"
        label="A row for each"
        first=""
        options={[
          ["", "By step"],
          ["worker", "By worker"],
        ]}
      />
      <div
        ref={box}
        class="canvas"
        style={{ height: `${rows.names.length * ROW_H + AXIS_H + 8}px` }}
        tabIndex={0}
        role="application"
        aria-label={`Timeline of ${counted(rows.names.length, byWorker ? "worker" : "step")}. Use Up and Down to move between them and Enter to open one. The Steps view shows the same as a table.`}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") move(row + 1);
          else if (event.key === "ArrowUp") move(row - 1);
          else if (event.key === "Enter") openRow(row);
          else if (event.key === "0") {
            span.current = null;
            redraw();
          } else return;
          event.preventDefault();
        }}
      >
        <canvas
          ref={canvas}
          onPointerDown={(event) => {
            const y = event.offsetY - AXIS_H + (box.current?.scrollTop ?? 0);
            move(Math.floor(y / ROW_H));
          }}
          onDblClick={() => openRow(row)}
          onPointerMove={(event) => {
            if (!event.buttons || !span.current) return;
            const per = (span.current[1] - span.current[0]) / Math.max(1, event.currentTarget.clientWidth - labels);
            span.current = [span.current[0] - event.movementX * per, span.current[1] - event.movementX * per];
            redraw();
          }}
        />
        <div class="tall" style={{ height: `${rows.names.length * ROW_H + AXIS_H}px` }} />
      </div>
      <p class="note" role="status">
        {last && (
          <>
            <b>{rows.names[row]}</b> {byWorker && `${columns.step[last.place]} `}
            {said.length > 1 ? `${count(said.length)} attempts, last ` : ""}
            {word(columns.state[last.place] ?? "")}, began {clock(last.start)}, waited {durationText(columns.waited_ms[last.place] ?? 0)}, ran {durationText((last.end ?? now.value) - last.start)}
            {!byWorker && columns.worker[last.place] && <span class="faint"> on {columns.worker[last.place]}</span>}
          </>
        )}
      </p>
      {!columns.complete && <p class="faint">The timeline has the first 2,000 jobs of this run.</p>}
    </div>
  );
}

function rowsOf(columns: Columns, byWorker: boolean): Rows {
  const numbers = new Map<string, number>();
  const bars: Bar[] = [];
  const byRow: Bar[][] = [];
  let [first, last] = [Infinity, -Infinity];
  columns.step.forEach((step, place) => {
    const name = byWorker ? (columns.worker[place] ?? "unknown worker") : step;
    const start = columns.started_ms[place];
    if (start === null || start === undefined) return;
    const row = numbers.get(name) ?? numbers.size;
    numbers.set(name, row);
    const end = columns.ended_ms[place] ?? null;
    const from = byWorker ? start : start - (columns.waited_ms[place] ?? 0); // It waited for a worker, not with one.
    const own = (byRow[row] ??= []);
    const taken = new Set(own.filter((one) => (one.end ?? Infinity) > start && one.start <= start).map((one) => one.lane));
    let lane = 0;
    while (taken.has(lane) && lane < LANES_MAX - 1) lane += 1;
    const bar = { row, lane, from, start, end, place };
    bars.push(bar);
    own.push(bar);
    first = Math.min(first, from);
    last = Math.max(last, end ?? start);
  });
  if (!bars.length) [first, last] = [0, 1];
  return { names: [...numbers.keys()], bars, byRow, first, last };
}

interface Scene {
  rows: Rows;
  columns: Columns;
  from: number;
  to: number;
  row: number;
  labels: number;
  top: number;
  end: number;
}

function draw(context: CanvasRenderingContext2D, width: number, height: number, colours: Palette, scene: Scene): void {
  const { rows, columns, from, to, labels, top } = scene;
  const x = (ms: number) => labels + ((ms - from) / (to - from)) * (width - labels);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  const firstRow = Math.max(0, Math.floor(top / ROW_H) - 1);
  const lastRow = Math.min(rows.names.length, Math.ceil((top + height) / ROW_H) + 1);
  axis(context, colours, scene, width, height, x);
  context.save();
  context.beginPath();
  context.rect(0, AXIS_H, width, height - AXIS_H);
  context.clip();
  for (let row = firstRow; row < lastRow; row += 1) {
    const y = AXIS_H + row * ROW_H - top;
    if (row === scene.row) {
      context.fillStyle = colours.hover;
      context.fillRect(0, y, width, ROW_H);
    }
    for (const bar of rows.byRow[row] ?? []) {
      const lanes = Math.min(LANES_MAX, 1 + Math.max(...(rows.byRow[row] ?? []).slice(0, 200).map((one) => one.lane)));
      const tall = (ROW_H - 8) / lanes;
      const barY = y + 4 + bar.lane * tall;
      const tone = toneOf(columns.state[bar.place] ?? "");
      const [begin, over] = [x(bar.start), x(bar.end ?? scene.end)];
      if (bar.start > bar.from) hatch(context, colours, Math.max(labels, x(bar.from)), barY, begin, tall);
      context.fillStyle = colours[tone];
      context.fillRect(Math.max(labels, begin), barY, Math.max(2, over - Math.max(labels, begin)), Math.max(2, tall - 1));
    }
    context.fillStyle = colours.panel;
    context.fillRect(0, y, labels - 6, ROW_H);
    context.fillStyle = row === scene.row ? colours.ink : colours.soft;
    context.save();
    context.beginPath();
    context.rect(0, y, labels - 10, ROW_H);
    context.clip();
    context.fillText((rows.names[row] ?? "").replace(/^local\/.*\//, "local …"), 8, y + ROW_H / 2);
    context.restore();
  }
  context.restore();
}

function hatch(context: CanvasRenderingContext2D, colours: Palette, left: number, y: number, right: number, tall: number): void {
  if (right - left < 1.5) return;
  context.save();
  context.beginPath();
  context.rect(left, y, right - left, Math.max(2, tall - 1));
  context.clip();
  context.strokeStyle = colours.wait;
  context.globalAlpha = 0.55;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = left - tall; at < right; at += 5) {
    context.moveTo(at, y + tall);
    context.lineTo(at + tall, y);
  }
  context.stroke();
  context.restore();
}

function axis(context: CanvasRenderingContext2D, colours: Palette, scene: Scene, width: number, height: number, x: (ms: number) => number): void {
  const { from, to, labels, rows } = scene;
  const wanted = ((to - from) / Math.max(1, width - labels)) * 110;
  const units = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000, 10_800_000, 43_200_000, 86_400_000];
  const step = units.find((one) => one >= wanted) ?? 86_400_000 * Math.ceil(wanted / 86_400_000);
  context.fillStyle = colours.faint;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = rows.first + Math.ceil((from - rows.first) / step) * step; at <= to; at += step) {
    const place = Math.round(x(at)) + 0.5;
    if (place < labels) continue;
    context.moveTo(place, AXIS_H - 4);
    context.lineTo(place, height);
    const since = at - rows.first;
    context.fillText(step < 1_000 ? `${Math.round(since)} ms` : shortDuration(since), place + 4, AXIS_H / 2);
  }
  context.stroke();
}
