/** The dashboard: finds out who is there, and shows the page of the address. */
import "./app.css";
import "./forms.css";
import { type JSX, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask } from "./client";
import { startLive } from "./live";
import { pageOf } from "./pages";
import { Login } from "./pages/login";
import { ProblemPage } from "./pages/problem";
import { asProblem, type Problem } from "./problem";
import { at, go, hrefIn } from "./router";
import { me, workspace } from "./session";
import { Head, Shell } from "./shell";
import { ProblemBox, Skeleton } from "./parts/states";

function App(): JSX.Element {
  const [problem, setProblem] = useState<Problem>();
  const path = at.value.path;
  const login = path === "/login";
  const code = /^\/problems\/([^/]+)\/?$/.exec(path)?.[1];
  const load = () => {
    setProblem(undefined);
    ask("GET /v1/me")
      .then((found) => (me.value = found))
      .catch((thrown: unknown) => {
        const found = asProblem(thrown);
        if (found.status !== 401) setProblem(found);
      });
  };
  useEffect(() => {
    if (!login && code === undefined) load();
  }, [workspace.value, login]);
  useEffect(() => {
    if (me.value && path === "/") go(hrefIn(me.value.workspace), { replace: true });
  }, [me.value, path]);
  if (code !== undefined) return <ProblemPage code={code} />;
  if (login || me.value === null) return <Login />;
  if (problem && !me.value) {
    return (
      <main class="alone">
        <ProblemBox problem={problem} again={load} />
      </main>
    );
  }
  if (!me.value || path === "/") return <Skeleton lines={3} />;
  const page = workspace.value ? pageOf(at.value.parts) : null;
  return (
    <Shell>
      {problem ? (
        <ProblemBox problem={problem} again={load} />
      ) : (
        (page ?? (
          <>
            <Head title="Page not found" />
            <p>
              <a href={hrefIn(me.value.workspace)}>Go to the overview</a>
            </p>
          </>
        ))
      )}
    </Shell>
  );
}

startLive();
const root = document.getElementById("app");
if (root) render(<App />, root);
