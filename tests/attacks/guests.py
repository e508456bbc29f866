"""Guests that speak out of turn: random and hostile words on every descriptor they hold, in a jail and in a plain worker.

Whatever they say, the attempt ends as a failure of the guest, or as a success whose value the guest really said; the owner goes on,
the next job runs, nothing of the jail is left, and the history verifies.
"""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from detent.canon import encode
from detent.executor.plain import wire
from detent.executor.sandbox import Execution, Job, Profile, Sandbox
from detent.pages.text import safe
from tests.attacks.asked import Desk, faults
from tests.attacks.case import Case
from tests.faults.commands import Commands
from tests.faults.site import new_site
from tests.hostile.payloads import SMALL
from tests.hostile.rig import CONTAINED, STRONG, run, traces
from tests.hostile.test_guest_words import HUGE, MISUSE, POISONS, done

RESULT = 3
"""The descriptor on which a guest's result travels."""
EVERY = -1
SPEAKING = """\
import os
def main(acts, end, value):
    for number, words, times in acts:
        data = bytes.fromhex(words) * times
        for handle in range(24) if number < 0 else (number,):
            rest = data
            try:
                while rest:
                    rest = rest[os.write(handle, rest):]
            except OSError:
                pass
    if end == "raise":
        raise ValueError(value)
    if end == "return":
        return value
    if end == "kill":
        os.kill(os.getpid(), 9)
    os._exit(value if isinstance(value, int) else 0)
"""
LIMITS = replace(SMALL, wall_ms=8_000)
PROFILES = [*CONTAINED, *([Profile.KERNEL_FILTER] if Profile.KERNEL_FILTER.strength <= STRONG.strength else [])]
STEPS = 5
"""Hostile steps of one contract."""
GOOD = "name: good\nsteps:\n  - id: good\n    run:\n      code: |\n        def main():\n            return 42\nresult: {$from: good}\n"


def attack_jail(guests: Guests, seed: int) -> Case:
    """One guest in a jail of a profile that contains, or of the weaker one, and a harmless guest after it."""
    draw = random.Random(f"guests/{seed}")
    case = Case("guests", seed)
    profile = PROFILES[seed % len(PROFILES)]
    supervisor = guests.supervisor(profile)
    words = Words(draw)
    parameters = words.parameters()
    case.done = f"{profile.value}: {json.dumps(parameters)[:300]}"
    execution = run(supervisor, Job(source=SPEAKING, entry="main", parameters=parameters, limits=LIMITS))
    category = None if execution.category is None else execution.category.value
    case.kind = f"guests, {profile.value}"
    case.outcome = "succeeded" if category is None else "failed"
    case.problems += _wrong(execution, words)
    supervisor.discard(execution)
    harmless = run(supervisor, Job(source="def main():\n    return 42\n", entry="main", limits=LIMITS))
    if harmless.result != b"42":
        case.problems.append(f"the next job came to {harmless.code}: {harmless.message}")
    supervisor.discard(harmless)
    if profile in CONTAINED:
        case.problems += [f"left behind: {what}" for what in traces(supervisor)]
    return case


def attack_run(commands: Commands, seed: int) -> Case:
    """A run with several such steps, in jails and in plain workers; then a harmless one, and what a person may read."""
    draw = random.Random(f"guests/{seed}")
    case = Case("guests, detent run", seed)
    with new_site(commands) as site:
        desk = Desk(commands, site.project, {**site.environment, "DETENT_DEBUG": ""}, site.outputs)
        (site.project / "misuse.py").write_text(MISUSE)
        (site.project / "words.yaml").write_text(_contract(draw))
        (site.project / "good.yaml").write_text(GOOD)
        case.done = f"{STEPS} hostile steps"
        ran, good = desk.ask(
            [("run", "words.yaml", "-w", "1", "-o", "json"), ("run", "good.yaml", "-w", "1", "-o", "json")]
        )[:2]
        case.problems += faults([ran, good])
        if case.problems:
            return case
        if good.code != 0 or good.document["result"] != 42:
            case.problems.append(f"the next run ended with {good.code}: {good.err[-500:]}")
        failures = ran.document["failures"]
        case.outcome = "failed" if failures else "succeeded"
        case.problems += [
            f"{failure['step']}: {failure['category']} {failure['code']}: {failure['message'][:300]}"
            for failure in failures
            if failure["category"] == "INTERNAL_ERROR" or failure["attempts"] != 1
        ]
        lines = [("show", failure["job_id"]) for failure in failures] + [
            ("explain", failure["job_id"]) for failure in failures
        ]
        read = desk.ask([*lines, ("logs", ran.document["run_id"]), ("show", ran.document["run_id"])])
        checked = desk.ask([("verify",), ("replay",)])
        case.problems += faults([*read, *checked])
        case.problems += [
            f"`{' '.join(answer.line)}` prints {line!r:.300}" for answer in read for line in _unsafe(answer.out)
        ]
        case.problems += [f"`{answer.line[0]}` is red: {answer.out[:500]}" for answer in checked if answer.code != 0]
        case.problems += [f"left behind: {what}" for what in commands.strays()]
    return case


class Guests:
    """A supervisor for each profile, made when it is first needed."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._made: dict[Profile, Sandbox] = {}

    def supervisor(self, profile: Profile) -> Sandbox:
        """The supervisor of a profile."""
        if profile not in self._made:
            made = Sandbox(profile=profile, required=Profile.KERNEL_FILTER, warm=1, warm_limits=LIMITS)
            self._made[profile] = self._open.enter_context(made)
        return self._made[profile]

    def close(self) -> None:
        """Close them all."""
        self._open.close()


class Words:
    """What one guest says, on which descriptors, and how it ends."""

    def __init__(self, draw: random.Random) -> None:
        self.acts = [
            (draw.choice((RESULT, RESULT, RESULT, EVERY, 0, 1, 2, draw.randrange(24))), *self._one(draw))
            for _ in range(draw.choice((1, 1, 1, 2, 3)))
        ]
        self.end = draw.choice(("exit", "exit", "return", "raise", "kill"))
        self.value = draw.choice((0, 1, 255)) if self.end == "exit" else any_json(draw)

    def parameters(self) -> dict[str, Any]:
        """As the arguments of the guest."""
        return {
            "acts": [[number, words.hex(), times] for number, words, times in self.acts],
            "end": self.end,
            "value": self.value if self.end != "raise" else json.dumps(self.value)[:500],
        }

    def said_on(self, number: int) -> bytes:
        """Every word that it may have said on a descriptor."""
        return b"".join(words * times for where, words, times in self.acts if where in {number, EVERY})

    def may_result_in(self, result: bytes) -> bool:
        """Whether the guest said so: by returning it, or in its own words on the result's descriptor."""
        returned = self.end == "return" and json.loads(result) == self.value
        return returned or result in self.said_on(RESULT)

    @staticmethod
    def _one(draw: random.Random) -> tuple[bytes, int]:
        if draw.random() < 0.08:
            return words_of(draw) or b"x", draw.choice((100, 10_000, 300_000))
        return words_of(draw), 1


def words_of(draw: random.Random) -> bytes:
    """A frame, or something like one."""
    value = json.dumps(any_json(draw)).encode("utf-8", "surrogatepass")
    whole = draw.choice(
        (
            draw.choice(list(POISONS.values())),
            b"R" + value,
            b"R" + value,
            b"R" + value,
            b"E" + value,
            b"E" + json.dumps({"chain": _chain(draw)}).encode() + b"\n" + value,
            b"R" + b"[" * draw.choice((17, 200, 5_000)) + b"]" * draw.choice((17, 200, 5_000)),
            b"R"
            + draw.choice((b"NaN", b"Infinity", b"-0", b"1e999", b"1" * 5000, b'{"a":1,"a":2}', b'"\\ud800"', b"\xff")),
            draw.randbytes(draw.choice((0, 1, 7, 64, 4096))),
            len(value).to_bytes(4, draw.choice(("big", "little"))) + value,
            b"\xff" * 8 + value,
            encode([2**63, b"x"]),
        )
    )
    return whole[: draw.randrange(len(whole) + 1)] if draw.random() < 0.2 else whole


def any_json(draw: random.Random, depth: int = 0) -> Any:
    """A value of any kind, with numbers and text that no record can hold among them."""
    makers: list[Any] = [
        lambda: draw.choice((0, -1, 2**31, 2**53 + 1, 2**63, HUGE, -HUGE, 10**40)),
        lambda: draw.choice((0.5, 1e308, -0.0, 5e-324)),
        lambda: draw.choice(("", "x", "\u202e\x1b]0;t\x07", "\x00", "$file", "a" * 300, "\U0001f600")),
        lambda: draw.choice((None, True, False)),
    ]
    if depth < 4:
        names = ("$file", "$result", "$from", "$$x", "a", "chain", "type", "")
        makers += [
            lambda: [any_json(draw, depth + 1) for _ in range(draw.randrange(3))],
            lambda: {draw.choice(names): any_json(draw, depth + 1) for _ in range(draw.randrange(3))},
        ]
    return draw.choice(makers)()


def _chain(draw: random.Random) -> list[Any]:
    numbers = (0, 1, -1, 2**31, 2**31 + 1, HUGE)
    return [
        {
            "type": draw.choice(("ValueError", "", "x" * 5_000, "\x1b[31m", 7, None)),
            "frames": draw.choice(
                ([], None, [["main.py", draw.choice(numbers), draw.choice(numbers), "f"]] * draw.choice((1, 300)))
            ),
            "syntax": draw.choice((None, [draw.choice(numbers), draw.choice(numbers)], 1, "x")),
        }
        for _ in range(draw.choice((0, 1, 1, 2, 20)))
    ]


def _wrong(execution: Execution, words: Words) -> list[str]:
    """What must not be, of one execution in a jail."""
    found = []
    category = None if execution.category is None else execution.category.value
    if category == "INTERNAL_ERROR":
        found.append(f"INTERNAL_ERROR {execution.code}: {execution.message}")
    if execution.ok and execution.result is not None and not words.may_result_in(execution.result):
        found.append(f"a result that the guest did not say: {execution.result[:200]!r}")
    raised = execution.raised
    if raised is not None:
        try:
            encode([raised.type, raised.message, raised.traceback, raised.line, raised.column])
        except Exception as exc:  # noqa: BLE001 - whatever it is, a record cannot hold it
            found.append(f"its exception cannot be recorded: {exc}")
    if max(len(execution.stdout.data), len(execution.stderr.data)) > LIMITS.output_bytes:
        found.append("more output than the limit")
    return found


def _contract(draw: random.Random) -> str:
    """Hostile steps of both kinds, none of which needs another."""
    steps: list[dict[str, Any]] = []
    for number in range(STEPS):
        if draw.random() < 0.7:
            run_: dict[str, Any] = {"code": SPEAKING, "with": _plain(Words(draw).parameters())}
        else:
            kind = draw.choice((wire.DONE, wire.DONE, wire.DONE_IN_FILE, draw.randrange(256)))
            run_ = {"python": "misuse:misuse", "with": {"kind": kind, "words": _result(draw).hex()}}
        steps.append({"id": f"bad{number}", "run": run_, "on_error": "continue", "timeout": "10s"})
    return json.dumps({"name": "words", "steps": steps})


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters that a contract takes: the values that only a guest may say are left to its words."""
    return {**parameters, "value": 0 if parameters["end"] == "exit" else "x"}


def _result(draw: random.Random) -> bytes:
    """What a plain worker would say of a task, or something like it."""
    value, error, files = (json.dumps(any_json(draw)).encode() for _ in range(3))
    if draw.random() < 0.3:
        return draw.randbytes(draw.randrange(80))
    failure = {"category": draw.choice(("USER_CODE_ERROR", "MINE", 1)), "code": "X", "message": any_json(draw)}
    return done(
        draw.randrange(32),
        counts=draw.choice((0, 1, 2**31, HUGE - 1)),
        value=value,
        error=draw.choice((b"", error, json.dumps(failure).encode())),
        files=draw.choice((b"", files)),
    )


def _unsafe(text: str) -> list[str]:
    """Lines that would do something else to a terminal than fill it."""
    return [line for line in text.split("\n") if safe(line.replace("\t", " ")) != line.replace("\t", " ")][:1]
