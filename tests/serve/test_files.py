"""Files of jobs: listed with signed URLs and without their place in the store, and given to the holder of a URL alone."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from detent.artifacts.signed_url import Access, sign
from detent.canon import parse_digest
from detent.serve.downloads import url_keys
from detent.serve.routes import ALL
from tests.serve.served import Reply, Served, serving
from tests.serve.worked import project

MAKES = """\
import os


def make():
    os.makedirs("out", exist_ok=True)
    files = {
        "plain.txt": b"plain text\\n" * 40_000,
        "page.html": b"<!doctype html><script>alert(1)</script>",
        "dot.png": b"\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR" + bytes(100),
        "strange name.bin": bytes(range(256)) * 10,
        "empty": b"",
    }
    for name, data in files.items():
        with open(os.path.join("out", name), "wb") as file:
            file.write(data)
    return len(files)
"""
CONTRACT = """\
name: files
steps:
  - id: make
    run: {python: "makes:make"}
    outputs: {plain: out/plain.txt, page: out/page.html, dot: out/dot.png, strange: "out/strange name.bin", empty: out/empty}
"""
PLAIN = b"plain text\n" * 40_000
pytestmark = pytest.mark.door("route: /v1/jobs/{job_id}/artifacts")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = project(tmp_path_factory.mktemp("files"))
    (place.directory / "makes.py").write_text(MAKES)
    (place.directory / "files.yaml").write_text(CONTRACT)
    assert place.run("files.yaml") == 0
    with serving(place.played, "--workers", "0") as served:
        yield served


def listed(served: Served, **headers: str) -> dict[str, Any]:
    (job,) = served.json("/v1/jobs")["items"]
    reply = served.get(f"/v1/jobs/{job['job_id']}/artifacts", headers=headers)
    assert reply.status == 200, reply.body
    return {one["metadata"]["output"]: one for one in reply.json["items"]}


def fetch(served: Served, url: str, method: str = "GET", **headers: str) -> Reply:
    """As the holder of a URL: without any credential."""
    parts = urlsplit(url)
    return served.ask(method, f"{parts.path}?{parts.query}", token=None, headers=headers)


def test_a_file_is_given_to_the_holder_of_its_url(made: Served) -> None:
    """JOB-054"""
    files = listed(made)
    assert set(files) == {"plain", "page", "dot", "strange", "empty"}
    plain = files["plain"]
    assert urlsplit(plain["url"]).netloc == made.host
    assert plain["url"].partition("?")[0].endswith("/plain.txt")
    reply = fetch(made, plain["url"])
    assert (reply.status, reply.body) == (200, PLAIN)
    assert reply.headers["etag"] == f'"{plain["digest"]}"'
    assert reply.headers["content-length"] == str(len(PLAIN))
    assert fetch(made, files["empty"]["url"]).body == b""
    again = fetch(made, plain["url"], **{"If-None-Match": reply.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    until = time.strptime(plain["url_expires_at"][:19], "%Y-%m-%dT%H:%M:%S")
    assert 890 <= time.mktime(until) - time.mktime(time.gmtime()) <= 1_210


def test_a_browser_shows_pictures_and_plain_text_and_saves_everything_else(made: Served) -> None:
    files = listed(made)
    for name, shown in {"plain": True, "dot": True, "page": False, "strange": False}.items():
        headers = fetch(made, files[name]["url"]).headers
        assert headers["content-disposition"].startswith("inline" if shown else "attachment"), name
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert fetch(made, files["dot"]["url"]).headers["content-type"] == "image/png"


@pytest.mark.parametrize(
    ("wanted", "first", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-", 0, 440_000),
        ("bytes=5-9", 5, 10),
        ("bytes=439999-", 439_999, 440_000),
        ("bytes=100000-999999999", 100_000, 440_000),
        ("bytes=-1", 439_999, 440_000),
        ("bytes=-500000", 0, 440_000),
        ("bytes= 3-4", 3, 5),
    ],
)
def test_one_range_is_given(made: Served, wanted: str, first: int, stop: int) -> None:
    reply = fetch(made, listed(made)["plain"]["url"], Range=wanted)
    assert (reply.status, reply.body) == (206, PLAIN[first:stop])
    assert reply.headers["content-range"] == f"bytes {first}-{stop - 1}/440000"


@pytest.mark.parametrize("wanted", ["bytes=0-1,3-4", "bytes=9-5", "bytes=", "bytes=-", "lines=1-2", "bytes=a-b", "0-5"])
def test_what_is_not_one_range_gives_the_whole(made: Served, wanted: str) -> None:
    reply = fetch(made, listed(made)["plain"]["url"], Range=wanted)
    assert (reply.status, reply.body) == (200, PLAIN)


@pytest.mark.parametrize("wanted", ["bytes=440000-", "bytes=440000-440001", "bytes=-0", "bytes=999999999999-"])
def test_a_range_behind_the_end_is_refused_with_the_size(made: Served, wanted: str) -> None:
    reply = fetch(made, listed(made)["plain"]["url"], Range=wanted)
    assert (reply.status, reply.code) == (416, "RANGE_UNSATISFIABLE")
    assert reply.headers["content-range"] == "bytes */440000"


def test_a_range_counts_only_for_the_same_content(made: Served) -> None:
    plain = listed(made)["plain"]
    same = fetch(made, plain["url"], **{"Range": "bytes=0-1", "If-Range": f'"{plain["digest"]}"'})
    other = fetch(made, plain["url"], **{"Range": "bytes=0-1", "If-Range": '"sha256:00"'})
    assert (same.status, other.status) == (206, 200)


def test_no_answer_tells_where_a_file_is_stored(made: Served) -> None:
    """JOB-053"""
    (job,) = made.json("/v1/jobs")["items"]
    paths = [route.path for route in ALL if route.method == "GET" and route.parameters == ("job_id",)]
    assert len(paths) >= 6
    for path in [*paths, "/v1/jobs", "/v1/runs", f"/v1/runs/{job['run_id']}", f"/v1/runs/{job['run_id']}/steps"]:
        body = made.get(path.replace("{job_id}", job["job_id"])).body
        assert b'"uri"' not in body, path
        assert b"content:sha256" not in body, path
        assert str(made.home).encode() not in body, path
    described = json.loads((Path(__file__).resolve().parents[2] / "docs" / "openapi.json").read_text())
    named = [schema for schema in described["components"]["schemas"].values() if "uri" in schema.get("properties", {})]
    assert named == []


def altered(url: str) -> dict[str, str]:
    """URLs that are not quite the one that was signed."""
    base, _, query = url.partition("?")
    found = {
        "no query": base,
        "an empty query": f"{base}?",
        "no signature": url.rpartition("&")[0],
        "an empty signature": url.rpartition("=")[0] + "=",
        "a signature in capitals": f"{url.rpartition('=')[0]}={url.rpartition('=')[2].upper()}A",
        "a shorter signature": url[:-1],
        "a longer signature": url + "0",
        "a parameter behind it": url + "&x=1",
        "a parameter before it": f"{base}?x=1&{query}",
        "the query twice": f"{url}&{query}",
        "another order": f"{base}?{'&'.join(reversed(query.split('&')))}",
        "another escape": url.replace("sha256%3A", "sha256:"),
        "an escape in small letters": url.replace("%3A", "%3a"),
        "another name": url.replace("/plain.txt?", "/other.txt?"),
        "another artifact": re.sub(r"\.(\d)/plain", lambda found: f".{int(found[1]) + 1}/plain", url),
        "another job": re.sub(r"/local/[^/]+/", "/local/none.1/", url),
        "another workspace in the path": re.sub(r"/v1/files/[^/]+/", "/v1/files/other/", url),
        "another tenant": re.sub(r"tenant=[^&]+", "tenant=other", url),
        "no tenant": re.sub(r"&tenant=[^&]+", "", url),
        "another digest": re.sub(r"digest=sha256%3A....", "digest=sha256%3A0000", url),
        "a longer life": re.sub(r"expires=(\d+)", lambda found: f"expires={int(found[1]) + 1}", url),
        "no end": re.sub(r"expires=\d+", "expires=9999999999999", url),
        "a negative end": re.sub(r"expires=\d+", "expires=-1", url),
        "an end with a zero before it": re.sub(r"expires=(\d+)", r"expires=0\1", url),
        "another host": re.sub(r"host=[^&]+", "host=evil.example", url),
        "another key": re.sub(r"key=[^&]+", "key=k00000000", url),
        "another method": url.replace("method=GET", "method=HEAD"),
        "a method that changes things": url.replace("method=GET", "method=DELETE"),
        "another disposition": url.replace("disposition=inline", "disposition=attachment"),
        "a plus for a space": url.replace("disposition=inline", "disposition=inline+"),
        "semicolons": url.replace("&", ";"),
        "a fragment": url.replace("&signature", "%26signature"),
        "a zero byte": url.replace("disposition=inline", "disposition=inline%00"),
        "very long": url + "&a=" + "b" * 5_000,
    }
    found |= {f"digit {place} of the signature": _flipped(url, place) for place in range(1, 65, 9)}
    return found


def _flipped(url: str, place: int) -> str:
    digit = "0" if url[-place] != "0" else "1"
    return url[:-place] + digit + (url[-place + 1 :] if place > 1 else "")


def test_an_altered_url_is_refused(made: Served) -> None:
    """JOB-054"""
    url = listed(made)["plain"]["url"]
    corpus = {name: one for name, one in altered(url).items() if one != url}
    assert len(corpus) >= 40
    assert fetch(made, url).status == 200
    for name, one in corpus.items():
        reply = fetch(made, one)
        assert (reply.status, reply.code) == (403, "URL_INVALID"), name


@pytest.mark.parametrize(
    "changed",
    [
        {"expires_s": 1},
        {"expires_s": int(time.time()) - 1},
        {"expires_s": int(time.time()) + 30 * 86_400},
        {"host": "evil.example"},
        {"host": "127.0.0.1:1"},
        {"tenant": "other"},
        {"method": "HEAD"},
        {"digest": bytes(32)},
    ],
)
def test_a_url_that_this_server_signed_for_something_else_is_refused(made: Served, changed: dict[str, Any]) -> None:
    """JOB-054"""
    plain = listed(made)["plain"]
    right = {
        "method": "GET",
        "host": made.host,
        "path": urlsplit(plain["url"]).path,
        "expires_s": int(time.time()) + 600,
        "tenant": urlsplit(plain["url"]).path.split("/")[3],
        "digest": parse_digest(plain["digest"]),
        "disposition": "inline",
    }
    (key,) = url_keys(made.home / "serve").values()
    good = Access(**right)
    assert fetch(made, f"{good.path}?{sign(good, key)}").status == 200
    other = Access(**{**right, **changed})
    assert fetch(made, f"{other.path}?{sign(other, key)}").code == "URL_INVALID"


def test_a_url_is_for_its_method_and_its_host(made: Served) -> None:
    url = listed(made)["plain"]["url"]
    assert fetch(made, url, "HEAD").status == 403
    assert fetch(made, url, "POST").code == "METHOD_NOT_ALLOWED"
    local = f"localhost:{made.port}"
    assert fetch(made, url, Host=local).code == "URL_INVALID"
    there = listed(made, Host=local)["plain"]["url"]
    assert urlsplit(there).netloc == local
    assert fetch(made, there, Host=local).status == 200


def test_a_damaged_file_is_never_sent(made: Served) -> None:
    strange = listed(made)["strange"]
    assert fetch(made, strange["url"]).status == 200
    name = strange["digest"].removeprefix("sha256:")
    path = made.home / "content" / name[:2] / name[2:]
    data = path.read_bytes()
    try:
        path.write_bytes(data[:-1] + b"x")
        assert fetch(made, strange["url"], Range="bytes=0-1").code == "STORE_CORRUPT"
        path.unlink()
        assert fetch(made, strange["url"]).code == "CONTENT_GONE"
    finally:
        path.write_bytes(data)
    assert hashlib.sha256(fetch(made, strange["url"]).body).hexdigest() == name


def test_urls_begin_with_the_public_url(made: Served, tmp_path: Path) -> None:
    place = project(tmp_path)
    (place.directory / "makes.py").write_text(MAKES)
    (place.directory / "files.yaml").write_text(CONTRACT)
    assert place.run("files.yaml") == 0
    with serving(place.played, "--workers", "0", "--public-url", "http://jobs.example.org") as served:
        url = listed(served)["plain"]["url"]
        assert url.startswith("http://jobs.example.org/v1/files/")
        assert fetch(served, url, Host="jobs.example.org").status == 200
        assert fetch(served, url).code == "URL_INVALID"
