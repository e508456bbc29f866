/**
 * Output of programs as text. Colours of ANSI become classes; every other escape is left out; markup is text like all else.
 */
import type { JSX } from "preact";

interface Style {
  fg: string;
  bold: boolean;
  dim: boolean;
}
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// Control sequences, operating system commands, and single escapes.
const ESCAPE = /\x1b(?:\[([0-9;:?]*)([ -/]*[@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_]|[ -/]+[0-~])/g;
// What is left of control characters would move the cursor or hide text.
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export interface Span {
  text: string;
  css: string;
}

/** The pieces of a line, each with the classes of its colours. */
export function spans(text: string): Span[] {
  const found: Span[] = [];
  let style: Style = { fg: "", bold: false, dim: false };
  let from = 0;
  const put = (piece: string) => {
    const clean = lastOverwrite(piece).replace(CONTROL, "�");
    if (clean) found.push({ text: clean, css: [style.fg && `fg-${style.fg}`, style.bold && "fg-bold", style.dim && "fg-dim"].filter(Boolean).join(" ") });
  };
  for (const match of text.matchAll(ESCAPE)) {
    put(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m") style = styled(style, match[1] ?? "");
  }
  put(text.slice(from));
  return found;
}

/** A carriage return begins the line anew, as progress bars do: the last state is shown. */
function lastOverwrite(text: string): string {
  const plain = text.replace(/\r+\n?$/, (end) => (end.endsWith("\n") ? "\n" : ""));
  const place = plain.lastIndexOf("\r");
  return place < 0 ? plain : plain.slice(place + 1);
}

function styled(style: Style, codes: string): Style {
  const next = { ...style };
  const numbers = codes.split(/[;:]/).map(Number);
  for (let place = 0; place < numbers.length; place += 1) {
    const code = numbers[place] ?? 0;
    if (code === 0) Object.assign(next, { fg: "", bold: false, dim: false });
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 22) Object.assign(next, { bold: false, dim: false });
    else if (code >= 30 && code <= 37) next.fg = NAMES[code - 30] ?? "";
    else if (code >= 90 && code <= 97) next.fg = NAMES[code - 90] ?? "";
    else if (code === 39) next.fg = "";
    else if (code === 38 || code === 48) {
      const kind = numbers[place + 1];
      if (code === 38 && kind === 5) next.fg = NAMES[(numbers[place + 2] ?? 0) % 8] ?? "";
      place += kind === 5 ? 2 : kind === 2 ? 4 : 1;
    }
  }
  return next;
}

export function Ansi({ text, mark }: { text: string; mark?: string | undefined }): JSX.Element {
  return (
    <>
      {spans(text).map((one, place) => (
        <span key={place} class={one.css || undefined}>
          {mark ? marked(one.text, mark) : one.text}
        </span>
      ))}
    </>
  );
}

/** The text with what was searched for marked. */
function marked(text: string, mark: string): (string | JSX.Element)[] {
  const parts = text.split(mark);
  return parts.flatMap((part, place) => (place ? [<mark key={place}>{mark}</mark>, part] : [part]));
}
