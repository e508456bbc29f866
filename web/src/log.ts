/**
 * What one stream of one attempt printed, read by offset. A log up to `WHOLE_BYTES` is there whole, with line numbers; of a larger one
 * there is a window, which begins at an offset that the address has. Live pieces are appended where they fit; a gap is read.
 */
import { signal } from "@preact/signals";
import { fetched } from "./client";
import { asProblem, type Problem } from "./problem";

export const WHOLE_BYTES = 16 * 1024 * 1024;
const PIECE_BYTES = 1024 * 1024;
const TAIL_BYTES = 4 * 1024 * 1024;

export type StreamName = "stdout" | "stderr";
export interface LogPlace {
  job: string;
  attempt: number;
  stream: StreamName;
}

export class Log {
  readonly lines = signal<string[]>([]);
  readonly loading = signal(true);
  readonly problem = signal<Problem | undefined>(undefined);
  /** `here`, `erased`, `absent`, `damaged`. */
  readonly content = signal("here");
  readonly truncated = signal(false);
  readonly ended = signal(false);
  /** The offset of the first byte that is there. */
  readonly from = signal(0);
  private next = 0;
  private decoder = new TextDecoder();
  private left = "";
  private busy = false;
  private gone = false;

  constructor(
    readonly place: LogPlace,
    /** As far as known; 0 while it runs. */
    readonly size: number,
    begin: number | null,
  ) {
    const tail = size > WHOLE_BYTES ? size - TAIL_BYTES : 0;
    this.next = begin ?? tail;
    this.from.value = this.next;
    void this.read();
  }

  end(): void {
    this.gone = true;
  }

  /** Read on until the end that there is now, or the window is full. */
  async read(): Promise<void> {
    if (this.busy || this.gone) return;
    this.busy = true;
    try {
      while (!this.gone && this.next - this.from.value < WHOLE_BYTES) {
        const before = this.next;
        const { job, attempt, stream } = this.place;
        const answer = await fetched("GET /v1/jobs/{job_id}/logs", {
          path: { job_id: job },
          query: { ...(attempt > 0 && { attempt }), stream, offset: this.next, limit: PIECE_BYTES },
          headers: { Accept: "text/plain" },
        });
        const data = new Uint8Array(await answer.arrayBuffer());
        if (this.gone) return;
        this.next = Number(answer.headers.get("detent-log-next") ?? before + data.length);
        this.content.value = answer.headers.get("detent-log-content") ?? "here";
        this.truncated.value = answer.headers.get("detent-log-truncated") === "true";
        this.ended.value = answer.headers.get("detent-log-end") === "true";
        this.append(this.decoder.decode(data, { stream: true }));
        this.problem.value = undefined;
        if (this.next === before || this.ended.value) break;
      }
      if (this.ended.value && this.left) {
        this.lines.value = [...this.lines.value, this.left];
        this.left = "";
      }
    } catch (thrown) {
      this.problem.value = asProblem(thrown);
    } finally {
      this.busy = false;
      this.loading.value = false;
    }
  }

  /** A live piece. */
  told(offset: number, text: string): void {
    if (this.busy || this.gone) return;
    if (offset !== this.next) return void this.read(); // Something is missing, or it is known already.
    this.next += new TextEncoder().encode(text).length;
    this.append(text);
  }

  private append(text: string): void {
    const parts = (this.left + text).split("\n");
    this.left = parts.pop() ?? "";
    if (parts.length) this.lines.value = this.lines.value.concat(parts);
  }
}
