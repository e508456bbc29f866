/** What a button does to a run or job: it asks the API, says what came of it, and shows the command that does the same. */
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { asProblem, type Problem } from "./problem";
import { lacks } from "./session";
import { Button, Confirm, CopyLine, Dialog, toast } from "./parts/basics";
import { ProblemBox } from "./parts/states";

interface Props {
  label: string;
  scope: string;
  /** The command line that does the same. */
  line: string;
  /** Asks first where it is given: what would be lost. */
  ask?: ComponentChildren;
  title?: string;
  kind?: "plain" | "main" | "danger";
  /** Does it, and gives what to say; undefined says nothing. */
  run: () => Promise<ComponentChildren | undefined>;
  /** Shown from outside: by a key. */
  open?: boolean;
  onClose?: () => void;
}

export function Action(props: Props): JSX.Element {
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const shown = asking || props.open === true;
  const close = () => {
    setAsking(false);
    props.onClose?.();
  };
  const run = async () => {
    setBusy(true);
    try {
      const said = await props.run();
      if (said !== undefined) toast(said);
      close();
    } catch (thrown) {
      close();
      setProblem(asProblem(thrown));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <Button kind={props.kind ?? "plain"} why={lacks(props.scope)} title={props.title ?? `$ ${props.line}`} busy={busy} onClick={() => (props.ask ? setAsking(true) : void run())}>
        {props.label}
      </Button>
      {shown && props.ask && (
        <Confirm title={`${props.label}?`} action={props.label} line={props.line} busy={busy} onYes={() => void run()} onClose={close}>
          <p>{props.ask}</p>
        </Confirm>
      )}
      {problem && (
        <Dialog title={`${props.label} was refused`} onClose={() => setProblem(undefined)}>
          <ProblemBox
            problem={problem}
            again={() => {
              setProblem(undefined);
              void run();
            }}
          />
          <CopyLine text={props.line} />
        </Dialog>
      )}
    </>
  );
}
