"""Tests in namespaces of their own: a network, or mounts, that a test may change without touching the machine's.

Such tests lie in `in_namespace/`, in files that pytest does not collect. They are run once, by pytest in a process inside the namespace, which ends
with everything that it has started; what came of each is read here.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[2]
INNER = Path(__file__).resolve().parent / "in_namespace"
PYTEST = ("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "filterwarnings=default")
LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
    fcntl.ioctl(channel, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))  # The loopback is up and running.
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def inside(line: Sequence[str], *kinds: str) -> list[str]:
    """A command line that runs another in namespaces of its own: processes, mounts, and those of the kinds."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, *kinds, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *line]


@cache
def can_enter(*kinds: str) -> bool:
    """Whether this machine lets this user have such namespaces."""
    try:
        return not subprocess.run(inside(["true"], *kinds), capture_output=True, timeout=60, check=False).returncode
    except OSError:
        return False


def run_inside(path: Path, report: Path, *kinds: str, seconds: float) -> None:
    """Run the tests of a file in namespaces of their own; all of them must pass."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    line = [sys.executable, "-c", LOOPBACK] if "--net" in kinds else [sys.executable]
    ran = subprocess.run(
        inside([*line, *PYTEST, f"--junitxml={report}", str(path)], *kinds),
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert report.exists(), ran.stdout[-4_000:] + ran.stderr[-4_000:]
    assert_all_passed(path, outcomes_in(report))


def outcomes_in(report: Path) -> dict[str, str]:
    """What came of each test: nothing, or why it failed."""
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        bad = [case.find(kind) for kind in ("failure", "error", "skipped")]
        found[case.attrib["name"]] = "".join(f"{one.text}" for one in bad if one is not None)
    return found


def assert_all_passed(path: Path, outcomes: Mapping[str, str]) -> None:
    """Every test of a file was run, and passed."""
    body = ast.parse(path.read_text()).body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    bad = [f"{name}: {outcomes[name][-6_000:]}" for name in names if outcomes[name]]
    assert not bad, "\n".join(bad)
