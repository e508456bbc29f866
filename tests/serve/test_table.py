"""The table of routes: what it refuses, and the description that comes from it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from detent.access.scopes import PUBLIC
from detent.errors import InvariantBroken
from detent.serve.call import Answer, Call, Shape
from detent.serve.routes import ALL
from detent.serve.routes.pages import PATHS
from detent.serve.table import Route, Table

ROOT = Path(__file__).resolve().parents[2]


async def handler(_call: Call) -> Answer:
    return Answer(None)


GOOD = Route("GET", "/v1/things/{thing_id}", handler, "Read a thing.", "jobs:read", ())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (replace(GOOD, scope=""), "has no scope"),
        (replace(GOOD, scope="things:read"), "does not exist"),
        (replace(GOOD, codes=None), "does not say its codes"),
        (replace(GOOD, codes=("NO_SUCH_CODE",)), "not registered"),
        (replace(GOOD, codes=("LIMIT_WALL",)), "not a refusal"),
        (replace(GOOD, method="FETCH"), "method that is not served"),
        (replace(GOOD, answers={}), "does not say what it answers"),
        (replace(GOOD, summary=""), "does not say what it answers"),
        (replace(GOOD, body=Shape), "a body with GET"),
    ],
)
def test_a_route_that_leaves_something_open_does_not_start(changed: Route, why: str) -> None:
    assert list(Table([GOOD])) == [GOOD]
    with pytest.raises(InvariantBroken, match=why):
        Table([changed])


def test_two_routes_for_one_address_do_not_start() -> None:
    with pytest.raises(InvariantBroken, match="is there twice"):
        Table([GOOD, replace(GOOD, path="/v1/things/{other_id}")])


def test_a_path_that_could_name_two_addresses_does_not_start() -> None:
    with pytest.raises(InvariantBroken, match="has an id where another address has a word"):
        Table([GOOD, replace(GOOD, path="/v1/things/newest")])
    with pytest.raises(InvariantBroken, match="calls its ids otherwise"):
        Table([GOOD, replace(GOOD, path="/v1/things/{other_id}", method="DELETE")])


def test_every_address_is_found_with_its_ids_and_nothing_else_is() -> None:
    table = Table(ALL)
    for path in table.by_path():
        names = re.findall(r"\{([a-z_]+)\}", path)
        asked = re.sub(r"\{[a-z_]+\}", lambda found: f"id.{found[0][1:-1]}", path)
        assert table.address_of(asked) == (path, {name: f"id.{name}" for name in names})
        # A slash behind the address of a page is the same page; behind one of the API there is nothing.
        same = None if path not in PATHS[1:] else table.address_of(asked)
        assert table.address_of(f"{asked}/") == same
    for path in ("/v1", "/v1/jobs/", "/v1//jobs", "/v1/jobs/a/cancel/b", "//", "/v2/jobs"):
        assert table.address_of(path) is None


def test_the_description_in_docs_is_valid_openapi_and_has_every_route() -> None:
    """CORE-X008"""
    described = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    OpenAPIV31SpecValidator(described).validate()
    told = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert {(route.method, route.path) for route in ALL if not route.page} <= told
    assert {method for method, _ in told} <= {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"}


def test_every_route_needs_a_credential_unless_it_is_one_of_the_public_ones() -> None:
    public = {route.path for route in ALL if route.scope == PUBLIC}
    # A file is given to the holder of its signed URL (tests/serve/test_files.py).
    files = "/v1/files/{workspace}/{artifact}/{name}"
    about = {"/healthz", "/readyz", "/v1/version", "/v1/openapi.json", "/problems/{code}"}
    assert public == {*about, files, *PATHS, "/static/{name}", "/v1/login"}


def test_every_recorded_route_says_under_which_action() -> None:
    """Attempts that are refused are recorded under it."""
    assert [route.name for route in ALL if route.audited and route.action is None] == []
