"""The generator of docs/traceability.md reads ids as docs/contracts/README.md says, and the page on disk is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import traceability

# Ids are put together here, because a literal one in this file would itself be read as a mention.
ONE, TWO, THREE, FOUR = (f"PIPE-{number:03d}" for number in range(1, 5))
CORE = "OC-CORE"
OTHER = f"CORE-X{1:03d}"
RANGE = "..".join(f"PIPE-{number:03d}" for number in (50, 55))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with four PIPE rows, of which the fourth waits, and two lettered rows around one of another series."""
    contracts = tmp_path / "docs" / "contracts"
    contracts.mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    for name in traceability.CONTRACTS:
        (contracts / name).write_text(f"# {name}\n", encoding="utf-8")
    table = "| ID | Level | Requirement | How |\n|---|---|---|---|\n"
    rows = "".join(f"| {row_id} | MUST | Says \\| {row_id}. | Look. |\n" for row_id in (ONE, TWO, THREE, FOUR))
    (contracts / "pipeline.md").write_text(f"# Pipeline\n\n{table}{rows}", encoding="utf-8")
    core = (f"{CORE}-1001a", OTHER, f"{CORE}-1001b")
    rows = "".join(f"| {row_id} | MUST | Says. | Look. |\n" for row_id in core)
    (contracts / "core.md").write_text(f"# Core\n\n{table}{rows}", encoding="utf-8")
    write_waiting(tmp_path, yet=(ONE, TWO, THREE), fleet=(FOUR, *core))
    return tmp_path


def write_waiting(repository: Path, *, yet: tuple[str, ...] = (), fleet: tuple[str, ...] = ()) -> Path:
    path = repository / "docs" / "contracts" / "waiting.toml"
    lines = ["no_door_yet = [", *(f'    "{row_id}",' for row_id in yet), "]", "", "[rows]"]
    path.write_text("\n".join([*lines, *(f'"{row_id}" = "fleet"' for row_id in fleet), ""]), encoding="utf-8")
    return path


def write_test(repository: Path, source: str, name: str = "test_one.py") -> None:
    file = repository / "tests" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")


def named(repository: Path, row_id: str) -> list[str]:
    return [str(test).strip("`") for test in traceability.read_matrix(repository).tests.get(row_id, [])]


def test_the_page_on_disk_is_what_contracts_and_tests_give(capsys: pytest.CaptureFixture[str]) -> None:
    """CORE-X006, CORE-X007, X-188: the ids are linted, and a map leads from each of them to its tests and doors."""
    status = traceability.main(["--check"])
    assert (status, capsys.readouterr().err) == (0, "")


def test_every_row_of_every_contract_is_read() -> None:
    contracts = Path(__file__).resolve().parents[2] / "docs" / "contracts"
    texts = {name: (contracts / name).read_text(encoding="utf-8") for name in traceability.CONTRACTS}
    counts = [len(traceability.read_rows(text, name)) for name, text in texts.items()]
    assert counts == [123, 55, 58, 284, 85, 200]


def test_an_id_belongs_to_the_innermost_test_around_it(repository: Path) -> None:
    source = (
        f'"""Module: {ONE}."""\n'
        "class TestRoom:\n"
        f'    """{TWO}"""\n'
        "    @decorated(\n"
        f'        "{THREE}"\n'
        "    )\n"
        "    def test_claim(self):\n"
        "        def helper():\n"
        f"            return 1  # {FOUR}\n"
        "def helper():\n"
        f'    """{TWO}"""\n'
    )
    write_test(repository, source)
    assert named(repository, ONE) == ["tests/test_one.py"]
    assert named(repository, TWO) == ["tests/test_one.py::TestRoom", "tests/test_one.py"]
    assert named(repository, THREE) == ["tests/test_one.py::TestRoom::test_claim"]
    assert named(repository, FOUR) == ["tests/test_one.py::TestRoom::test_claim"]


def test_a_range_names_every_row_between_its_ends(repository: Path) -> None:
    write_test(repository, f'def test_claim():\n    """{ONE}..{THREE}"""\n')
    assert [bool(named(repository, row_id)) for row_id in (ONE, TWO, THREE, FOUR)] == [True, True, True, False]


def test_a_range_keeps_to_its_series(repository: Path) -> None:
    write_test(repository, f'def test_claim():\n    """{CORE}-1001a..{CORE}-1001b"""\n')
    assert [bool(named(repository, row_id)) for row_id in (f"{CORE}-1001a", OTHER, f"{CORE}-1001b")] == [
        True,
        False,
        True,
    ]


def test_a_bare_core_id_names_its_lettered_rows(repository: Path) -> None:
    write_test(repository, f'def test_claim():\n    """{CORE}-1001"""\n')
    assert named(repository, f"{CORE}-1001a") == named(repository, f"{CORE}-1001b") == ["tests/test_one.py::test_claim"]


def test_a_helper_without_tests_covers_nothing(repository: Path) -> None:
    write_test(repository, f'"""Builders for {ONE}."""\n', name="builders.py")
    assert named(repository, ONE) == []


@pytest.mark.parametrize(
    "written", [f"{ONE}..003", f"{ONE}...{THREE}", f"{ONE} to {THREE}", f"{ONE}-003", f"{ONE}/002"]
)
def test_check_refuses_a_range_written_another_way(repository: Path, written: str) -> None:
    write_test(repository, f'def test_claim():\n    """{ONE}..{FOUR}"""\n    # {written}\n')
    expected = f"tests/test_one.py:3: write a range as {RANGE}, not {written!r}"
    assert traceability.read_matrix(repository).problems == [expected]


@pytest.mark.parametrize("unknown", [f"PIPE-{999}", f"{ONE}..PIPE-{999}", f"{CORE}-{9999}"])
def test_check_refuses_an_id_that_no_contract_has(repository: Path, unknown: str) -> None:
    write_test(repository, f'def test_claim():\n    """{ONE}..{FOUR} {unknown}"""\n')
    assert traceability.read_matrix(repository).problems == [
        f"tests/test_one.py:2: {unknown} names no row of a contract"
    ]


def test_check_refuses_a_row_without_a_test_and_accepts_one_that_waits(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(repository, f"def test_claim():\n    pass  # {ONE}\n")
    arguments = ["--root", str(repository)]
    assert traceability.main(arguments) == 0
    capsys.readouterr()
    assert traceability.main([*arguments, "--check"]) == 1
    assert capsys.readouterr().err == (
        f"no test and no part to wait for in docs/contracts/waiting.toml: {TWO}..{THREE}\n"
    )


def test_check_refuses_a_row_that_has_neither_a_door_nor_an_entry(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """X-188"""
    write_waiting(repository, yet=(ONE,), fleet=(FOUR, f"{CORE}-1001a", OTHER, f"{CORE}-1001b"))
    write_test(repository, f"def test_claim():\n    pass  # {ONE}..{THREE}\n")
    write_test(repository, f"import detent\ndef test_door():\n    detent.run()  # {TWO}\n", name="test_two.py")
    assert traceability.main(["--root", str(repository), "--check"]) == 1
    assert f"no door and no entry in docs/contracts/waiting.toml: {THREE}\n" in capsys.readouterr().err


def test_a_row_leaves_the_list_of_those_without_a_door_when_one_arrives(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(repository, f"def test_claim():\n    pass  # {ONE}..{THREE}\n")
    write_test(repository, f"import detent\ndef test_door():\n    detent.run()  # {TWO}\n", name="test_two.py")
    arguments = ["--root", str(repository)]
    assert traceability.main([*arguments, "--check"]) == 1
    assert f"still lists {TWO}: run `make docs`" in capsys.readouterr().err
    assert traceability.main(arguments) == 0
    assert traceability.main([*arguments, "--check"]) == 0
    listed = (repository / "docs" / "contracts" / "waiting.toml").read_text(encoding="utf-8")
    assert [row_id in listed for row_id in (ONE, TWO, THREE)] == [True, False, True]


def test_check_refuses_a_stale_page(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_test(repository, f"def test_claim():\n    pass  # {ONE}..{FOUR}\n")
    arguments = ["--root", str(repository)]
    assert traceability.main(arguments) == 0
    assert traceability.main([*arguments, "--check"]) == 0
    write_test(repository, f"def test_other_claim():\n    pass  # {ONE}..{FOUR}\n")
    assert traceability.main([*arguments, "--check"]) == 1
    assert "run `make docs`" in capsys.readouterr().err


def test_check_refuses_a_row_that_is_defined_twice(repository: Path) -> None:
    contract = repository / "docs" / "contracts" / "jobs.md"
    contract.write_text(f"# Jobs\n\n| ID | Requirement |\n|---|---|\n| {ONE} | Again. |\n", encoding="utf-8")
    assert traceability.read_matrix(repository).problems[0] == f"docs/contracts/jobs.md: {ONE} is defined twice"


def test_check_refuses_a_waiting_entry_without_a_row(repository: Path) -> None:
    write_waiting(repository, fleet=(f"PIPE-{777}",))
    assert traceability.read_matrix(repository).problems[0] == f"docs/contracts/waiting.toml: PIPE-{777} names no row"


def test_check_refuses_a_part_that_is_not_known(repository: Path) -> None:
    path = write_waiting(repository, fleet=(FOUR,))
    path.write_text(path.read_text(encoding="utf-8").replace("fleet", "the moon"), encoding="utf-8")
    expected = f"docs/contracts/waiting.toml: {FOUR} waits for 'the moon', which is none of fleet, PostgreSQL"
    assert traceability.read_matrix(repository).problems[0].startswith(expected)


def test_the_page_shows_three_tests_the_rest_as_a_number_and_what_a_row_waits_for(repository: Path) -> None:
    tests = "".join(f"def test_{letter}():\n    pass  # {ONE} {FOUR}\n" for letter in "abcde")
    write_test(repository, tests)
    page = traceability.render(traceability.read_matrix(repository)).splitlines()
    shown = "<br>".join(f"`tests/test_one.py::test_{letter}`" for letter in "abc") + "<br>and 2 more"
    assert f"| {ONE} | Says \\| {ONE}. | **none yet** | {shown} |" in page
    assert f"| {FOUR} | Says \\| {FOUR}. | waits for: fleet | {shown} |" in page
    assert f"| {TWO} | Says \\| {TWO}. | **none yet** | **none** |" in page
    assert f"- fleet: {FOUR}, {CORE}-1001a, {OTHER}, {CORE}-1001b" in page
    assert f"- {ONE}..{THREE}" in page


def test_the_summary_counts_doors_apart_from_the_library(repository: Path) -> None:
    write_test(repository, f"import detent\ndef test_door():\n    detent.run()  # {ONE}\n")
    source = f"from detent.workflow import plan_workflow\ndef test_library():\n    plan_workflow()  # {TWO}\n"
    write_test(repository, source, name="test_two.py")
    write_test(repository, f"def test_inside():\n    pass  # {THREE}\n", name="test_three.py")
    page = traceability.render(traceability.read_matrix(repository)).splitlines()
    assert "| [Pipeline](contracts/pipeline.md) | 4 | 3 | 1 | 1 | 0 | 1 | 1 |" in page


def test_a_shortened_requirement_closes_what_it_opens() -> None:
    text = "word " * 18 + "`code that is cut " + "off` and more"
    row = traceability.Row(ONE, text, "pipeline.md")
    matrix = traceability.Matrix({"pipeline.md": "Pipeline"}, {ONE: row}, {}, traceability.Waiting(), [])
    assert f"| {ONE} | {('word ' * 18).rstrip()} … | **none yet** | **none** |" in traceability.render(matrix)
