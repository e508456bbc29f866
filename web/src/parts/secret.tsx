/** A secret that the server tells once. */
import type { JSX } from "preact";
import { Copy } from "./basics";

export function Secret({ value }: { value: string }): JSX.Element {
  return (
    <>
      <p>
        <b>Copy it now.</b> It is shown only once: the server keeps just a digest.
      </p>
      <p class="secret">
        <code>{value}</code> <Copy text={value} label="Copy the secret" />
      </p>
    </>
  );
}
