"""One element of a chunk of `Client.map` at the commands: shown, explained, read, retried and proved as a job of its own is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.canon import parse_digest
from detent.canon.merkle import verify_inclusion
from detent.sdk.client import Client
from detent.sdk.outcomes import TaskFailed
from tests.cli.conftest import Cli
from tests.golden.archives import put_in_place
from tests.golden.arrays import ARCHIVE, RETRIED, REUSED, SECOND

TASKS = """
import pathlib, sys

def halve(x):
    print("halving", x)
    if x == 3 and not pathlib.Path("mended").exists():
        raise ValueError("three")
    return x // 2
"""


@pytest.fixture
def array(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job of five calls, of which the one for 3 failed."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "tasks_of_elements.py").write_text(TASKS)
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    import tasks_of_elements  # type: ignore[import-not-found]

    with Client(cli.played.home.path, workers=1) as client, pytest.raises(TaskFailed) as caught:
        list(client.map(tasks_of_elements.halve, range(5), chunk=5))
    name = str(caught.value.details["job_id"])
    assert name.endswith(".3")
    return name.removesuffix(".3")


def test_show_lists_the_elements_of_a_job(cli: Cli, array: str) -> None:
    page = cli("show", array).out
    assert "python tasks_of_elements:halve, 5 elements" in page
    assert "1 of 5 elements failed; element 3: ValueError: three" in page
    assert "printed" not in page  # Each element did, and the job as such has neither output nor a result.
    lines = [line.split() for line in page.splitlines() if line.startswith(".")]
    assert [(line[0], line[1]) for line in lines] == [
        (".0", "succeeded"),
        (".1", "succeeded"),
        (".2", "succeeded"),
        (".3", "failed"),
        (".4", "succeeded"),
    ]
    found = cli.json("show", array)["elements"]
    assert (found["count"], found["states"]) == (5, {"succeeded": 4, "failed": 1})
    assert [one["job_id"] for one in found["list"]] == [f"{array}.{place}" for place in range(5)]


def test_show_tells_of_one_element_what_it_would_tell_of_a_job(cli: Cli, array: str) -> None:
    failed, fine = cli.json("show", f"{array}.3"), cli.json("show", f"{array}.4")
    assert (failed["job_id"], failed["array"], failed["state"]) == (f"{array}.3", array, "failed")
    assert (failed["report"]["error"]["message"], failed["report"]["stdout"]["size_bytes"]) == ("three", 10)
    assert "tasks_of_elements.py" in failed["report"]["error"]["traceback"]
    assert failed["order"]["keywords"] == {"x": 3}
    assert (fine["state"], fine["reason_code"], fine["report"]["value"]) == ("succeeded", "COMPLETED", 2)
    page = cli("show", f"{array[:12]}.4").out
    assert page.startswith(f"element {array}.4  succeeded")
    assert "halve(x=4)" in page


def test_the_proof_of_an_element_leads_to_the_root_in_the_signed_report(cli: Cli, array: str) -> None:
    found: list[dict[str, Any]] = [cli.json("show", f"{array}.{place}")["proof"] for place in range(5)]
    for place, proof in enumerate(found):
        path = [parse_digest(one) for one in proof["path"]]
        leaf, root = parse_digest(proof["leaf"]), parse_digest(proof["root"])
        assert verify_inclusion(leaf, place, 5, path, root)
        assert not verify_inclusion(leaf, (place + 1) % 5, 5, path, root)
    assert len({proof["root"] for proof in found}) == 1


def test_list_says_how_many_elements_a_job_has(cli: Cli, array: str) -> None:
    (job,) = (one for one in cli.json("list", "--jobs") if one["job_id"] == array)
    assert (job["step"], job["elements"]) == ("tasks_of_elements:halve", 5)
    assert "halve (5 elements)" in cli("list", "--jobs", "--state", "failed").out


def test_logs_have_the_output_of_one_element_or_of_all(cli: Cli, array: str) -> None:
    assert cli("logs", f"{array}.3").out == "halving 3\n"
    assert cli("logs", f"{array}.3", "--follow").out == "halving 3\n"
    assert cli("logs", array).out == "".join(f"halving {x}\n" for x in range(5))
    (log,) = cli.json("logs", f"{array}.2")["jobs"]
    assert (log["job_id"], log["state"], log["attempts"][0]["stdout"]["text"]) == (
        f"{array}.2",
        "succeeded",
        "halving 2\n",
    )


def test_explain_tells_of_the_element_and_of_its_job(cli: Cli, array: str) -> None:
    page = cli("explain", f"{array}.3").out
    assert page.startswith(f"element {array}.3  failed")
    assert "It is element 3 of 5" in " ".join(page.split())
    assert "ValueError: three." in page
    assert cli.json("explain", f"{array}.4")["state"] == "succeeded"


def test_retry_runs_one_element_again(cli: Cli, array: str) -> None:
    (Path.cwd() / "mended").touch()
    retried = cli.json("retry", f"{array}.3")
    assert (retried["retry_of"], retried["state"], retried["result"]) == (f"{array}.3", "succeeded", 1)
    assert cli.json("retry", f"{array}.4")["retried"] is False
    assert cli.json("show", retried["job_id"])["order"]["retry_of"] == f"{array}.3"
    refused = cli("retry", array)
    assert refused.code == 2
    assert "5 elements, and each is retried by itself" in refused.err


@pytest.mark.parametrize("command", [("cancel",), ("erase", "--yes", "--job")])
def test_what_is_done_to_a_whole_job_is_refused_for_an_element(cli: Cli, array: str, command: tuple[str, ...]) -> None:
    refused = cli(*command, f"{array}.3")
    assert refused.code == 2
    assert "is an element of job" in refused.err
    assert cli.json("show", array)["elements"]["count"] == 5


def test_an_element_that_is_not_there_is_named(cli: Cli, array: str) -> None:
    refused = cli("show", f"{array}.5")
    assert refused.code == 2
    assert "has 5 elements, counted from 0: there is no element 5" in refused.err


def test_the_history_with_arrays_verifies_and_replays(cli: Cli, array: str, tmp_path: Path) -> None:
    assert cli.json("verify")["ok"]
    bundle = str(tmp_path / "all.detent")
    root = cli.json("export", "--output", bundle)["root"]
    assert cli.json("verify", bundle, "--root", root)["ok"]
    assert cli("replay").code == 0
    assert array


@pytest.fixture
def kept(cli: Cli) -> list[dict[str, Any]]:
    """The elements of the newest run of the golden home with arrays, which is put in place of the played one."""
    put_in_place(ARCHIVE, cli.played.home.path)
    (step,) = cli.json("show", "mapped")["step_list"]
    return list(step["jobs"])


def test_the_golden_home_with_arrays_verifies_and_replays(cli: Cli, kept: list[dict[str, Any]]) -> None:
    """Old ledgers verify for ever; X-185: four elements, of which three share a job and one is another job's"""
    document = cli.json("verify")
    assert (document["ok"], document["counts"]["submitted"], document["counts"]["results_signed"]) == (True, 2, 3)
    assert cli.json("replay")["ok"]
    assert [one["reused"] for one in kept] == [number == REUSED for number in SECOND]
    assert [one["job_id"].rpartition(".")[2] for one in kept] == ["3", "0", "1", "2"]
    assert len({one["job_id"].rpartition(".")[0] for one in kept}) == 2


@pytest.mark.parametrize("number", SECOND)
def test_an_element_of_the_golden_home_has_its_value_attempt_log_and_proof(
    cli: Cli, kept: list[dict[str, Any]], number: int
) -> None:
    """X-164, X-148: in the signed report or as content, settled at once or in the next attempt, the run's own or reused"""
    name = str(kept[SECOND.index(number)]["job_id"])
    element, array = cli.json("show", name), cli.json("show", name.rpartition(".")[0])
    assert element["order"]["keywords"] == {"n": number}
    assert element["report"]["value"] == "ab" * number
    assert element["attempt"] == (2 if number == RETRIED else 1)
    assert array["attempts"] == (1 if number == REUSED else 2)
    said = cli("logs", name).out.splitlines()
    assert [line for line in said if not line.startswith("---")] == [f"repeating {number}"] * element["attempt"]
    proof = element["proof"]
    path = [parse_digest(one) for one in proof["path"]]
    leaf, root = parse_digest(proof["leaf"]), parse_digest(proof["root"])
    assert verify_inclusion(leaf, element["element"], array["elements"]["count"], path, root)
