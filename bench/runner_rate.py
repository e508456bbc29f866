"""What a runner costs beside the bare sandbox, and what each tool takes from payload to stored artifact."""

from __future__ import annotations

import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detent.artifacts.api import DirectoryStore
from detent.canon import digest_text
from detent.errors import Refused
from detent.executor.runners import Runners, missing_tools
from detent.executor.sandbox import Job, Sandbox
from detent.jobs import complete_payload, read_payload

HEAD: dict[str, Any] = {
    "schema_version": "1.0",
    "job_id": "0b5f7a52-6f0e-4c1d-9d6a-2f6f5f6d7c01",
    "workspace_id": "w",
    "project_id": "p",
    "document_id": "d",
    "document_revision_id": "r",
}
AT = "2026-01-10T10:00:00Z"
NO_OP = "def main(): return None"


def main() -> None:
    runs = 60 if "--full" in sys.argv else 20
    with Sandbox(warm=4) as supervisor, tempfile.TemporaryDirectory() as directory:
        store = DirectoryStore(Path(directory) / "content")
        runners = Runners(supervisor, store)
        bare = median_ms(supervisor, lambda: supervisor.run(Job(source=NO_OP, entry="main")), runs)
        print(f"no-op in a waiting jail, bare supervisor:  p50 {bare:7.2f} ms")
        for name, draft in drafts(store).items():
            if missing_tools(draft["job_type"]):
                print(f"{name}: not installed")
                continue
            payload = complete_payload(
                read_payload({**HEAD, **draft}),
                created_at=AT,
                user_id="u",
                env_version=runners.env_version(draft["job_type"]),
                nonce="00" * 16,
            )

            def run(payload: Any = payload) -> object:
                result = runners.run(payload, now=lambda: AT, nonce="11" * 16)
                if isinstance(result, Refused) or result.error is not None:
                    raise SystemExit(f"a benchmark job failed: {result}")
                return result

            taken = median_ms(supervisor, run, runs)
            print(f"{name:41}  p50 {taken:7.2f} ms   ({taken / bare:.1f} times the bare no-op)")


def drafts(store: DirectoryStore) -> dict[str, dict[str, Any]]:
    target = {"target": {"object_id": "o"}}
    code = {"type": "code", "content": {"format": "python", "value": NO_OP}}
    formula = {"type": "equation", "content": {"format": "latex", "value": r"\frac{a}{b} + \int_0^1 x^2 dx"}}
    document = {"format": "blockdoc", "value": {"blocks": [{"type": "text", "text": "hello"}]}}
    return {
        "object_execute, no-op, through a runner": {
            **target,
            "job_type": "object_execute",
            "inputs": {"object": code},
            "output_spec": {"formats": ["json"]},
        },
        "object_render, a formula, SVG and PNG": {
            **target,
            "job_type": "object_render",
            "inputs": {"object": formula},
            "output_spec": {"formats": ["svg", "png"]},
        },
        "document_export, one paragraph, PDF": {
            "job_type": "document_export",
            "inputs": {"export_format": "pdf", "content": document},
            "output_spec": {"formats": ["pdf"]},
        },
        "thumbnail_generate, 2 megapixels, PNG": {
            "job_type": "thumbnail_generate",
            "inputs": {"width": 320, "height": 180, "content_digest": picture(store)},
            "output_spec": {"formats": ["png"]},
        },
    }


def picture(store: DirectoryStore) -> str:
    if missing_tools("thumbnail_generate"):
        return digest_text(bytes(32))
    from PIL import Image  # noqa: PLC0415  # may be missing

    out = io.BytesIO()
    Image.linear_gradient("L").resize((1600, 1250)).convert("RGB").save(out, "PNG")
    return digest_text(store.put(out.getvalue()).digest)


def median_ms(supervisor: Sandbox, work: Callable[[], object], runs: int) -> float:
    taken = []
    for _ in range(runs):
        supervisor.await_warm()
        begun = time.perf_counter()
        work()
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
