"""Where control groups are, read from texts of machines that are not at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detent.executor.sandbox import cgroup

V1 = """
35 24 0:30 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
36 24 0:31 / /sys/fs/cgroup/pids rw,relatime shared:10 - cgroup cgroup rw,pids
38 24 0:33 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:12 - cgroup cgroup rw,cpu,cpuacct
37 24 0:32 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw
"""
V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
CONTAINER = "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"


def test_version_1_is_found_below_our_own_groups() -> None:
    found = cgroup.find(V1, "8:pids:/\n4:memory:/system/one\n3:cpu,cpuacct:/two\n0::/\n")
    assert found == {
        "version": 1,
        "memory": "/sys/fs/cgroup/memory/system/one",
        "pids": "/sys/fs/cgroup/pids",
        "time": "/sys/fs/cgroup/cpu,cpuacct/two",
    }


def test_version_2_is_found_below_our_own_group() -> None:
    place = "/sys/fs/cgroup/user.slice/user@1000.service"
    found = cgroup.find(V2, "0::/user.slice/user@1000.service\n")
    assert found == {"version": 2, "memory": place, "pids": place, "time": place}


def test_a_containers_own_root_is_taken_into_account() -> None:
    found = cgroup.find(CONTAINER, "0::/docker/abc/inner\n")
    assert found is not None
    assert found["memory"] == "/sys/fs/cgroup/inner"


def test_nothing_mounted_means_no_groups() -> None:
    assert cgroup.find("24 1 8:1 / / rw - ext4 /dev/vda rw\n", "0::/\n") is None
    assert cgroup.find(V1.replace(",pids", ",cpu"), "8:cpu:/\n4:memory:/\n") is None


@pytest.mark.parametrize("text", ["1234567890\n", "usage_usec 1234567\nuser_usec 1\nsystem_usec 2\n"])
def test_processor_time_is_read_in_the_form_of_both_versions(tmp_path: Path, text: str) -> None:
    (tmp_path / "gauge").write_text(text)
    with (tmp_path / "gauge").open("rb") as file:
        assert int(cgroup.read_cpu_ms([-1, -1, file.fileno()])) == 1234


CHILDREN = """
import os, signal, sys, time
from detent.executor.sandbox import cgroup
cgroup.enter({"version": 2, "memory": sys.argv[1], "pids": sys.argv[1], "time": sys.argv[1]}, sys.argv[2])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(60):
    if os.fork() == 0:
        while time.process_time() < 0.005: pass
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        pass
"""


def test_version_2_counts_the_time_of_children_that_are_never_waited_for() -> None:
    """JOB-037: by a real group, wherever one can be made; it needs no controller to be turned on."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    place = next((Path(words[4]) for words in mounts if os.access(words[4], os.W_OK)), None)
    if place is None:
        return  # This user may make no group of version 2; what is read from one is tested above.
    group = f"{cgroup.PREFIX}test-{os.getpid()}"
    (place / group).mkdir()
    try:
        subprocess.run([sys.executable, "-c", CHILDREN, str(place), group], check=True)
        gauge = os.open(place / group / "cpu.stat", os.O_RDONLY)
        assert 300 <= cgroup.read_cpu_ms([-1, -1, gauge]) < 60_000
        os.close(gauge)
    finally:
        (place / group).rmdir()
