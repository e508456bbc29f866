"""Values on their way between a client and a server: files of arguments are sent, files of results are fetched, by digest.

Both lie in a directory of the client's own. It goes with the client, unless a result named a file: such a file stays readable as long
as the process lives, as one in a home would.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.canon import parse_digest
from detent.errors import DetentError
from detent.executor.file import File
from detent.jobs.values import FILE, files_named, restored
from detent.remote.files import RemoteFiles
from detent.remote.http import Http
from detent.remote.uploads import Uploads
from detent.reuse.work_keys import no_results
from detent.store.content import ContentFiles

if TYPE_CHECKING:
    from detent.contract.model import FileSource


class RemoteValues:
    """The files of one client. Safe for several threads."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._directory = Path(tempfile.mkdtemp(prefix="detent-client-"))
        self._gave_files = False
        self.uploads = Uploads(http)
        self.content = ContentFiles(self._directory)

    def close(self) -> None:
        """Remove what is not in use."""
        if self._gave_files:
            atexit.register(shutil.rmtree, self._directory, ignore_errors=True)
        else:
            shutil.rmtree(self._directory, ignore_errors=True)

    def send(self, *values: Any) -> None:
        """Send the files that stored values name."""
        for named in dict.fromkeys(name for value in values for name in files_named(value)):
            digest = parse_digest(named)
            self.uploads.send_file(self.content.path(digest), digest)

    def send_files(self, files: Mapping[str, FileSource]) -> None:
        """Send the files that a recorded flow was given, by their digests."""
        for named, file in files.items():
            if (kept := file.keep(self.content))[FILE] != named:
                raise DetentError(
                    f"the file {kept['name']} was written to after the flow had been recorded with it",
                    code="DEPENDENCY_MISMATCH",
                    hint="run the flow again, and leave the file alone until the run has begun",
                )
            self.uploads.send_file(self.content.path(parse_digest(named)), parse_digest(named))

    def restored(self, value: Any, jobs: Callable[[], Iterable[str]]) -> Any:
        """A stored value as user code sees it; ``jobs`` are those that may have made the files that it names."""
        missing = {name for name in files_named(value) if not self.content.has(parse_digest(name))}
        if missing:
            self._fetch(missing, jobs())
        return restored(value, no_results, self._file)

    def _fetch(self, missing: set[str], jobs: Iterable[str]) -> None:
        for job_id in jobs:
            files = RemoteFiles(self._http, job_id)
            for name in list(missing):
                stream = files.stream(parse_digest(name))
                if stream is not None:
                    with stream:
                        self.content.put_from(stream, digest=parse_digest(name))
                    missing.discard(name)
            if not missing:
                return

    def _file(self, mapping: dict[str, Any]) -> File:
        self._gave_files = True
        return File.kept(mapping, self._directory)


def jobs_of_run(http: Http, run_id: str) -> Iterator[str]:
    """The jobs of a run, newest first, page by page."""
    cursor: str | None = None
    while True:
        page = http.get("/v1/jobs", {"run": run_id, "limit": 200, "cursor": cursor})
        yield from (str(one["job_id"]) for one in page["items"])
        cursor = page["next"]
        if cursor is None:
            return
