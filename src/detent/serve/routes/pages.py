"""The dashboard: one page for every address that people open, and the files that it loads. All of it comes from the package.

The page is built from `web/` and committed (docs/decisions/0036). It is the same for everyone: what it shows it asks the public API
for, with the credential of the browser. Built files have the digest of their content in their names, so browsers keep them for ever.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from importlib.resources import files
from typing import Final

from detent.access.headers import weak_tag
from detent.access.scopes import PUBLIC
from detent.errors import InvalidInput
from detent.serve.call import Answer, Call
from detent.serve.security import PAGE_POLICY
from detent.serve.table import Route

HTML: Final = "text/html"
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_BUILT: Final = re.compile(r"[a-z]+-[0-9a-f]{10}\.(css|js|svg)")
_FOR_EVER: Final = "public, max-age=31536000, immutable"
PATHS: Final = (
    "/",
    "/login",
    "/w/{workspace}",
    "/w/{workspace}/{page}",
    "/w/{workspace}/{page}/{name}",
    "/w/{workspace}/{page}/{name}/{other}",
)
"""The addresses of the dashboard. The page itself says so where it has nothing to show."""


def page_answer() -> Answer:
    """The page that shows whatever its address names."""
    data = _file("index.html")
    headers = {"content-security-policy": PAGE_POLICY}
    return Answer(data, tag=weak_tag(data), headers=headers, media_type=f"{HTML}; charset=utf-8")


async def _page(_call: Call) -> Answer:
    return page_answer()


async def _static(call: Call) -> Answer:
    name = call.path["name"]
    found = _BUILT.fullmatch(name)
    if found is None or name not in _names():
        raise InvalidInput("there is no such file", code="NOT_FOUND")
    headers = {"cache-control": _FOR_EVER, "vary": "accept-encoding"}
    packed = "gzip" in (call.head.header(b"accept-encoding") or "")
    if packed:
        headers["content-encoding"] = "gzip"
    return Answer(_packed(name) if packed else _file(name), headers=headers, media_type=_TYPES[found[1]])


@cache
def _names() -> frozenset[str]:
    return frozenset(one.name for one in files("detent.serve").joinpath("static").iterdir())


@cache
def _file(name: str) -> bytes:
    return files("detent.serve").joinpath("static", name).read_bytes()


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(_file(name), mtime=0)


ROUTES: Final = (
    *(
        Route("GET", path, _page, "Show the dashboard.", PUBLIC, (), media_type=HTML, page=True, etag=True)
        for path in PATHS
    ),
    Route(
        "GET",
        "/static/{name}",
        _static,
        "Read a file that the dashboard loads.",
        PUBLIC,
        ("NOT_FOUND",),
        media_type="*/*",
    ),
)
