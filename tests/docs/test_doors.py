"""tools/doors.py tells a test that a user could have typed from one that calls the package behind every door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.doors import Doors, Names

NAMES = Names(
    commands=frozenset({"run", "show", "verify"}),
    sdk=frozenset({"run", "task", "Client"}),
    library=frozenset({"plan_workflow"}),
)
HELPERS = """
from detent.cli.app import run
from subprocess import Popen

class Result: ...

class Cli:
    def __call__(self, *arguments: str) -> Result:
        return run(arguments)
    def json(self, *arguments: str) -> Result:
        return self(*arguments, "-o", "json")
    def start(self) -> Result:
        return self.json("run", "flow.yaml")
    def terminal(self, *arguments: str) -> Popen:
        return Popen(["python", "-m", "detent", *arguments])
    def path(self, name: str) -> str:
        return name

class Two:
    def __init__(self, cli: Cli) -> None:
        self._cli, self.place = cli, "here"
    def typed(self, place: str, *arguments: str) -> Result:
        return self._cli(*arguments)

def make() -> Cli:
    return Cli()
"""
CONFTEST = """
from tests.helpers import Cli

def cli() -> Cli:
    made = Cli()
    made("show", "run-1")
    return made
"""


def doors_of(tmp_path: Path, body: str, name: str = "tests/cli/test_one.py", head: str = "") -> tuple[str, ...]:
    """The doors of `test_claim`, the last function of a module."""
    for path, source in {
        "tests/helpers.py": HELPERS,
        "tests/conftest.py": CONFTEST,
        name: f"import detent\nimport pytest\nfrom tests.helpers import Cli, Two, make\n{head}\n{body}\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    return Doors(tmp_path, NAMES).of(name, "test_claim")


@pytest.mark.parametrize(
    ("statement", "door"),
    [
        ('cli("verify", "--root", "x")', "detent verify"),
        ('cli.json("verify")', "detent verify"),
        ("cli.start()", "detent run"),
        ('cli.terminal("run", "flow.yaml")', "detent run"),
        ('make()("verify")', "detent verify"),
        ('made = make()\n    made.json("verify")', "detent verify"),
        ('Two(cli).typed("elsewhere", "verify")', "detent verify"),
        ('two = Two(cli)\n    two.typed(two.place, "verify")', "detent verify"),
        ('for words in (("verify",), ("out", "in")):\n        cli(*words)', "detent verify"),
        ('subprocess.run([sys.executable, "-m", "detent", "verify"])', "detent verify"),
    ],
)
def test_a_typed_command_is_a_door_however_a_helper_wraps_it(tmp_path: Path, statement: str, door: str) -> None:
    assert doors_of(tmp_path, f"def test_claim(cli: Cli) -> None:\n    {statement}\n") == (door,)


def test_a_command_line_that_the_module_names_is_a_door(tmp_path: Path) -> None:
    body = 'def test_claim(cli: Cli) -> None:\n    cli.json(*LINE, "--window", "3")\n'
    assert doors_of(tmp_path, body, head='LINE = ("verify", "-q")') == ("detent verify",)


def test_the_command_of_a_parametrized_test_is_a_door(tmp_path: Path) -> None:
    head = '@pytest.mark.parametrize("words", [["verify"], ["show", "x"]])'
    found = doors_of(tmp_path, "def test_claim(cli: Cli, words: list[str]) -> None:\n    cli(*words)\n", head=head)
    assert found == ("detent verify", "detent show")


@pytest.mark.parametrize(
    "statement",
    [
        'Evidence("verify")',
        'st.just("verify")',
        'path("verify")',
        'print("detent verify")',
        'other.json("verify")',
        "detent.errors.DetentError",
    ],
)
def test_a_command_name_that_is_not_typed_is_not_a_door(tmp_path: Path, statement: str) -> None:
    body = f'def path(name: str) -> str:\n    return name\ndef test_claim(cli: Path) -> None:\n    """verify"""\n    {statement}\n'
    assert doors_of(tmp_path, body, name="tests/cli/test_two.py") in ((), ("detent show",))
    assert doors_of(tmp_path, body.replace("cli: Path", ""), name="tests/cli/test_two.py") == ()


def test_a_fixture_counts_only_when_the_test_itself_opens_nothing(tmp_path: Path) -> None:
    assert doors_of(tmp_path, "def test_claim(cli: Cli) -> None:\n    cli.path('x')\n") == ("detent show",)
    assert doors_of(tmp_path, 'def test_claim(cli: Cli) -> None:\n    cli("run")\n') == ("detent run",)


def test_below_the_sdk_tests_a_description_of_work_counts_and_elsewhere_only_work_does(tmp_path: Path) -> None:
    body = "def test_claim() -> None:\n    detent.task(sum)\n"
    assert doors_of(tmp_path, body, name="tests/sdk/test_one.py") == ("detent.task",)
    assert doors_of(tmp_path, body, name="tests/runs/test_one.py") == ()
    assert doors_of(tmp_path, body + "    detent.run('x')\n", name="tests/runs/test_one.py") == ("detent.run",)


def test_the_workflow_library_is_told_by_its_names(tmp_path: Path) -> None:
    head = "from detent.workflow.executor import plan_workflow, _inner\n"
    assert doors_of(tmp_path, "def test_claim() -> None:\n    _inner()\n", head=head) == ()
    assert doors_of(tmp_path, "def test_claim() -> None:\n    plan_workflow()\n", head=head) == (
        "detent.workflow.plan_workflow",
    )


def test_a_marker_names_a_door_that_cannot_be_read(tmp_path: Path) -> None:
    marked = '@pytest.mark.door("setting [log]")\ndef test_claim() -> None:\n    pass\n'
    assert doors_of(tmp_path, marked) == ("setting [log]",)
    plain = "def test_claim() -> None:\n    pass\n"
    assert doors_of(tmp_path, plain, head='pytestmark = pytest.mark.door("setting [log]")') == ("setting [log]",)


def test_a_class_or_module_has_only_the_doors_that_all_of_its_tests_share(tmp_path: Path) -> None:
    body = 'def test_one(cli: Cli) -> None:\n    cli("run")\n    cli("show")\ndef test_claim(cli: Cli) -> None:\n    cli("run")\n'
    doors_of(tmp_path, body)
    assert Doors(tmp_path, NAMES).of("tests/cli/test_one.py", "") == ("detent run",)
