/** A dialog with a form: its fields by name, what it does, and the server's refusal where it was asked. */
import type { ComponentChildren, JSX } from "preact";
import { useId, useState } from "preact/hooks";
import { asProblem, type Problem } from "../problem";
import { Button, Dialog } from "./basics";
import { ProblemBox } from "./states";

export function FormDialog(props: {
  title: string;
  action: string;
  children: ComponentChildren;
  /** The command line that does the same. */
  line?: ComponentChildren;
  /** Gets what was filled in; several values of one name are joined by spaces. */
  submit: (said: Record<string, string>) => Promise<void>;
  onClose: () => void;
}): JSX.Element {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    const said: Record<string, string> = {};
    for (const [name, value] of new FormData(event.currentTarget as HTMLFormElement)) {
      said[name] = [said[name], String(value).trim()].filter(Boolean).join(" ");
    }
    setBusy(true);
    setProblem(undefined);
    try {
      await props.submit(said);
    } catch (thrown) {
      setProblem(asProblem(thrown));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        {props.children}
        {problem && <ProblemBox problem={problem} />}
        {props.line}
        <footer>
          <Button onClick={props.onClose}>Cancel</Button>
          <Button kind="main" type="submit" busy={busy}>
            {props.action}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

interface Field {
  name: string;
  label: string;
  hint?: string;
}

export function TextField(props: Field & { value?: string; required?: boolean; url?: boolean; maxLength?: number }): JSX.Element {
  const id = useId();
  return (
    <Labelled {...props} id={id}>
      <input id={id} name={props.name} type="text" inputMode={props.url ? "url" : "text"} defaultValue={props.value ?? ""} required={props.required ?? false} maxLength={props.maxLength ?? 200} autocomplete="off" spellcheck={false} aria-describedby={props.hint && `${id}-hint`} />
    </Labelled>
  );
}

export function NumberField(props: Field & { value: number; min: number; max: number }): JSX.Element {
  const id = useId();
  return (
    <Labelled {...props} id={id}>
      <input id={id} name={props.name} type="number" required min={props.min} max={props.max} defaultValue={String(props.value)} aria-describedby={props.hint && `${id}-hint`} />
    </Labelled>
  );
}

export function SelectField(props: Field & { options: [value: string, label: string][]; value?: string; onChange?: (value: string) => void }): JSX.Element {
  const id = useId();
  return (
    <Labelled {...props} id={id}>
      <select id={id} name={props.name} onChange={(event) => props.onChange?.(event.currentTarget.value)} aria-describedby={props.hint && `${id}-hint`}>
        {props.options.map(([value, label]) => (
          <option key={value} value={value} selected={value === props.value}>
            {label}
          </option>
        ))}
      </select>
    </Labelled>
  );
}

/** Several of a few. */
export function CheckFields(props: Field & { options: string[]; checked?: string[] }): JSX.Element {
  return (
    <fieldset>
      <legend>{props.label}</legend>
      <div class="checks">
        {props.options.map((one) => (
          <label key={one}>
            <input type="checkbox" name={props.name} value={one} defaultChecked={props.checked?.includes(one) ?? false} /> {one}
          </label>
        ))}
      </div>
      {props.hint && <p class="faint">{props.hint}</p>}
    </fieldset>
  );
}

function Labelled({ id, label, hint, children }: Field & { id: string; children: ComponentChildren }): JSX.Element {
  return (
    <div class="labelled">
      <label for={id}>{label}</label>
      {children}
      {hint && (
        <p class="faint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}
