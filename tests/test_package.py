"""What the package says about itself, and the lock files it is installed from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = ("requirements.lock", "requirements-dev.lock")
ADDRESS = re.compile(r"://|\bwww\.|(?<![\w=.])/\w|\\\\|--(?:extra-)?index|--find-links|@ ", re.ASCII)


def pins(lock: str) -> dict[str, tuple[Requirement, list[str]]]:
    """Read a lock file as name -> (requirement, hashes)."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    found = {}
    for line in lines:
        requirement, *hashes = re.split(r"\s+--hash=", line.strip())
        parsed = Requirement(requirement)
        found[parsed.name] = (parsed, hashes)
    return found


def ranges(*names: str) -> list[Requirement]:
    """What pyproject.toml asks for: the runtime and the build backend, and the extras named."""
    extras = PROJECT["project"]["optional-dependencies"]
    asked = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["build"]
    return [Requirement(text) for text in [*asked, *(text for name in names for text in extras[name])]]


def test_the_package_declares_the_rules_of_its_specification() -> None:
    """PIPE-005"""
    assert "EQC v1.1 Option A (single merged specification)" in PROJECT["project"]["description"]


def test_the_build_backend_is_the_one_the_lock_holds() -> None:
    assert PROJECT["build-system"]["requires"] == PROJECT["dependency-groups"]["build"]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_every_distribution_to_one_version_and_its_hashes(lock: str) -> None:
    """PIPE-032"""
    for requirement, hashes in pins(lock).values():
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes), requirement


@pytest.mark.parametrize("lock", [*LOCKS, "bench/peers.txt"])
def test_a_lock_holds_no_address(lock: str) -> None:
    assert [line for line in (ROOT / lock).read_text(encoding="utf-8").splitlines() if ADDRESS.search(line)] == []


def test_the_peers_of_the_benchmarks_are_pinned() -> None:
    for requirement, _ in pins("bench/peers.txt").values():
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), requirement


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.org/simple",
        "--extra-index-url file:///srv/simple",
        "--find-links wheels",
        "apsw @ https://example.org/apsw.whl",
        "    # from /srv/wheels",
    ],
)
def test_an_address_in_a_lock_would_be_found(line: str) -> None:
    assert ADDRESS.search(line)


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements.lock", ("render", "s3", "serve")),
        ("requirements-dev.lock", ("dev", "ray", "render", "s3", "serve")),
    ],
)
def test_a_lock_answers_what_the_project_asks_for(lock: str, extras: tuple[str, ...]) -> None:
    """PIPE-032"""
    locked = pins(lock)
    for asked in ranges(*extras):
        version = str(locked[asked.name][0].specifier).removeprefix("==")
        assert asked.specifier.contains(version), asked


def test_the_dev_lock_holds_the_runtime_lock_whole() -> None:
    runtime, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert runtime == {name: dev.get(name) for name in runtime}
