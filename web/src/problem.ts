/** What went wrong with a request: a problem document of the server (RFC 9457), or no answer at all. */
import type { Problem as Document } from "./api";

export const OFFLINE = "OFFLINE";

export class Problem extends Error {
  constructor(readonly document: Document) {
    super(document.detail);
  }

  get code(): string {
    return this.document.code;
  }

  get status(): number {
    return this.document.status;
  }

  get offline(): boolean {
    return this.code === OFFLINE;
  }
}

/** No answer came: the server stopped, or the network is gone. */
export function offline(): Problem {
  return new Problem({
    type: "/problems/OFFLINE",
    title: "The server is not responding",
    status: 0,
    detail: "The request got no response. The server may have stopped, or the network may be down.",
    instance: "",
    code: OFFLINE,
    retryable: true,
    hint: "This page keeps trying. To start the server: detent serve",
  });
}

/** The problem of an answer that is not a success, whatever its body is. */
export async function problemOf(answer: Response): Promise<Problem> {
  const text = await answer.text().catch(() => "");
  try {
    const found: unknown = JSON.parse(text);
    if (found && typeof found === "object" && "code" in found && "title" in found) return new Problem(found as Document);
  } catch {
    // Not a document of ours: a proxy answered.
  }
  return new Problem({
    type: "about:blank",
    title: `The server answered ${answer.status}`,
    status: answer.status,
    detail: text.slice(0, 300) || answer.statusText,
    instance: answer.headers.get("detent-request-id") ?? "",
    code: "UNEXPECTED_ANSWER",
    retryable: answer.status >= 500,
  });
}

/** Whatever was thrown, as a problem; a fault of the page itself is not hidden. */
export function asProblem(thrown: unknown): Problem {
  if (thrown instanceof Problem) return thrown;
  if (thrown instanceof TypeError && /fetch|network|load/i.test(thrown.message)) return offline();
  throw thrown;
}
