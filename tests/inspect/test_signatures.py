"""Signatures on all processors: whichever process checks them, the answers are the same and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from detent.canon import SigningKey, sha256
from detent.inspect import signatures
from detent.inspect.signatures import signature_checkers
from detent.ledger.book import Signed, verify_each


def groups(count: int) -> list[list[Signed]]:
    """Groups of eight signatures, in each another two that do not verify."""
    key = SigningKey(sha256(b"signer"))
    made = []
    for number in range(count):
        messages = [sha256(bytes([number, place])) for place in range(8)]
        group: list[Signed] = [(key.public_key, message, key.sign(message)) for message in messages]
        forged, short = number % 8, (number + 3) % 8
        group[forged] = (key.public_key, b"another message", group[forged][2])
        group[short] = (key.public_key, messages[short], group[short][2][:-1])
        made.append(group)
    return made


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every process that is started from here on, on a machine with four processors."""
    processes: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def popen(*args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        processes.append(start(*args, **kwargs))  # type: ignore[call-overload]
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    return processes


def answers(asked: Sequence[Sequence[Signed]], helped_after: int, python: str = sys.executable) -> list[list[bool]]:
    with signature_checkers(helped_after=helped_after, python=python) as verify_many:
        given = [verify_many(group) for group in asked]
        return [list(one) for one in given]


@pytest.mark.parametrize("helped_after", [0, 40, 10_000])
def test_the_answers_are_those_of_one_check_after_the_other(
    helped_after: int, started: list[subprocess.Popen[bytes]]
) -> None:
    asked = groups(20)
    assert answers(asked, helped_after) == [verify_each(group) for group in asked]
    assert sum(map(sum, answers(asked, helped_after))) == 20 * 6
    assert bool(started) == (helped_after < 160)
    assert all(process.poll() == 0 for process in started)


def test_helpers_check_part_of_the_groups_while_others_are_asked(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[Sequence[Signed]] = []

    def counted(signed: Sequence[Signed]) -> list[bool]:
        here.append(signed)
        return verify_each(signed)

    monkeypatch.setattr(signatures, "verify_each", counted)
    assert len(answers(groups(20), 0)) == 20
    assert len(started) == signatures.HELPERS_MAX
    assert 0 < len(here) <= 20 - 3 * signatures.HELPERS_MAX


def test_what_a_helper_that_was_killed_has_not_answered_is_checked_here(
    started: list[subprocess.Popen[bytes]],
) -> None:
    asked = groups(20)
    with signature_checkers(helped_after=0) as verify_many:
        given = [verify_many(group) for group in asked[:4]]
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.wait()
        given += [verify_many(group) for group in asked[4:]]
        assert [list(one) for one in given] == [verify_each(group) for group in asked]


def test_without_a_process_everything_is_checked_here(tmp_path: Path) -> None:
    asked = groups(3)
    assert answers(asked, 0, str(tmp_path / "no-python")) == [verify_each(group) for group in asked]
    assert answers(asked, 0, "/bin/false") == [verify_each(group) for group in asked]


def test_a_helper_ends_with_the_checking_although_its_answers_are_not_wanted(
    started: list[subprocess.Popen[bytes]],
) -> None:
    with signature_checkers(helped_after=0) as verify_many:
        for group in groups(6):
            verify_many(group)
    assert started
    assert all(process.poll() is not None for process in started)


def test_one_processor_checks_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with signature_checkers() as verify_many:
        assert verify_many is verify_each
