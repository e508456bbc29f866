"""Perverse source code, and files that do not stay: no crash, no endless wait, no wrong reuse."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detent.errors import InvalidInput
from detent.reuse.ingredients import CodeReader, source_digest
from detent.reuse.ingredients import modules as modules_read
from tests.reuse.ingredients.projects import edit, look, resolved, write


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"def step(:\n", "it is not valid Python"),
        (b"def step():\n    return '\xff\xfe'\n", "it is not valid Python"),
        (b"# coding: nonsense\ndef step():\n    return 1\n", "it is not valid Python"),
        (b"def step():\n    return 1\n\0", "null bytes"),
        (b"def step():\n  return " + b"(" * 5000 + b")" * 5000, "it is not valid Python|nested too deeply"),
    ],
)
def test_a_file_that_is_no_python_is_named(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_bytes(content)
    code = look(tmp_path)
    assert code.digest is None
    assert len(code.unresolved) == 1
    assert code.unresolved[0].where.startswith("pipeline.py")
    assert any(part in code.unresolved[0].why for part in why.split("|"))


def test_another_encoding_is_read_as_python_reads_it(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_bytes("# coding: latin-1\ndef step():\n    return 'ä'\n".encode("latin-1"))
    first = resolved(tmp_path)
    (tmp_path / "pipeline.py").write_text("def step():\n    return 'ä'\n", encoding="utf-8")
    assert resolved(tmp_path) == first


def test_a_broken_module_counts_only_for_who_reaches_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pipeline.py": "import broken\ndef step():\n    return 1\ndef other():\n    return broken.f()\n",
            "broken.py": "((",
        },
    )
    resolved(tmp_path)
    assert look(tmp_path, "pipeline:other").digest is None


def test_the_depth_of_source_is_its_authors_choice(tmp_path: Path) -> None:
    write(tmp_path, {"pipeline.py": f"LIMIT = 1\ndef step(x):\n    return {' + '.join(['x'] * 2500)} + LIMIT\n"})
    before = resolved(tmp_path)
    edit(tmp_path, "pipeline.py", "LIMIT = 1", "LIMIT = 2")
    assert resolved(tmp_path) != before


def test_a_chain_of_two_thousand_functions_is_followed_to_its_end(tmp_path: Path) -> None:
    source = (
        "".join(f"def f{index}():\n    return f{index + 1}()\n" for index in range(2000))
        + "def f2000():\n    return 1\n"
    )
    write(tmp_path, {"pipeline.py": source})
    before = resolved(tmp_path, "pipeline:f0")
    edit(tmp_path, "pipeline.py", "return 1", "return 2")
    assert resolved(tmp_path, "pipeline:f0") != before


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "pipeline.py").open("wb") as file:
        file.truncate(modules_read.SOURCE_BYTES_MAX + 1)
    assert look(tmp_path).unresolved[0].why == f"cannot be read: it has more than {modules_read.SOURCE_BYTES_MAX} bytes"


def test_a_pipe_in_the_place_of_a_module_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipeline.py")
    assert look(tmp_path).unresolved[0].why == "cannot be read: it is not a regular file"


def test_modules_that_hand_a_name_on_in_a_circle_end(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pipeline.py": "from a import f\ndef step():\n    return f()\n",
            "a.py": "from b import f\n",
            "b.py": "from a import f\n",
        },
    )
    assert look(tmp_path).unresolved[0].why == "is defined nowhere"
    write(tmp_path, {"a.py": "from b import *\n", "b.py": "from a import *\n"})
    assert look(tmp_path).digest is None


def test_a_name_may_come_on_a_million_ways(tmp_path: Path) -> None:
    layers = {
        f"m{layer}_{side}.py": f"from m{layer + 1}_0 import *\nfrom m{layer + 1}_1 import *\n"
        for layer in range(30)
        for side in (0, 1)
    }
    ends = {"m30_0.py": "def f():\n    return 1\n", "m30_1.py": ""}
    write(tmp_path, {"pipeline.py": "from m0_0 import f\ndef step():\n    return f()\n", **layers, **ends})
    assert list(look(tmp_path).parts) == ["m30_0:f", "pipeline:step"]
    hops = {f"h{hop}.py": f"from h{hop + 1} import f\n" for hop in range(2000)}
    write(tmp_path, {"pipeline.py": "from h0 import f\ndef step():\n    return f()\n", **hops})
    assert look(tmp_path).unresolved[0].why == "is found through too many modules"


def test_a_file_that_vanishes_between_two_looks_is_missed(tmp_path: Path) -> None:
    write(
        tmp_path, {"pipeline.py": "import lib\ndef step():\n    return lib.f()\n", "lib.py": "def f():\n    return 1\n"}
    )
    reader = CodeReader(tmp_path, path=())
    assert reader._project.finder.find("lib").kind == "project"
    (tmp_path / "lib.py").unlink()
    assert [each.why for each in reader.digest("pipeline:step").unresolved] == [
        "cannot be read: No such file or directory"
    ]
    assert [each.why for each in look(tmp_path).unresolved] == ["is a module that is found nowhere"]


def test_a_module_with_a_name_of_pythons_counts_as_the_projects(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pipeline.py": "import statistics\ndef step(x):\n    return statistics.mean(x)\n",
            "statistics.py": "def mean(x):\n    return 1\n",
        },
    )
    before = resolved(tmp_path)
    edit(tmp_path, "statistics.py", "return 1", "return 2")
    assert resolved(tmp_path) != before


def test_a_file_rewritten_at_once_is_read_again(tmp_path: Path) -> None:
    """The same size, the same inode, and on a coarse clock the same time."""
    path = tmp_path / "pipeline.py"
    digests = set()
    for value in range(1, 6):
        path.write_text(f"def step():\n    return {value}\n")
        os.utime(path, ns=(1, 1))
        digests.add(resolved(tmp_path))
    assert len(digests) == 5
    assert not any(str(path) in key for key in modules_read._READ)


def test_an_old_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules_read, "RACY_NS", -1)
    write(tmp_path, {"pipeline.py": "def step():\n    return 1\n"})
    first = modules_read.read_module("pipeline", str(tmp_path / "pipeline.py"))
    assert modules_read.read_module("pipeline", str(tmp_path / "pipeline.py")) is first
    write(tmp_path, {"pipeline.py": "def step():\n    return 10\n"})
    assert modules_read.read_module("pipeline", str(tmp_path / "pipeline.py")) is not first


def test_a_target_without_a_function_is_invalid(tmp_path: Path) -> None:
    for target in ("pipeline", ":step", "pipeline:"):
        with pytest.raises(InvalidInput, match="names no function"):
            CodeReader(tmp_path).digest(target)
    assert look(tmp_path, "a\0b.py:step").digest is None
    assert look(tmp_path, "../../nowhere.py:step").digest is None


def test_nothing_of_the_users_is_run(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pipeline.py": "open('ran', 'w')\nimport lib\ndef step():\n    return lib.f()\n",
            "lib.py": "1 / 0\ndef f():\n    return 1\n",
        },
    )
    resolved(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lib.py", "pipeline.py"]


def test_source_with_lone_surrogates_has_a_digest() -> None:
    assert source_digest("x = '\udc80'").digest is not None
