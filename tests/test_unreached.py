"""Everything that the package defines is reached from a door, or is listed with the part that will use it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import detent
from detent import testing, workflow
from detent.cli.app import COMMANDS
from tests.unreached import unreached

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs" / name for name in ("reference/python.md", "workflow-names.md", "testing.md")]


def doors() -> list[str]:
    """Where users come in: commands, `import detent`, the workflow library, the fixtures and fakes for their tests."""
    commands = [f"detent.cli.{name}.command" for section in COMMANDS.values() for name in section]
    promised = set(re.findall(r"\w+", (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")))
    return [
        *("detent.cli.main", "detent.__main__", "detent.testing.plugin"),
        *commands,
        *(f"detent.{name}" for name in detent.__all__),
        *(f"detent.workflow.{name}" for name in workflow.__all__),
        *(f"detent.testing.{name}" for name in testing.__all__ if name in promised),
    ]


def found(excused: list[str]) -> list[str]:
    users = [*(ROOT / "tools").glob("*.py"), *(ROOT / "examples").rglob("*.py")]
    parts = unreached(ROOT / "src" / "detent", doors=doors(), excused=excused, pages=PAGES, users=users)
    return [f"{part.module}:{part.line} {part.label}" for part in parts]


def listed() -> list[str]:
    """What tests/unreached.toml excuses; each section says why."""
    document = tomllib.loads((ROOT / "tests" / "unreached.toml").read_text(encoding="utf-8"))
    assert all(section["reason"] for section in document.values())
    return [name for section in document.values() for name in section["definitions"]]


def test_everything_is_reached_from_a_door_or_listed_with_the_part_that_will_use_it() -> None:
    """X-188: what only tests use is removed, gets a door, or is listed in tests/unreached.toml."""
    assert found(listed()) == []


def test_an_excuse_for_what_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "detent" / "room").mkdir(parents=True)
    (tmp_path / "detent" / "room" / "one.py").write_text("class Box:\n    def unused(self): ...\n")
    assert unreached(tmp_path / "detent", doors=[], excused=["room.Box.unused"]) == []
    with pytest.raises(LookupError, match="room/ defines no gone"):
        unreached(tmp_path / "detent", doors=[], excused=["room.gone"])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def command():\n    used()\ndef used(): ...\ndef unused(): ...\n", ["unused"]),
        ("def command(): ...\ndef head():\n    below()\ndef below(): ...\n", ["head"]),
        ("def command(): ...\ndef one():\n    two()\ndef two():\n    one()\n", ["one"]),
        ("LIMIT = 1\nUNUSED = 2\ndef command():\n    return LIMIT\n", ["UNUSED"]),
        (
            "class Box:\n    def used(self): ...\n    def unused(self): ...\ndef command():\n    Box().used()\n",
            ["Box.unused"],
        ),
        ("class Box:\n    def unused(self):\n        self.unused()\ndef command():\n    Box()\n", ["Box.unused"]),
        ("class Box:\n    @property\n    def size(self): ...\ndef command():\n    return Box()\n", ["Box.size"]),
        ("class Box:\n    def size(self): ...\ndef command():\n    return getattr(Box(), 'size')\n", []),
        (
            "from typing import Protocol\nclass Box(Protocol):\n    def size(self): ...\ndef command(box: Box): ...\n",
            [],
        ),
        ("import ast\nclass V(ast.NodeVisitor):\n    def visit_Name(self): ...\ndef command():\n    V()\n", []),
        ("import json\nclass E(json.JSONEncoder):\n    def default(self): ...\ndef command():\n    E()\n", []),
        ("import json\nclass E(json.JSONEncoder):\n    def extra(self): ...\ndef command():\n    E()\n", ["E.extra"]),
        ("kept = []\n@kept.append\ndef handler(): ...\ndef command():\n    return kept\n", []),
        ("import functools\n@functools.cache\ndef unused(): ...\ndef command(): ...\n", ["unused"]),
        ("def stated(): ...\nNAME = 'detent.old.place:stated'\ndef command():\n    return NAME\n", []),
        ("def main(): ...\ndef command():\n    return 'from detent.one import main; main()'\n", []),
        ('def part(): ...\ndef command(): ...\nif __name__ == "__main__":\n    part()\n', []),
    ],
)
def test_a_definition_is_reached_by_being_used_and_not_by_being_there(
    tmp_path: Path, source: str, expected: list[str]
) -> None:
    (tmp_path / "detent").mkdir()
    (tmp_path / "detent" / "__init__.py").write_text("")
    (tmp_path / "detent" / "one.py").write_text(source)
    parts = unreached(tmp_path / "detent", doors=["detent.one.command"])
    assert [part.label for part in parts] == expected


def test_a_name_is_followed_through_imports_re_exports_and_lazy_tables(tmp_path: Path) -> None:
    package = tmp_path / "detent"
    (package / "room").mkdir(parents=True)
    for name, source in {
        "__init__.py": "",
        "cli.py": "from detent.room import near, far\nfrom detent import room\ndef command():\n    near(), far(), room.beside()\n",
        "room/__init__.py": (
            "from detent.room.first import near, beside, idle\n_WHERE = {'far': 'detent.room.second'}\n"
            "def __getattr__(name):\n    return _WHERE[name]\n"
        ),
        "room/first.py": "def near(): ...\ndef beside(): ...\ndef idle(): ...\n",
        "room/second.py": "def far(): ...\n",
    }.items():
        (package / name).write_text(source)
    parts = unreached(package, doors=["detent.cli.command"])
    assert [(part.module, part.label) for part in parts] == [("detent.room.first", "idle")]
