/** Above and below a list: what is new, how much is shown, the next page, and the command that lists the same. */
import type { JSX } from "preact";
import type { List } from "../lists";
import { count, counted } from "../format";
import { Button, CopyLine } from "./basics";
import { ProblemBox } from "./states";

export function Fresh<Row>({ list, noun, plural }: { list: List<Row>; noun: string; plural?: string }): JSX.Element {
  return (
    <div role="status">
      {list.fresh > 0 && (
        <button type="button" class="fresh" onClick={list.showFresh}>
          Show {counted(list.fresh, `new ${noun}`, `new ${plural ?? `${noun}s`}`)}
        </button>
      )}
    </div>
  );
}

export function ListFoot<Row>({ list, line }: { list: List<Row>; line: string }): JSX.Element {
  return (
    <footer class="listfoot">
      <span class="faint">{count(list.rows.length)} shown</span>
      {list.more && (
        <Button onClick={list.more} busy={list.loadingMore}>
          {list.loadingMore ? "Loading…" : "Show older"}
        </Button>
      )}
      {list.problem && <ProblemBox problem={list.problem} again={list.more} />}
      <CopyLine text={line} />
    </footer>
  );
}
