"""The contract checker: a process that looks at contracts for a server, checks them or plans them. It imports and runs nothing of them.

A contract that a client of a server sends may be as large and as odd as that client likes. So each is looked at in a process of its
own, a fork of the checker with limits of processor time and memory, which ends with its answer; the checker itself never reads one.
The server asks over a socket, one JSON document a line. Functions that a contract names are read as text, as `detent validate` and
`detent plan` do.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from detent.canon.strict_json import JsonValue
from detent.contract import Contract, ContractInvalid, Finding, load
from detent.contract.model import refuse_unknown_policies
from detent.contract.params import bind, refuse_misfits
from detent.contract.schedule import schedule_document
from detent.errors import DetentError, InvalidInput
from detent.executor.annotations import refuse_returns
from detent.inspect.plan_preview import preview_plan
from detent.jobs.values import files_named
from detent.owner.home import Home
from detent.owner.socket_messages import error_to_map
from detent.runs.record.inputs import RunInputs, check_job

NAME: Final = "contract"
"""What findings call a contract that was sent as a text."""
AT_ONCE: Final = 2
"""Contracts that are looked at together; others wait."""
CPU_SECONDS: Final = 10
WALL_SECONDS: Final = 60.0
MEMORY_BYTES: Final = 2 * 1024**3
PIECE_BYTES: Final = 1024 * 1024


def answered(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is to be told about a contract: its inputs for a run, its plan, its findings, or an error."""
    try:
        contract = _loaded(asked)
        if asked["mode"] == "plan":
            return _planned(asked, contract)
        params = bind(contract, asked["params"]) if asked["mode"] == "bind" else {}
        told = {
            "name": contract.outline.name,
            "steps": len(contract.plain_steps),
            "schedule": None if contract.schedule is None else schedule_document(contract.schedule),
        }
        inputs = RunInputs(contract, params).document()
        return {"ok": True, **told, "inputs": inputs, "files": sorted(set(files_named(inputs)))}
    except ContractInvalid as exc:
        found = [finding_map(finding) for finding in exc.findings]
        return {"ok": False, "findings": found, "findings_total": len(found) + exc.more}
    except DetentError as exc:
        return {"ok": False, "error": error_to_map(exc)}


def finding_map(finding: Finding) -> dict[str, Any]:
    """One finding; a place that is not known is null."""
    return {
        "line": finding.line or None,
        "column": finding.column or None,
        "path": finding.path,
        "message": finding.message,
        "hint": finding.hint,
        "code": finding.code,
    }


def _loaded(asked: Mapping[str, Any]) -> Contract:
    data, name = asked["text"].encode(), asked["name"]
    contract = load(data, name=name, base=asked["base"], check_job=check_job)
    refuse_returns(contract)
    refuse_unknown_policies(contract, Home(Path(asked["home"])).settings().policies().known)
    return contract


def _planned(asked: Mapping[str, Any], contract: Contract) -> dict[str, Any]:
    given: Mapping[str, JsonValue] = asked["params"]
    values = {name: param.default for name, param in contract.params.items() if not param.required} | dict(given)
    refuse_misfits(contract, values)
    missing = tuple(name for name in contract.params if name not in values)
    preview = preview_plan(Home(Path(asked["home"])), contract, values, missing, tenant=asked["workspace"])
    needs = {
        contract.keys[step.step_id]: [contract.keys[need] for need in step.depends_on] for step in contract.plain_steps
    }
    steps = [{"step": key, "needs": needs[key], **told.to_map()} for key, told in preview.steps.items()]
    return {
        "ok": True,
        "name": contract.outline.name,
        "steps": steps,
        "missing": list(missing),
        "warnings": list(preview.warnings),
    }


@dataclass(slots=True)
class _Look:
    """A contract that is looked at."""

    number: int
    pid: int
    deadline: float
    told: bytearray = field(default_factory=bytearray)


class Checker:
    """Takes requests from a socket, has each looked at by a fork, and sends the answers. On one thread, so that forks are safe."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._heard = bytearray()
        self._waiting: list[bytes] = []
        self._looks: dict[int, _Look] = {}

    def run(self) -> None:
        """Work until the server hangs up."""
        while True:
            seconds = 1.0 if self._looks else None
            ready, _, _ = select.select([self._link.fileno(), *self._looks], [], [], seconds)
            for descriptor in ready:
                if descriptor in self._looks:
                    self._take(descriptor)
                elif not self._hear():
                    return
            for look in self._looks.values():
                if time.monotonic() > look.deadline:
                    os.kill(look.pid, signal.SIGKILL)
            while self._waiting and len(self._looks) < AT_ONCE:
                self._begin(json.loads(self._waiting.pop(0)))

    def _hear(self) -> bool:
        piece = self._link.recv(PIECE_BYTES)
        *lines, rest = (bytes(self._heard) + piece).split(b"\n") if b"\n" in piece else (bytes(self._heard) + piece,)
        self._heard = bytearray(rest)
        self._waiting += lines
        return bool(piece)

    def _begin(self, asked: Mapping[str, Any]) -> None:
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            _look(asked, write_end)
        os.close(write_end)
        self._looks[read_end] = _Look(asked["id"], pid, time.monotonic() + WALL_SECONDS)

    def _take(self, descriptor: int) -> None:
        look = self._looks[descriptor]
        piece = os.read(descriptor, PIECE_BYTES)
        look.told += piece
        if piece:
            return
        os.close(descriptor)
        os.waitpid(look.pid, 0)
        del self._looks[descriptor]
        try:
            said = {"answer": json.loads(look.told)}
        except ValueError:
            said = {"error": error_to_map(_too_costly())}
        self._link.sendall(json.dumps({"id": look.number, **said}).encode() + b"\n")


def _look(asked: Mapping[str, Any], write_end: int) -> None:
    """In a fork: look at a contract within the limits, write the answer, and end."""
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(write_end, "wb") as out:
            out.write(json.dumps(answered(asked)).encode())
    finally:
        os._exit(0)


def _too_costly() -> InvalidInput:
    return InvalidInput(
        "looking at the contract took more time or memory than it may",
        code="CONTRACT_TOO_COSTLY",
        hint="make it smaller, or split it",
        details={"cpu_seconds": CPU_SECONDS, "memory_bytes": MEMORY_BYTES},
    )


if __name__ == "__main__":
    # `--home DIR --lifeline DESCRIPTOR`, as the server starts it. It ends when the server hangs up, and with a signal at once.
    Checker(socket.socket(fileno=int(sys.argv[-1]))).run()
