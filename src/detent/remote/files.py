"""Files that jobs made, read from a server: by the signed URLs that it gives, and checked against their digests here."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from detent.access.headers import path_part
from detent.canon import digest_text
from detent.remote.http import Http
from detent.remote.problems import AnswerInvalid
from detent.store.streams import VerifiedStream

_FILES: Final = "/v1/files/"


class RemoteFiles:
    """The files of one job, by digest."""

    def __init__(self, http: Http, job_id: str) -> None:
        self._http = http
        items: list[dict[str, Any]] = http.get(f"/v1/jobs/{path_part(job_id)}/artifacts")["items"]
        self._urls = {str(one["digest"]): str(one["url"]) for one in items}

    def stream(self, digest: bytes, /) -> VerifiedStream | None:
        """The bytes of a digest; None when the job has no such file.

        Only the server itself is asked, whatever host a URL names: the host is what the URL was signed for.
        """
        name = digest_text(digest)
        if (url := self._urls.get(name)) is None:
            return None
        parts = urlsplit(url)
        if not parts.path.startswith(_FILES):
            raise AnswerInvalid(f"{url!r:.200} is not the URL of a file", hint="is the server of another version?")
        with ExitStack() as opened:
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            answer = opened.enter_context(
                self._http.opened(parts.path, query=query, headers={"host": parts.netloc}, signed=True)
            )
            return VerifiedStream(
                answer.pieces(), digest, f"{self._http.address.url}{parts.path}", opened.pop_all().close
            )
        return None
