"""Run as root: becomes an ordinary user in a mount namespace of its own, then runs every payload there.

The interpreter may lie under a directory that only root may enter; in the private namespace such directories are replaced by
empty ones that show what is needed and nothing else. Prints one JSON object: for each payload, its faults and verdicts.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

USER = 65_534
REPOSITORY = Path(__file__).resolve().parents[2]


def become_user(uid: int) -> None:
    """Give up root for good, with the interpreter, its packages and the repository within reach."""
    from detent.executor.sandbox import linux

    linux.call("unshare", linux.CLONE_NEWNS)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    needed = {os.path.realpath(sys.base_prefix), os.path.realpath(sys.prefix), str(REPOSITORY)}
    barred: dict[str, list[tuple[str, int]]] = {}
    for path in sorted(needed):
        parents = [str(parent) for parent in reversed(Path(path).parents)]
        first = next((parent for parent in parents if Path(parent).stat().st_mode & 0o005 != 0o005), None)
        if first is not None:
            barred.setdefault(first, []).append((path, os.open(path, os.O_PATH)))
    for directory, sources in barred.items():
        linux.mount("open", directory, "tmpfs", linux.MS_NOSUID, "mode=755")
        for path, source in sources:
            Path(path).mkdir(
                parents=True, exist_ok=True
            )  # The environment may lie inside the repository, shown before it.
            linux.mount(f"/proc/self/fd/{source}", path, "", linux.MS_BIND | linux.MS_REC)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Changing identity makes a process's own /proc files root's; the spawner has to write some of them.
    linux.prctl(linux.PR_SET_DUMPABLE, 1)


def run_all(profile_name: str, *, twice: bool) -> dict[str, object]:
    """Every payload, as the user of this process."""
    from detent.executor.sandbox import Profile, Sandbox
    from tests.hostile import payloads, rig

    answers: dict[str, object] = {}
    with Sandbox(
        profile=None if profile_name == "best" else Profile(profile_name), warm=2, warm_limits=payloads.SMALL
    ) as supervisor:
        for payload in payloads.ALL:
            faults = []
            for _ in range(2 if twice or not payload.slow else 1):
                execution = rig.run(supervisor, rig.job_of(payload))
                faults += rig.faults(payload, execution)
                supervisor.discard(execution)
            answers[payload.name] = faults
        supervisor.await_warm()
        owner = Path(f"/proc/{supervisor._ready[0].pid}/mem").stat().st_uid
        answers["init can be looked into"] = [] if owner == 0 else [f"its memory belongs to {owner}"]
        answers["profile"] = supervisor.profile.value
        answers["uid"] = os.getuid()
        answers["traces"] = rig.traces(supervisor)
    return answers


def run_outside() -> dict[str, object]:
    """The calls of no list, in every profile with a filter that a user has."""
    from detent.executor.sandbox import Profile, probe, profile_of
    from tests.hostile import outside

    best = profile_of(probe())
    profiles = [one for one in (Profile.FULL_ROOTLESS, Profile.KERNEL_FILTER) if one.strength <= best.strength]
    return {profile.value: outside.let_through(profile) for profile in profiles}


if __name__ == "__main__":
    sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY)]
    become_user(USER)
    with tempfile.TemporaryDirectory(prefix="detent-as-user-") as directory:
        tempfile.tempdir = directory
        asked = sys.argv[1:]
        json.dump(run_outside() if asked == ["outside"] else run_all("best", twice=asked == ["twice"]), sys.stdout)
