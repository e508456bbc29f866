/**
 * A table with keyboard and, where it is long, virtual rows: only what is seen is in the document.
 *
 * `j`/`k` or the arrows move the focus, Enter opens, `x` selects. Below 720 px a row becomes a card of its cells; the heads are
 * then said by the cells themselves where a column has a `short` label.
 */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { go } from "../router";
import { narrow } from "../session";
import { useKeys } from "../keys";

export interface Column<Row> {
  name: string;
  head: ComponentChildren;
  cell: (row: Row) => ComponentChildren;
  /** `num` right-aligned, `grow` takes what is left, `main` the first line of a card. */
  kind?: "num" | "grow" | "main";
  /** What stands before the value in a card. */
  short?: string;
}

/** The head of a column of buttons and links: said to those who hear it. */
export const ACTIONS: JSX.Element = <span class="visually-hidden">Actions</span>;

interface Props<Row> {
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  rowKey: (row: Row) => string;
  href?: (row: Row) => string;
  onOpen?: (row: Row) => void;
  selected?: ReadonlySet<string>;
  onSelect?: (key: string) => void;
  /** A line below a row: why it failed. Not for virtual tables. */
  below?: (row: Row) => ComponentChildren;
  /** The row that is current: its key. */
  current?: string | undefined;
}

const VIRTUAL_FROM = 200;
const ROW_PX = 33;
const CARD_PX = 78;
const BEYOND = 12;

export function Table<Row>(props: Props<Row>): JSX.Element {
  const { rows, columns, rowKey } = props;
  const [focused, setFocused] = useState(0);
  const body = useRef<HTMLTableSectionElement>(null);
  const virtual = rows.length > VIRTUAL_FROM;
  const height = narrow.value ? CARD_PX : ROW_PX;
  const [first, last] = useWindow(body, rows.length, height, virtual);
  const wanted = useRef<number | null>(null);

  const focus = (place: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, place));
    setFocused(next);
    wanted.current = next;
    if (virtual && (next < first || next >= last)) {
      const top = (body.current?.getBoundingClientRect().top ?? 0) + scrollY;
      scrollTo({ top: top + next * height - innerHeight / 2 });
    }
    focusRow(body.current, next);
  };
  useLayoutEffect(() => {
    if (wanted.current !== null && focusRow(body.current, wanted.current)) wanted.current = null;
  });

  const open = (place: number) => {
    const row = rows[place];
    if (row === undefined) return;
    if (props.onOpen) props.onOpen(row);
    else if (props.href) go(props.href(row));
  };
  useKeys(props.label, {
    j: ["next row", () => focus(document.activeElement?.closest("tbody") === body.current ? focused + 1 : focused)],
    k: ["previous row", () => focus(focused - 1)],
    ...(props.onSelect && {
      x: [
        "select the row",
        () => {
          const row = rows[focused];
          if (row !== undefined) props.onSelect?.(rowKey(row));
        },
      ],
    }),
  });
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -rows.length, End: rows.length }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      focus(focused + step);
    } else if (event.key === "Enter" && (event.target as Element).tagName === "TR") {
      event.preventDefault();
      open(focused);
    }
  };
  const place = Math.min(focused, Math.max(0, rows.length - 1));
  return (
    <table class="table" role="grid" aria-label={props.label} aria-rowcount={rows.length + 1} aria-multiselectable={props.onSelect ? true : undefined}>
      <thead>
        <tr role="row" aria-rowindex={1}>
          {columns.map((column) => (
            <th key={column.name} role="columnheader" scope="col" class={column.kind ?? ""}>
              {column.head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody ref={body} onKeyDown={onKeyDown}>
        {virtual && <Spacer px={first * height} columns={columns.length} />}
        {rows.slice(first, last).map((row, offset) => {
          const index = first + offset;
          const key = rowKey(row);
          const below = props.below?.(row);
          return [
            <tr
              key={key}
              role="row"
              data-place={index}
              class={`${props.href || props.onOpen ? "opens" : ""}${props.current === key ? " current" : ""}${below ? " has-below" : ""}`}
              tabIndex={index === place ? 0 : -1}
              aria-rowindex={index + 2}
              aria-selected={props.onSelect ? (props.selected?.has(key) ?? false) : undefined}
              onFocus={() => setFocused(index)}
              onClick={(event) => {
                if ((event.target as Element).closest("a, button, input") || getSelection()?.toString()) return;
                if (event.shiftKey && props.onSelect) props.onSelect(key);
                else open(index);
              }}
            >
              {columns.map((column) => (
                <td key={column.name} role="gridcell" class={column.kind ?? ""} data-short={column.short}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>,
            below && (
              <tr key={`${key} below`} role="row" class="below">
                <td role="gridcell" colSpan={columns.length}>
                  {below}
                </td>
              </tr>
            ),
          ];
        })}
        {virtual && <Spacer px={(rows.length - last) * height} columns={columns.length} />}
      </tbody>
    </table>
  );
}

function Spacer({ px, columns }: { px: number; columns: number }): JSX.Element | null {
  if (px <= 0) return null;
  return (
    <tr class="spacer" aria-hidden="true">
      <td colSpan={columns} style={{ height: `${px}px` }} />
    </tr>
  );
}

function focusRow(body: HTMLElement | null, place: number): boolean {
  const row = body?.querySelector<HTMLElement>(`tr[data-place="${place}"]`);
  row?.focus({ preventScroll: true });
  row?.scrollIntoView({ block: "nearest" });
  return !!row;
}

/** Which rows are near the window. */
function useWindow(body: { current: HTMLElement | null }, total: number, height: number, virtual: boolean): [number, number] {
  const [range, setRange] = useState<[number, number]>([0, 60]);
  useEffect(() => {
    if (!virtual) return;
    let frame = 0;
    const look = () => {
      frame = 0;
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / height) - BEYOND);
      const last = Math.min(total, Math.ceil((innerHeight - top) / height) + BEYOND);
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, Math.max(last, first)]));
    };
    const soon = () => {
      if (!frame) frame = requestAnimationFrame(look);
    };
    look();
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
    };
  }, [total, height, virtual]);
  return virtual ? range : [0, total];
}
