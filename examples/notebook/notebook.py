"""A notebook whose cells, formulas, thumbnails and PDF are made by platform jobs. Run it twice: the second time nothing runs.

    python notebook.py                      # reads notebook.json, writes out/
    detent list --jobs                      # the jobs that made it
    detent result JOB                       # one signed result

Every job belongs to a workspace and a revision of the document. A cell gets the files of the cells that it needs by
digest, so nothing can change underneath it. Previews wait in a higher class than the export.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import detent

if TYPE_CHECKING:
    from detent.sdk.platform_jobs import JobHandle

HERE = Path(__file__).parent
OUT = HERE / "out"
THUMBNAIL = {"width": 160, "height": 160}


class Notebook:
    """A document and the jobs that make its parts."""

    def __init__(self, client: detent.Client, source: bytes) -> None:
        self.client = client
        self.document = json.loads(source)
        self.revision = hashlib.sha256(source).hexdigest()[:12]
        self.files: dict[str, dict[str, str]] = {}
        """The digests of the files of each object, by name."""
        self.values: dict[str, Any] = {}
        self.reused = 0
        self.ran = 0

    def submit(self, job_type: str, target: str | None, priority: str, **parts: Any) -> JobHandle:
        """Submit one job about one object of the document, or about the whole of it."""
        payload = {
            "schema_version": "1.0",
            "job_type": job_type,
            "workspace_id": "physics",
            "project_id": "notebooks",
            "document_id": "oscillator",
            "document_revision_id": self.revision,
            "priority": priority,
            "limits": {"timeout_ms": 20_000, "memory_mb": 512},
            **({} if target is None else {"target": {"object_id": target}}),
            **parts,
        }
        job = self.client.submit_job(payload)
        self.reused += job.deduplicated
        self.ran += not job.deduplicated
        return job

    def keep(self, name: str, job: JobHandle) -> None:
        """Wait for a job, remember its files, and copy them to ``out/NAME``."""
        outcome = job.outcome("5m")
        if not outcome.ok or outcome.result is None:
            raise SystemExit(f"{name} {outcome.status}: `detent result {job.job_id}` says why")
        self.values[name] = outcome.result["outputs"]["result_json"]
        self.files[name] = {artifact["metadata"]["name"]: artifact["digest"] for artifact in outcome.artifacts}
        job.fetch(OUT / name, force=True)

    def make(self) -> None:
        """Formulas first, then the cells in their order, then thumbnails, then the document."""
        cells = self.document["cells"]
        formulas = {cell["id"]: self.render(cell) for cell in cells if cell["type"] == "equation"}
        for cell in cells:
            if cell["type"] == "code":
                self.keep(cell["id"], self.execute(cell))
        for name, job in formulas.items():
            self.keep(name, job)
        pictures = {"motion": "formula.png", "half": "formula.png", "curve": "curve.svg"}
        thumbnails = {name: self.thumbnail(name, self.files[name][file]) for name, file in pictures.items()}
        for name, job in thumbnails.items():
            self.keep(f"{name}-thumbnail", job)
        self.keep("document", self.export())

    def render(self, cell: dict[str, Any]) -> JobHandle:
        content = {"format": "latex", "value": cell["latex"]}
        inputs = {"object": {"type": "equation", "content": content}}
        return self.submit("object_render", cell["id"], "high", inputs=inputs, output_spec={"formats": ["svg", "png"]})

    def execute(self, cell: dict[str, Any]) -> JobHandle:
        needed = {name: next(iter(self.files[name].values())) for name in cell.get("needs", [])}
        code = {
            "type": "code",
            "content": {"format": "blockdoc", "value": {"source": "\n".join(cell["source"])}},
            "dependencies": [{"kind": "object", "id": name} for name in needed],
            "runtime": {"parameters": cell["parameters"]},
        }
        pinned = [{"kind": "object", "id": name, "content_digest": digest} for name, digest in needed.items()]
        inputs = {"object": code, "dependency_snapshots": pinned}
        return self.submit("object_execute", cell["id"], "normal", inputs=inputs, output_spec={"formats": ["json"]})

    def thumbnail(self, name: str, digest: str) -> JobHandle:
        inputs = {**THUMBNAIL, "content_digest": digest}
        return self.submit("thumbnail_generate", name, "high", inputs=inputs, output_spec={"formats": ["png"]})

    def export(self) -> JobHandle:
        blocks: list[dict[str, Any]] = [{"type": "heading", "text": self.document["title"], "level": 1}]
        for cell in self.document["cells"]:
            if cell["type"] == "code":
                blocks.append({"type": "code", "source": "\n".join(cell["source"]), "language": "python"})
                blocks.append({"type": "text", "text": f"Result: {json.dumps(self.values[cell['id']])}"})
            else:
                blocks.append({name: cell[name] for name in ("type", "text", "latex") if name in cell})
        blocks.append({"type": "image", "digest": self.files["curve"]["curve.svg"], "alt": "the motion"})
        content = {"format": "blockdoc", "value": {"title": self.document["title"], "blocks": blocks}}
        inputs = {"export_format": "pdf", "view_mode": "document", "content": content}
        return self.submit("document_export", None, "low", inputs=inputs, output_spec={"formats": ["pdf", "html"]})


if __name__ == "__main__":
    with detent.Client(workers=2) as client:
        notebook = Notebook(client, (HERE / "notebook.json").read_bytes())
        notebook.make()
        print(f"{notebook.ran} jobs ran, {notebook.reused} were answered by earlier ones")
        print(f"swings: {notebook.values['curve']['swings']}; see {OUT.name}/document/document.pdf")
