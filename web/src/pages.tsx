/** The pages: what is in the navigation, and which page an address shows. A new page is a line in each. */
import type { JSX } from "preact";
import { Audit } from "./pages/audit";
import { Deliveries } from "./pages/deliveries";
import { Diff } from "./pages/diff";
import { JobPage } from "./pages/job";
import { Jobs } from "./pages/jobs";
import { Keys } from "./pages/keys";
import { Members } from "./pages/members";
import { Overview } from "./pages/overview";
import { QueuePage } from "./pages/queue";
import { RunPage } from "./pages/run";
import { Runs } from "./pages/runs";
import { Schedules } from "./pages/schedules";
import { Sessions } from "./pages/sessions";
import { Verify } from "./pages/verify";
import { Webhooks } from "./pages/webhooks";
import { Workers } from "./pages/workers";
import { may } from "./session";

export interface Destination {
  label: string;
  /** The words of its path behind the workspace. */
  path: string[];
  /** `g` and this key. */
  key?: string;
  /** Begins a group. */
  group?: boolean;
  /** Shown to those who have it. */
  scope?: string;
}

const NAVIGATION: Destination[] = [
  { label: "Overview", path: [], key: "o" },
  { label: "Runs", path: ["runs"], key: "r" },
  { label: "Jobs", path: ["jobs"], key: "j" },
  { label: "Queue", path: ["queue"], key: "q", scope: "queue:read" },
  { label: "Workers", path: ["workers"], key: "w", scope: "workers:read" },
  { label: "Schedules", path: ["schedules"], key: "s" },
  { label: "Sessions", path: ["sessions"], scope: "sessions:read" },
  { label: "Verify", path: ["verify"], key: "v", group: true, scope: "ledger:read" },
  { label: "Audit", path: ["audit"], key: "a", scope: "audit:read" },
  { label: "Keys", path: ["settings", "keys"], group: true, scope: "keys:write" },
  { label: "Members", path: ["settings", "members"], scope: "members:write" },
  { label: "Webhooks", path: ["settings", "webhooks"], scope: "webhooks:write" },
];

/** The pages that the credential can read. */
export function destinations(): Destination[] {
  return NAVIGATION.filter((one) => !one.scope || may(one.scope));
}

type Named = Record<string, string>;
const PAGES: [pattern: string, page: (named: Named) => JSX.Element][] = [
  ["", () => <Overview />],
  ["runs", () => <Runs />],
  ["runs/{run}", ({ run = "" }) => <RunPage key={run} id={run} />],
  ["jobs", () => <Jobs />],
  ["jobs/{job}", ({ job = "" }) => <JobPage key={job} id={job} />],
  ["diff/{before}/{after}", ({ before = "", after = "" }) => <Diff key={`${before} ${after}`} before={before} after={after} />],
  ["queue", () => <QueuePage />],
  ["workers", () => <Workers />],
  ["schedules", () => <Schedules />],
  ["sessions", () => <Sessions />],
  ["verify", () => <Verify />],
  ["audit", () => <Audit />],
  ["settings/keys", () => <Keys />],
  ["settings/members", () => <Members />],
  ["settings/webhooks", () => <Webhooks />],
  ["settings/webhooks/{hook}", ({ hook = "" }) => <Deliveries key={hook} id={hook} />],
];

/** The page of the parts of a path behind the workspace; null where there is none. */
export function pageOf(given: string[]): JSX.Element | null {
  const words = given.length ? given : [""];
  for (const [pattern, page] of PAGES) {
    const parts = pattern.split("/");
    if (parts.length !== words.length) continue;
    const named: Named = {};
    const fits = parts.every((part, place) => {
      const word = words[place] ?? "";
      if (!part.startsWith("{")) return part === word;
      named[part.slice(1, -1)] = word;
      return word !== "";
    });
    if (fits) return page(named);
  }
  return null;
}
