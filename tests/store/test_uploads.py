"""Which workspace may name which content: its own uploads for a day, and for ever once a job of it names them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from detent.errors import InvalidInput
from detent.store.content import ContentFiles
from detent.store.uploads import HELD_MS, Uploads


class Clock:
    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def uploads(tmp_path: Path, clock: Clock) -> Uploads:
    return Uploads(tmp_path / "uploads", ContentFiles(tmp_path / "content"), now_ms=clock)


def upload(uploads: Uploads, workspace: str, data: bytes) -> bytes:
    file = uploads.new_file()
    file.write(data)
    file.sync()
    file.close()
    uploads.keep(workspace, file)
    return hashlib.sha256(data).digest()


def refusal(uploads: Uploads, workspace: str, *digests: bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        uploads.insist_on_known(workspace, digests)
    assert caught.value.code == "CONTENT_UNKNOWN"
    return str(caught.value)


def test_content_of_another_workspace_is_as_unknown_as_content_that_does_not_exist(uploads: Uploads) -> None:
    theirs = upload(uploads, "team-b", b"theirs")
    absent = hashlib.sha256(b"absent").digest()
    assert refusal(uploads, "team-a", theirs).replace(theirs.hex(), "X") == refusal(uploads, "team-a", absent).replace(
        absent.hex(), "X"
    )
    assert uploads.missing("team-a", [theirs, absent]) == [theirs, absent]
    assert uploads.missing("team-b", [theirs]) == []
    upload(uploads, "team-a", b"theirs")
    uploads.insist_on_known("team-a", [theirs])


def test_an_upload_can_be_named_for_a_day_and_for_ever_once_a_job_named_it(uploads: Uploads, clock: Clock) -> None:
    named, idle = upload(uploads, "team-a", b"named"), upload(uploads, "team-a", b"idle")
    clock.ms += HELD_MS - 1
    uploads.insist_on_known("team-a", [named])
    assert uploads.kept() == {named, idle}
    clock.ms += 1
    refusal(uploads, "team-a", idle)
    assert uploads.kept() == set()
    uploads.sweep()
    uploads.insist_on_known("team-a", [named])
    assert uploads.usage("team-a").stored_bytes == len(b"named")


def test_a_refused_request_makes_nothing_its_own(uploads: Uploads, clock: Clock) -> None:
    own = upload(uploads, "team-a", b"own")
    refusal(uploads, "team-a", own, bytes(32))
    clock.ms += HELD_MS
    refusal(uploads, "team-a", own)


def test_uploading_again_begins_the_day_anew(uploads: Uploads, clock: Clock) -> None:
    digest = upload(uploads, "team-a", b"again")
    clock.ms += HELD_MS - 1
    upload(uploads, "team-a", b"again")
    clock.ms += HELD_MS - 1
    uploads.insist_on_known("team-a", [digest])


def test_content_that_is_gone_is_unknown(uploads: Uploads, tmp_path: Path) -> None:
    digest = upload(uploads, "team-a", b"gone")
    ContentFiles(tmp_path / "content").erase(digest)
    refusal(uploads, "team-a", digest)


def test_parts_are_given_up_after_a_day_and_left_files_at_the_start(
    uploads: Uploads, clock: Clock, tmp_path: Path
) -> None:
    begun = uploads.begin("team-a", bytes(32), 10)
    left = uploads.new_file()
    left.close()
    assert uploads.sweep(starting=True) == 1
    assert uploads.find("team-a", begun.upload_id).offset == 0
    with pytest.raises(InvalidInput, match="no such upload"):
        uploads.find("team-b", begun.upload_id)
    clock.ms += HELD_MS
    with pytest.raises(InvalidInput, match="no such upload"):
        uploads.find("team-a", begun.upload_id)
    assert uploads.sweep() == 1
    assert [path.name for path in (tmp_path / "uploads").iterdir() if path.name.startswith("up_")] == []
    assert uploads.usage("team-a").day_count == 0
