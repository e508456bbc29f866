"""Artifacts on their way into a user's directory: their names come from untrusted code and lead nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.canon import digest_text, sha256
from detent.errors import InvalidInput, StoreCorrupt
from detent.inspect.fetch_artifacts import chosen, fetch_artifacts
from detent.store.content import ContentFiles

DATA = b"a picture"


def artifact(number: int, name: Any, data: bytes = DATA) -> dict[str, Any]:
    return {
        "artifact_id": f"job.{number}",
        "kind": "file",
        "format": "png",
        "digest": digest_text(sha256(data)),
        "size_bytes": len(data),
        "metadata": {"name": name},
    }


@pytest.fixture
def files(tmp_path: Path) -> ContentFiles:
    stored = ContentFiles(tmp_path / "content")
    stored.put(DATA, digest=sha256(DATA))
    return stored


@pytest.mark.parametrize(
    "name",
    [
        "../../escaped",
        "/etc/escaped",
        ".bashrc",
        "..",
        ".",
        "",
        "a/b",
        "a\\b\0c",
        "x" * 300,
        "new\nline",
        None,
        7,
        "-rf",
    ],
)
def test_a_hostile_name_becomes_the_id_and_stays_in_the_directory(
    files: ContentFiles, tmp_path: Path, name: Any
) -> None:
    """JOB-073, JOB-074"""
    target = tmp_path / "deep" / "target"
    (fetched,) = fetch_artifacts(files, [artifact(1, name)], target)
    assert fetched.path == target / "artifact-job.1.png"
    assert [path.name for path in target.iterdir()] == ["artifact-job.1.png"]
    assert fetched.path.read_bytes() == DATA


def test_two_artifacts_of_one_name_are_both_there(files: ContentFiles, tmp_path: Path) -> None:
    found = fetch_artifacts(files, [artifact(1, "plot.png"), artifact(2, "plot.png")], tmp_path / "target")
    assert [one.path.name for one in found] == ["plot.png", "2-plot.png"]


def test_damaged_content_gives_no_file(files: ContentFiles, tmp_path: Path) -> None:
    """JOB-074: the digest is that of the signed result, and a file appears only when all of it fits."""
    path = files.path(sha256(DATA))
    path.chmod(0o644)
    path.write_bytes(b"another picture")
    with pytest.raises(StoreCorrupt):
        fetch_artifacts(files, [artifact(1, "plot.png")], tmp_path / "target", force=True)
    assert list((tmp_path / "target").iterdir()) == []


def test_artifacts_are_chosen_by_id_number_or_name() -> None:
    listed = [artifact(1, "plot.png"), artifact(2, "table.csv")]
    assert [chosen(listed, [word]) for word in ("job.2", "2", "table.csv")] == [[listed[1]]] * 3
    assert chosen(listed, []) == listed
    assert chosen(listed, ["1", "plot.png"]) == listed[:1]
    with pytest.raises(InvalidInput, match="no artifact '3'"):
        chosen(listed, ["3"])
