/**
 * Live events: one stream for the whole browser.
 *
 * Browsers allow six connections to a host on HTTP/1.1, so a stream for each tab would hang the seventh. One tab holds a Web Lock and
 * with it the stream; it relays every event over a BroadcastChannel. All tabs say which topics they want, and the leader has
 * the stream follow their union. Every tab remembers the last event's id: when the leader is closed, the next one goes on
 * exactly behind it. Where there are no Web Locks (plain HTTP on another machine) each tab reads again every 5 seconds.
 */
import { useEffect, useRef } from "preact/hooks";
import { effect, signal } from "@preact/signals";
import { Problem } from "./problem";
import { ask, fetched } from "./client";
import { me, workspace } from "./session";

export interface LiveEvent {
  /** `run`, `job`, `step`, `log`, `queue`, `worker`, `metrics`, `operated`; `again`: read what is shown once more. */
  event: string;
  data: Record<string, unknown>;
}
type Handler = (event: LiveEvent) => void;
type Message =
  | { type: "event"; event: LiveEvent; id: string | null }
  | { type: "state"; state: Connection; asOf: number }
  | { type: "want"; tab: string; topics: string[] }
  | { type: "bye"; tab: string }
  | { type: "who" };
export type Connection = "connecting" | "live" | "lost" | "polling";

export const connection = signal<Connection>("connecting");
/** When the server was heard last. */
export const asOf = signal(Date.now());

const POLL_MS = 5_000;
const BEAT_MS = 20_000;
/** Three beats of the server: a connection that is silent for longer is dead. */
const SILENT_MS = 45_000;
const TAB_GONE_MS = 50_000;
const TOPICS_MAX = 50;
const ALWAYS = ["runs"];
const tab = Math.random().toString(36).slice(2);
const handlers = new Map<symbol, { topics: string[]; handler: Handler }>();
let line: Line | undefined;

/** Follow topics while a part of a page is shown; it is also called with `again` when something may have been missed. */
export function useLive(topics: string[], handler: Handler): void {
  const current = useRef(handler);
  current.current = handler;
  const key = topics.join(",");
  useEffect(() => {
    if (!key) return;
    const mark = Symbol(key);
    handlers.set(mark, { topics: key.split(","), handler: (event) => current.current(event) });
    line?.wanted();
    return () => {
      handlers.delete(mark);
      line?.wanted();
    };
  }, [key]);
}

const QUICK_MS = 60;

/**
 * Call a function at most once in a while, and once more at the end. An event after a pause is answered at once and the next ones soon;
 * in a flood the while grows to `ms`: 500 events a second become two requests.
 */
export function coalesced(run: () => void, ms = 400): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = 0;
  let pause = QUICK_MS;
  return () => {
    if (timer !== undefined) return;
    const since = Date.now() - last;
    pause = since > 2 * pause ? QUICK_MS : Math.min(ms, pause * 1.4);
    timer = setTimeout(
      () => {
        timer = undefined;
        last = Date.now();
        run();
      },
      Math.max(0, pause - since),
    );
  };
}

/** Collect what happens between two frames and hand it over at once: 500 events a second are drawn at most 60 times. */
export function perFrame<T>(run: (batch: T[]) => void): (one: T) => void {
  let batch: T[] = [];
  const flush = () => {
    const whole = batch;
    batch = [];
    run(whole);
  };
  return (one) => {
    if (batch.push(one) > 1) return;
    // A page that is not seen has no frames.
    if (document.hidden) setTimeout(flush, QUICK_MS);
    else requestAnimationFrame(flush);
  };
}

function hand(event: LiveEvent): void {
  for (const one of [...handlers.values()]) one.handler(event);
}

function ownTopics(): string[] {
  return [...new Set([...ALWAYS, ...[...handlers.values()].flatMap((one) => one.topics)])];
}

/** This tab's end of the stream of one workspace. */
class Line {
  private readonly channel: BroadcastChannel;
  private readonly stop = new AbortController();
  private readonly wants = new Map<string, { topics: string[]; at: number }>();
  private readonly beat: ReturnType<typeof setInterval>;
  private lastId: string | null = null;
  private leader: Leader | undefined;
  private told: string[] = [];

  constructor(readonly own: string) {
    this.channel = new BroadcastChannel(`detent:${own}`);
    this.channel.onmessage = (message: MessageEvent<Message>) => this.heard(message.data);
    this.beat = setInterval(() => this.wanted(true), BEAT_MS);
    void navigator.locks
      .request(`detent-live:${own}`, { signal: this.stop.signal }, () => this.lead())
      .catch(() => undefined);
    this.send({ type: "who" });
    this.wanted(true);
  }

  end(): void {
    this.send({ type: "bye", tab });
    this.stop.abort();
    this.leader?.end();
    clearInterval(this.beat);
    this.channel.close();
  }

  /** Say what this tab wants. */
  wanted(again = false): void {
    const topics = ownTopics();
    if (!again && topics.join() === this.told.join()) return;
    this.told = topics;
    this.send({ type: "want", tab, topics });
    this.want(tab, topics);
  }

  private want(name: string, topics: string[]): void {
    const now = Date.now();
    this.wants.set(name, { topics, at: now });
    for (const [other, one] of this.wants) if (now - one.at > TAB_GONE_MS && other !== tab) this.wants.delete(other);
    this.leader?.follow(this.union());
  }

  private union(): string[] {
    return [...new Set([...this.wants.values()].flatMap((one) => one.topics))].slice(0, TOPICS_MAX);
  }

  private heard(message: Message): void {
    if (message.type === "event") {
      this.lastId = message.id ?? this.lastId;
      hand(message.event);
    } else if (message.type === "state") {
      connection.value = message.state;
      asOf.value = message.asOf;
    } else if (message.type === "want") this.want(message.tab, message.topics);
    else if (message.type === "bye") this.wants.delete(message.tab);
    else if (message.type === "who") {
      this.wanted(true);
      if (this.leader) this.say(connection.value);
    }
  }

  private async lead(): Promise<void> {
    this.send({ type: "who" });
    this.leader = new Leader(
      this.lastId,
      (state) => this.say(state),
      (event, id) => {
        this.lastId = id ?? this.lastId;
        asOf.value = Date.now();
        this.send({ type: "event", event, id });
        hand(event);
      },
    );
    addEventListener("offline", this.leader.network);
    addEventListener("online", this.leader.network);
    await this.leader.run(this.union());
    removeEventListener("offline", this.leader.network);
    removeEventListener("online", this.leader.network);
  }

  private say(state: Connection): void {
    if (state === "live") asOf.value = Date.now();
    connection.value = state;
    this.send({ type: "state", state, asOf: asOf.value });
  }

  private send(message: Message): void {
    try {
      this.channel.postMessage(message);
    } catch {
      // Closed a moment ago.
    }
  }
}

/** The tab that holds the stream. */
class Leader {
  private topics: string[] = [];
  private stream: string | null = null;
  private over = false;
  private abort = new AbortController();
  private wake: () => void = () => undefined;
  private putting = false;

  constructor(
    private id: string | null,
    private readonly say: (state: Connection) => void,
    private readonly told: (event: LiveEvent, id: string | null) => void,
  ) {}

  end(): void {
    this.over = true;
    this.abort.abort();
    this.wake();
  }

  /** The network went, or came back: what is open may be dead without anyone having said so. */
  network = (): void => {
    this.abort.abort();
    this.wake();
  };

  follow(topics: string[]): void {
    const before = [...this.topics].sort().join();
    this.topics = topics;
    if ([...topics].sort().join() !== before) void this.change();
  }

  /** Have the open stream follow other topics; what happened before it did is read again. */
  private async change(): Promise<void> {
    if (this.stream === null || this.putting) return;
    this.putting = true;
    const topics = this.topics;
    try {
      await ask("PUT /v1/events/{stream}/topics", { path: { stream: this.stream }, body: { topics } });
      this.told({ event: "again", data: {} }, null);
    } catch (thrown) {
      if (thrown instanceof Problem && thrown.offline) return;
      this.abort.abort(); // Opened anew, with what it may follow.
    } finally {
      this.putting = false;
      if (this.topics !== topics) void this.change();
    }
  }

  async run(topics: string[]): Promise<void> {
    this.topics = topics;
    let wait = 250;
    while (!this.over) {
      const began = Date.now();
      try {
        wait = (await this.open()) ?? wait;
      } catch (thrown) {
        if (thrown instanceof Problem && thrown.status === 401) return;
        if (thrown instanceof Problem && [403, 404, 422].includes(thrown.status)) this.topics = this.topics.filter((one) => !one.includes(":"));
        if (thrown instanceof Problem && thrown.code === "FORBIDDEN") this.topics = ALWAYS;
      }
      this.stream = null;
      if (this.over) return;
      this.say("lost");
      if (Date.now() - began > 5_000) wait = 250;
      await new Promise<void>((done) => {
        this.wake = done;
        setTimeout(done, wait * (0.75 + Math.random() / 2));
      });
      wait = Math.min(wait * 2, 8_000);
    }
  }

  /** One connection, until it ends; gives how long to wait where the server says it. */
  private async open(): Promise<number | undefined> {
    this.abort = new AbortController();
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (this.id) headers["Last-Event-ID"] = this.id;
    const asked = this.topics;
    const answer = await fetched("GET /v1/events", { query: { topics: asked.join(",") }, headers, signal: this.abort.signal });
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let left = "";
    let retry: number | undefined;
    while (reader) {
      const silent = setTimeout(() => this.abort.abort(), SILENT_MS);
      const { done, value } = await reader.read().finally(() => clearTimeout(silent));
      if (done) break;
      left += value;
      const frames = left.split("\n\n");
      left = frames.pop() ?? "";
      for (const frame of frames) retry = this.frame(frame, asked) ?? retry;
    }
    return retry;
  }

  private frame(text: string, asked: string[]): number | undefined {
    const fields: Record<string, string> = {};
    for (const one of text.split("\n")) {
      const colon = one.indexOf(": ");
      if (colon > 0) fields[one.slice(0, colon)] = one.slice(colon + 2);
    }
    if (fields.id) this.id = fields.id;
    if (!fields.event || !fields.data) {
      this.say("live"); // A sign of life.
      return undefined;
    }
    const data = JSON.parse(fields.data) as Record<string, unknown>;
    if (fields.event === "hello") {
      this.stream = String(data.stream);
      this.say("live");
      if (!data.resumed) this.told({ event: "again", data: {} }, null);
      if (this.topics !== asked) void this.change();
    } else if (fields.event === "reset") {
      if (!("topics" in data)) this.told({ event: "again", data: {} }, null);
    } else if (fields.event === "bye") return Number(data.retry_ms ?? 1_000);
    else this.told({ event: fields.event, data }, fields.id ?? null);
    return undefined;
  }
}

/** Begin, and begin anew for another workspace or user. */
export function startLive(): void {
  let poll: ReturnType<typeof setInterval> | undefined;
  effect(() => {
    const own = workspace.value;
    const known = !!me.value;
    line?.end();
    line = undefined;
    clearInterval(poll);
    if (!own || !known) return;
    if ("locks" in navigator && "BroadcastChannel" in globalThis) line = new Line(own);
    else {
      connection.value = "polling";
      poll = setInterval(() => hand({ event: "again", data: {} }), POLL_MS);
    }
  });
  addEventListener("pagehide", () => line?.end());
  addEventListener("pageshow", (event) => {
    if (event.persisted && workspace.value && me.value) line = new Line(workspace.value);
  });
}
