"""Bytes on their way to a server, named by their digests: small ones in one request, larger ones in parts.

A part whose answer was lost is not sent blindly again: the server says how much it has, and the next part begins there.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from detent.canon import digest_text
from detent.errors import DetentError
from detent.remote.http import Http

PUT_BYTES_MAX: Final = 64 * 1024 * 1024
"""What a server takes in one request."""
PART_BYTES: Final = 16 * 1024 * 1024
CHECK_SECONDS: Final = 900.0
"""How long a server may take to read a large file once more and compare it with its digest."""
OCTETS: Final = "application/octet-stream"
PART: Final = "application/partial-upload"


class Uploads:
    """Sends content to one server, each piece once. Safe for several threads."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._sent: set[bytes] = set()
        self._lock = threading.Lock()

    def send_file(self, path: Path, digest: bytes) -> None:
        """Send a file that has this digest."""
        with self._lock:
            if digest in self._sent:
                return
        size_bytes = path.stat().st_size
        if size_bytes <= PUT_BYTES_MAX:
            self.send(path.read_bytes(), digest)
            return
        self._send_parts(path, digest, size_bytes)
        self._done(digest)

    def send(self, data: bytes, digest: bytes) -> None:
        """Send bytes that have this digest."""
        self._http.ask("PUT", f"/v1/uploads/{digest_text(digest)}", data=data, media_type=OCTETS)
        self._done(digest)

    def _done(self, digest: bytes) -> None:
        with self._lock:
            self._sent.add(digest)

    def _send_parts(self, path: Path, digest: bytes, size_bytes: int) -> None:
        begun = self._http.post("/v1/uploads", {"digest": digest_text(digest), "size_bytes": size_bytes})
        route, offset = f"/v1/uploads/{begun['upload_id']}", int(begun["offset"])
        with path.open("rb") as file:
            while offset < size_bytes:
                file.seek(offset)
                part = file.read(PART_BYTES)
                try:
                    answer = self._http.ask(
                        "PATCH",
                        route,
                        data=part,
                        media_type=PART,
                        headers={"upload-offset": str(offset)},
                        seconds=CHECK_SECONDS,
                    )
                except DetentError as exc:
                    if exc.code == "NOT_FOUND" and offset + len(part) == size_bytes:
                        return  # The last part had come, its answer was lost, and a complete upload has no id any more.
                    if exc.code != "UPLOAD_OFFSET":
                        raise
                    answer = self._http.ask("HEAD", route)  # The part had come, and its answer was lost.
                offset = int(answer.headers["upload-offset"])
