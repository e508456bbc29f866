"""Every import fits the house and the pure rooms are pure; and the reading that says so can say otherwise.

The rules are in rooms.py. Each of them is broken here once, in a snippet, to see that it is found.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rooms import BANNED_MODULES, FOLDERS, PURE, TOP, cycles, findings

SOURCE = Path(__file__).resolve().parent.parent / "src" / "detent"


def modules() -> list[tuple[str, Path]]:
    """Every module of the package, as it is named in an import."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def test_every_import_fits_the_house_and_pure_rooms_are_pure() -> None:
    """PIPE-016, PIPE-020, PIPE-026, X-012"""
    found = [
        finding
        for module, path in modules()
        for finding in findings(path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py")
    ]
    assert found == []


def test_no_modules_import_each_other() -> None:
    """Imports inside functions and for types count, too: a module can be read, moved and tested without its callers."""
    read = {module: (path.read_text(encoding="utf-8"), path.name == "__init__.py") for module, path in modules()}
    assert cycles(read) == []


def test_a_cycle_is_found_however_it_is_closed() -> None:
    read = {
        "detent": ("", True),
        "detent.a": ("from detent.b import c", True),
        "detent.b": ("if TYPE_CHECKING:\n    from detent import d", False),
        "detent.d": ("def f():\n    import detent.a", False),
        "detent.e": ("from detent.a import f", False),
    }
    assert [sorted(cycle[1:]) for cycle in cycles(read)] == [["detent.a", "detent.b", "detent.d"]]


def test_every_folder_that_has_a_place_exists() -> None:
    found = {
        room: {path.name for path in (SOURCE / room).iterdir() if (path / "__init__.py").exists()} for room in FOLDERS
    }
    assert found == {room: set(folders) for room, folders in FOLDERS.items()}


def test_the_reading_reaches_the_rooms_that_exist() -> None:
    """A wrong path would make the test above pass over nothing."""
    rooms = {module.split(".")[1] for module, _ in modules() if "." in module}
    assert {"errors", "canon", "kernel", "ledger", "store"} <= rooms


@pytest.mark.parametrize(
    ("module", "source", "text"),
    [
        ("detent.kernel.reduce", "import detent.ledger.tree", "kernel may not import ledger"),
        ("detent.kernel.reduce", "from detent.scheduling import place", "kernel may not import scheduling"),
        ("detent.kernel.reduce", "from detent import store", "kernel may not import store"),
        ("detent.kernel.reduce", "from .. import owner", "kernel may not import owner"),
        ("detent.kernel.reduce", "from ..jobs.models import JobStatus", "kernel may not import jobs"),
        ("detent.kernel.reduce", "import detent", "kernel may not import detent"),
        ("detent.kernel.reduce", "from detent import task", "kernel may not import detent"),
        ("detent.kernel.reduce", "def f():\n    import detent.cli", "kernel may not import cli"),
        ("detent.kernel.reduce", "if TYPE_CHECKING:\n    from detent.sdk import Run", "kernel may not import sdk"),
        ("detent.kernel.reduce", "importlib.import_module('detent.runs')", "kernel may not import runs"),
        ("detent.kernel.reduce", "import_module('..serve', __package__)", "kernel may not import serve"),
        ("detent.kernel.reduce", "__import__('detent.testing')", "kernel may not import testing"),
        ("detent.errors", "from detent.canon import encode", "errors may not import canon"),
        ("detent.canon.cbor", "from detent.kernel import State", "canon may not import kernel"),
        ("detent.scheduling.place", "from detent.workflow import models", "scheduling may not import workflow"),
        ("detent.workflow.executor", "from detent.kernel import State", "workflow may not import kernel"),
        ("detent.workflow.executor", "from detent.contract import load", "workflow may not import contract"),
        ("detent.contract.load", "from detent.jobs import JobPayload", "contract may not import jobs"),
        ("detent.ordered.config", "from detent.ledger import record", "ordered may not import ledger"),
        ("detent.jobs.models", "from detent.executor import run", "jobs may not import executor"),
        ("detent.ledger.verify", "from detent.store import api", "ledger may not import store"),
        ("detent.ledger.verify", "from detent.scheduling import ClassQueues", "ledger may not import scheduling"),
        ("detent.store.sqlite", "from detent.owner import home", "store may not import owner"),
        ("detent.owner.owner", "from detent.cli import main", "owner may not import cli"),
        ("detent.owner.session", "from detent.workers import supervisor", "owner may not import workers"),
        ("detent.reuse.work_keys", "import detent.workers.reports", "reuse may not import workers"),
        ("detent.workers.supervisor", "from detent.runs import handle", "workers may not import runs"),
        ("detent.runs.handle", "import detent.inspect.logs", "runs may not import inspect"),
        ("detent.runs.record.inputs", "import detent.runs.steps.driver", "runs.record may not import runs.steps"),
        ("detent.runs.ordered.driver", "from detent.runs import handle", "runs.ordered may not import runs.handle"),
        ("detent.reuse.ingredients.code", "import detent.reuse.work_keys", "may not import reuse.work_keys"),
        ("detent.helpers", "", "helpers is not a room of the house"),
    ],
)
def test_an_import_that_does_not_fit_is_found(module: str, source: str, text: str) -> None:
    assert any(text in finding for finding in findings(source, module))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        *((f"import {name}", f"imports {name}") for name in sorted(BANNED_MODULES)),
        ("import time as clock", "imports time"),
        ("def f():\n    from time import monotonic", "imports time.monotonic"),
        ("import os.path", "imports os.path"),
        ("from concurrent.futures import Future", "imports concurrent.futures.Future"),
        ("importlib.import_module('socket')", "imports socket"),
        ("importlib.import_module(name)", "imports a name that cannot be read"),
        ("from datetime import datetime as d\nd.now()", "names now"),
        ("import datetime\ndatetime.datetime.utcnow()", "names utcnow"),
        ("from datetime import date\nfield(default_factory=date.today)", "names today"),
        ("from uuid import uuid4", "imports uuid.uuid4"),
        ("import uuid\nuuid.uuid1()", "names uuid1"),
        ("import io\nio.open('f')", "names open"),
        ("from io import FileIO", "imports io.FileIO"),
        ("from nacl.utils import random", "imports nacl.utils.random"),
        ("from nacl import utils", "imports nacl.utils"),
        ("from nacl.signing import SigningKey\nSigningKey.generate()", "names generate"),
        ("import sys\nsys.stdout", "names stdout"),
        ("open('f')", "names open"),
        ("read = open", "names open"),
        ("print(1)", "names print"),
    ],
)
def test_a_pure_room_that_touches_the_world_is_found(source: str, text: str) -> None:
    """PIPE-016, PIPE-020"""
    for room in PURE:
        assert any(text in finding for finding in findings(source, f"{TOP}.{room}.module"))


@pytest.mark.parametrize(
    ("module", "source", "text"),
    [
        ("detent.workflow.defaults", "import logging", "imports logging"),
        ("detent.workflow.defaults", "from uuid import uuid1", "imports uuid.uuid1"),
        ("detent.workflow.defaults", "import time", "imports time"),
        ("detent.workflow.facade", "from uuid import uuid4", "imports uuid.uuid4"),
        ("detent.workflow.facade", "from datetime import datetime\ndatetime.now()", "names now"),
        ("detent.workflow.facade", "import asyncio", "imports asyncio"),
        ("detent.workflow.executor", "import logging", "imports logging"),
        ("detent.workflow.models", "from uuid import uuid4", "imports uuid.uuid4"),
        ("detent.kernel.facade", "import logging", "imports logging"),
    ],
)
def test_an_exception_holds_for_its_own_module_and_name_only(module: str, source: str, text: str) -> None:
    """WF-071, X-132"""
    assert any(text in finding for finding in findings(source, module))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import math\nmath.exp(1)", "uses math.exp"),
        ("import math\nmath.sqrt(2)", "uses math.sqrt"),
        ("import math as m\nm.exp(1)", "gives math another name"),
        ("from math import log", "imports math.log"),
        ("import cmath", "imports cmath"),
        ("limit = 0.5", "holds the float 0.5"),
        ("EPS = 1e-10", "holds the float 1e-10"),
        ("ticks = ms / 2", "divides with /"),
        ("ticks /= 2", "divides with /"),
    ],
)
def test_a_kernel_that_is_not_exact_is_found(source: str, text: str) -> None:
    """PIPE-018, PIPE-026"""
    assert any(text in finding for finding in findings(source, "detent.kernel.reduce"))


@pytest.mark.parametrize(
    "source",
    [
        "from detent.cli import main",
        "import rich",
        "if True:\n    import detent.owner",
        "class A:\n    import detent.sdk",
    ],
)
def test_a_package_that_loads_rooms_eagerly_is_found(source: str) -> None:
    assert any("when it is imported" in finding for finding in findings(source, TOP, is_package=True))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("detent", "from detent.errors import DetentError"),
        ("detent", "def __getattr__(name):\n    return importlib.import_module(ROOMS[name])"),
        ("detent", "if TYPE_CHECKING:\n    from detent.sdk import run"),
        ("detent.__main__", "from detent.cli import main"),
        ("detent.kernel", "from . import table\nfrom .table import State\nfrom ..canon import encode"),
        ("detent.kernel.metrics", "rate = 0.0\nimport math\nmath.isfinite(rate)"),
        ("detent.canon.numbers", "EPS_EQ = 1e-10"),
        ("detent.canon.numbers", "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)"),
        ("detent.workflow.models", "from uuid import UUID"),
        ("detent.workflow.defaults", "from uuid import uuid4\nfrom datetime import UTC, datetime\ndatetime.now(UTC)"),
        ("detent.workflow.facade", "import logging"),
        ("detent.ledger.bundle", "import io\nio.BytesIO()\nfrom detent.kernel import State"),
        ("detent.ledger.verify", "from detent.jobs import JobResult"),
        ("detent.owner.owner", "import threading, time\nfrom detent.store import api\nimportlib.import_module(name)"),
        ("detent.cli.main", "from detent import __version__\nprint(__version__)"),
        ("detent.testing.home", "from detent.cli import main"),
    ],
)
def test_what_the_house_allows_is_not_found(module: str, source: str) -> None:
    assert findings(source, module, is_package=module in {"detent", "detent.kernel"}) == []
