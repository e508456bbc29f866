"""Both stores go through one suite; the S3 server is started once for each test process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from detent.artifacts.api import ArtifactStore, DirectoryStore
from tests.artifacts.buckets import Bucket, Server

_numbers = count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("moto_child.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        port = int(child.stdout.readline())
        yield Server(f"http://127.0.0.1:{port}")
        child.stdin.close()  # which ends it
        child.wait(timeout=30)


@pytest.fixture
def bucket(s3_server: Server) -> Bucket:
    name = f"bucket-{next(_numbers)}"
    s3_server.make(name)
    return Bucket(s3_server, name)


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "directory":
        return DirectoryStore(tmp_path / "content")
    made: Bucket = request.getfixturevalue("bucket")
    return made.store("some/prefix")
