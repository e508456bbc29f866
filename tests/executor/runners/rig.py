"""Payloads as a platform completes them, and a desk at which they are run: a supervisor, a store, a clock that ticks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detent.artifacts.api import ArtifactStore, DirectoryStore
from detent.canon import digest_text, parse_digest, tick_to_iso
from detent.errors import Refused
from detent.executor.runners import Runners
from detent.executor.sandbox import Sandbox
from detent.jobs import JobPayload, JobResult, answer_fault, complete_payload, encode_result, read_payload, read_result
from tests.jobs.envelopes import CREATED_AT, EXPORT, HEAD, NONCE, RENDER, THUMBNAIL

BASE_MS = 1_767_225_600_000


@dataclass(frozen=True)
class Backend:
    """Where jobs are run in tests; every result is read back as a platform would read it."""

    supervisor: Sandbox
    store: ArtifactStore
    runners: Runners

    def payload(self, document: dict[str, Any], **fields: Any) -> JobPayload:
        """A draft as the platform completes it for this executor."""
        names = {
            "created_at": CREATED_AT,
            "user_id": "user-1",
            "env_version": self.runners.env_version(document["job_type"]),
            "nonce": NONCE,
        }
        return complete_payload(read_payload(document), **{**names, **fields})

    def run(self, document: dict[str, Any], **fields: Any) -> JobResult:
        """Run a draft to its end; the result is bytes in between, as it is on its way to a ledger."""
        return self.run_payload(self.payload(document, **fields))

    def run_payload(self, payload: JobPayload) -> JobResult:
        result = self.runners.run(payload, now=clock(), nonce="ab" * 16)
        assert not isinstance(result, Refused), result
        assert answer_fault(payload, result) is None
        read = read_result(encode_result(result))
        assert read == result
        return read

    def put(self, data: bytes) -> str:
        """Keep bytes and give their digest as a payload writes it."""
        return digest_text(self.store.put(data).digest)

    def bytes_of(self, result: JobResult) -> dict[str, bytes]:
        """What a result's artifacts hold, by their names."""
        found = {}
        for artifact in result.artifacts:
            data = self.store.read_bytes(parse_digest(artifact.digest))
            assert data is not None
            assert len(data) == artifact.size_bytes
            found[artifact.metadata["name"]] = data
        return found


def backend(supervisor: Sandbox, directory: Path) -> Backend:
    store = DirectoryStore(directory)
    return Backend(supervisor, store, Runners(supervisor, store))


def clock(first_tick: int = 1000) -> Callable[[], str]:
    """A clock of the kernel's kind: it gives the next tick's time whenever it is asked."""
    ticks = itertools.count(first_tick)
    return lambda: tick_to_iso(next(ticks), 1, BASE_MS)


def execute(source: str | dict[str, Any], *, limits: dict[str, int] | None = None, **runtime: Any) -> dict[str, Any]:
    """A draft that runs Python: as text, or as the value of a blockdoc."""
    content = {"format": "blockdoc" if isinstance(source, dict) else "python", "value": source}
    return {
        **HEAD,
        "job_type": "object_execute",
        "target": {"object_id": "cell-1"},
        "inputs": {"object": {"type": "code", "content": content, "runtime": {"entrypoint": "main", **runtime}}},
        "output_spec": {"formats": ["json"]},
        **({} if limits is None else {"limits": limits}),
    }


def render(latex: str, *formats: str, limits: dict[str, int] | None = None) -> dict[str, Any]:
    """A draft that draws a formula."""
    draft = deepcopy(RENDER)
    draft["inputs"]["object"]["content"]["value"] = latex
    draft["output_spec"] = {"formats": list(formats or ("svg", "png"))}
    return draft if limits is None else {**draft, "limits": limits}


def export(content: Any, *formats: str, limits: dict[str, int] | None = None, **inputs: Any) -> dict[str, Any]:
    """A draft that exports a document: typst source as text, or the value of a blockdoc."""
    draft = deepcopy(EXPORT)
    form = "typst" if isinstance(content, str) else "blockdoc"
    wanted = formats or ("pdf",)
    draft["inputs"] |= {"export_format": wanted[0], "content": {"format": form, "value": content}, **inputs}
    draft["output_spec"] = {"formats": list(wanted)}
    return draft if limits is None else {**draft, "limits": limits}


def thumbnail(digest: str, *formats: str, limits: dict[str, int] | None = None, **inputs: int) -> dict[str, Any]:
    """A draft that makes thumbnails of what lies under a digest."""
    draft = deepcopy(THUMBNAIL)
    draft["inputs"] |= {"content_digest": digest, **inputs}
    draft["output_spec"] = {"formats": list(formats or ("png",))}
    return draft if limits is None else {**draft, "limits": limits}


def error_of(result: JobResult) -> tuple[str, str, str]:
    """Status, category and code of a failure."""
    assert result.error is not None, json.dumps(result.document())
    return result.status.value, result.error.category.value, result.error.code
