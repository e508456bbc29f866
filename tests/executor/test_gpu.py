"""What `nvidia-smi pmon` prints, and the GPU time that it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.executor.gpu import GpuReader, find_gpu_reader, samples_of

NEW = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command
# Idx           #    C/G      %      %      %      %      %      %    name
    0       1234     C     45     12      -      -      -      -    python
    0         77     G      -      -      -      -      -      -    Xorg
    1       1234     C     50      3      -      -      -      -    python
    0       1234     C     40     12      -      -      -      -    python
    0         77     G      5      -      -      -      -      -    Xorg
    1          -     -      -      -      -      -      -      -    -
"""
OLD = """\
# gpu        pid  type    sm   mem   enc   dec   command
# Idx          #   C/G     %     %     %     %   name
    0       1234     C    10     1     0     0   python
# gpu        pid  type    sm   mem   enc   dec   command
# Idx          #   C/G     %     %     %     %   name
    0       1234     C    20     1     0     0   python
"""


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        (NEW, [{1234: 95.0, 77: 0.0}, {1234: 40.0, 77: 5.0}]),
        (OLD, [{1234: 10.0}, {1234: 20.0}]),
        ("", []),
        ("No devices were found\n", []),
    ],
)
def test_samples_are_read_by_their_headers(text: str, samples: list[dict[int, float]]) -> None:
    """PIPE-097: a process on two GPUs counts on both; without a header there is nothing to read."""
    assert list(samples_of(text.splitlines(keepends=True))) == samples


def program(directory: Path, text: str) -> str:
    path = directory / "nvidia-smi"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    path.chmod(0o755)
    return str(path)


def test_the_shares_of_a_second_add_up_to_time(tmp_path: Path) -> None:
    """PIPE-097"""
    reader = GpuReader(program(tmp_path, NEW))
    reader._thread.join()  # It has printed all that it will.
    assert reader.reading([1234]) == (2, 1350.0)
    assert reader.reading([1234, 77]) == (2, 1400.0)
    assert reader.reading([5]) == (2, 0.0)
    reader.close()


def test_without_the_program_there_is_no_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PIPE-097: and so no measurement, which is not a measurement of nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpu_reader() is None
    program(tmp_path, "")
    reader = find_gpu_reader()
    assert reader is not None
    reader._thread.join()
    assert reader.reading([1]).samples == 0
    reader.close()
