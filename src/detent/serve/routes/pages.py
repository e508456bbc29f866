"""The pages of the server, and the files that they load: all from the package, none from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from detent.access.headers import weak_tag
from detent.access.scopes import PUBLIC
from detent.errors import InvalidInput
from detent.serve.call import Answer, Call
from detent.serve.security import PAGE_POLICY
from detent.serve.table import Route

_TYPES: Final = {
    "login.js": "text/javascript; charset=utf-8",
    "login.css": "text/css; charset=utf-8",
}
HTML: Final = "text/html; charset=utf-8"


async def _login(_call: Call) -> Answer:
    data = _file("login.html")
    return Answer(data, tag=weak_tag(data), headers={"content-security-policy": PAGE_POLICY}, media_type=HTML)


async def _static(call: Call) -> Answer:
    name = call.path["name"]
    if name not in _TYPES:
        raise InvalidInput("there is no such file", code="NOT_FOUND")
    data = _file(name)
    return Answer(data, tag=weak_tag(data), media_type=_TYPES[name])


@cache
def _file(name: str) -> bytes:
    return files("detent.serve").joinpath("static", name).read_bytes()


ROUTES: Final = (
    Route(
        "GET",
        "/login",
        _login,
        "Show the page that begins a browser session.",
        PUBLIC,
        (),
        media_type="text/html",
        etag=True,
    ),
    Route(
        "GET",
        "/static/{name}",
        _static,
        "Read a file that a page loads.",
        PUBLIC,
        ("NOT_FOUND",),
        media_type="*/*",
        etag=True,
    ),
)
