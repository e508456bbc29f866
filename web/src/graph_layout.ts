/**
 * Where the steps of a graph stand: waves from left to right, ordered within each so that edges cross little (barycentres, four sweeps).
 * A wave with very many steps takes several columns, so that 10,000 independent steps are a block and not a thread.
 */
import type { Graph } from "./api";

export const NODE_W = 176;
export const NODE_H = 34;
const GAP_X = 56;
const GAP_Y = 12;
const INNER_X = 14;
const SWEEPS = 4;

export interface Layout {
  x: Float32Array;
  y: Float32Array;
  width: number;
  height: number;
  /** The rows of each wave from top to bottom. */
  waves: number[][];
  before: number[][];
  after: number[][];
}

export function layout(graph: Graph): Layout {
  const total = graph.steps.length;
  const before: number[][] = Array.from({ length: total }, () => []);
  const after: number[][] = Array.from({ length: total }, () => []);
  for (const [from = 0, to = 0] of graph.edges) {
    after[from]?.push(to);
    before[to]?.push(from);
  }
  const waves: number[][] = [];
  graph.wave.forEach((wave, row) => (waves[wave] ??= []).push(row));
  const place = new Float32Array(total);
  const number = () => waves.forEach((wave) => wave.forEach((row, index) => (place[row] = (index + 0.5) / wave.length)));
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const wave of down ? waves : [...waves].reverse()) order(wave, down ? before : after, place);
    number();
  }
  const rowsMax = Math.max(10, Math.min(120, Math.ceil(Math.sqrt(total * 2.2))));
  const x = new Float32Array(total);
  const y = new Float32Array(total);
  let left = 0;
  const tallest = Math.min(rowsMax, Math.max(...waves.map((wave) => wave.length), 1));
  for (const wave of waves) {
    const columns = Math.ceil(wave.length / rowsMax);
    const rows = Math.ceil(wave.length / columns);
    const top = ((tallest - rows) * (NODE_H + GAP_Y)) / 2;
    wave.forEach((row, index) => {
      x[row] = left + Math.floor(index / rows) * (NODE_W + INNER_X);
      y[row] = top + (index % rows) * (NODE_H + GAP_Y);
    });
    left += columns * (NODE_W + INNER_X) - INNER_X + GAP_X;
  }
  return { x, y, width: Math.max(NODE_W, left - GAP_X), height: tallest * (NODE_H + GAP_Y) - GAP_Y, waves, before, after };
}

/** Order a wave by the mean place of its neighbours; a step without any stays where it is. */
function order(wave: number[], neighbours: number[][], place: Float32Array): void {
  const mean = new Map<number, number>();
  for (const row of wave) {
    const near = neighbours[row] ?? [];
    let sum = 0;
    for (const one of near) sum += place[one] ?? 0;
    mean.set(row, near.length ? sum / near.length : (place[row] ?? 0));
  }
  wave.sort((one, other) => (mean.get(one) ?? 0) - (mean.get(other) ?? 0));
}
