/** Begins a browser session: by the token of a link, which is in the fragment and never sent, or by an API key. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../client";
import { asProblem, type Problem } from "../problem";
import { forget } from "../resource";
import { at, go, hrefIn } from "../router";
import { me } from "../session";
import { Button, CopyLine } from "../parts/basics";
import { Mark } from "../shell";

export function Login(): JSX.Element {
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(location.hash.startsWith("#dtl_"));
  const field = useRef<HTMLInputElement>(null);

  const enter = async () => {
    const known = await ask("GET /v1/me");
    me.value = known;
    // A page that asked for the login is shown now; its address was kept.
    if (at.value.path === "/login") go(hrefIn(known.workspace), { replace: true });
  };
  const logIn = async (token: string) => {
    setBusy(true);
    setProblem(undefined);
    try {
      await ask("POST /v1/login", { body: { token } });
      forget();
      await enter();
    } catch (thrown) {
      setProblem(asProblem(thrown));
      setBusy(false);
      field.current?.focus();
    }
  };
  useEffect(() => {
    document.title = "Log in · Detent";
    const token = location.hash.slice(1);
    if (at.value.path === "/login" && token) {
      go("/login", { replace: true }); // Before anything else: the token does not stay in the history.
      void logIn(token);
    } else if (me.value !== null) void enter().catch(() => field.current?.focus());
    else field.current?.focus();
  }, []);

  return (
    <main class="login">
      <h1>
        <Mark /> Detent
      </h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const token = field.current?.value.trim() ?? "";
          if (field.current) field.current.value = "";
          if (token) void logIn(token);
        }}
      >
        <label for="token">API key</label>
        <input id="token" ref={field} type="password" autocomplete="off" spellcheck={false} required maxLength={100} placeholder="dtk_…" />
        <Button type="submit" kind="main" busy={busy}>
          {busy ? "Logging in…" : "Log in"}
        </Button>
        {problem && (
          <p role="alert" class="tone-bad">
            {problem.document.detail}
            {problem.document.hint ? `. ${problem.document.hint}` : ""}
          </p>
        )}
      </form>
      <p class="faint">Or open the link that the server printed. For another one:</p>
      <CopyLine text="detent serve --login" />
    </main>
  );
}
