"""Submit a job to a Detent server, wait for its end, and end like it: 0 succeeded, 1 failed, 3 refused, 4 not reachable.

    DETENT_URL=http://127.0.0.1:7733 DETENT_KEY=dtk_... python submit_and_wait.py job.json [IDEMPOTENCY-KEY]

The file is the body of POST /v1/jobs: {"task": {...}} or {"payload": {...}}. With a key, a step of CI that is run again gets the job
of its first run.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FAILED, REFUSED, UNREACHABLE = 1, 3, 4


def ask(method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Send one request; the answer's document."""
    request = urllib.request.Request(  # noqa: S310 - the address is the operator's
        os.environ["DETENT_URL"] + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {os.environ['DETENT_KEY']}", "Content-Type": "application/json", **headers},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=90) as answer:  # noqa: S310
        return json.load(answer)


def main() -> int:
    """Submit, wait, and say how it ended."""
    body = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    headers = {"Idempotency-Key": sys.argv[2]} if len(sys.argv) > 2 else {}
    try:
        path = ask("POST", "/v1/jobs", body, **headers)["links"]["self"]
        job = ask("GET", f"{path}?wait=60")
        while job["status"] in ("queued", "running"):
            job = ask("GET", f"{path}?wait=60")
    except urllib.error.HTTPError as exc:
        problem = json.load(exc)
        print(f"{problem['code']}: {problem['detail']}", file=sys.stderr)
        return UNREACHABLE if exc.code >= 500 else REFUSED
    except urllib.error.URLError as exc:
        print(f"no answer: {exc.reason}", file=sys.stderr)
        return UNREACHABLE
    result = job["value"] if job["kind"] == "task" else (job["result"] or {}).get("outputs")
    print(json.dumps({"job_id": job["job_id"], "status": job["status"], "result": result}))
    return 0 if job["status"] == "succeeded" else FAILED


if __name__ == "__main__":
    sys.exit(main())
