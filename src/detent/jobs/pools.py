"""Pools of workers elsewhere, as the settings name them: who brings their workers, how many, and what each of them offers.

    [pools]
    later = ["big"]                 # workers come and go by themselves

    [pools.gpu]                     # `detent serve` has its hosts started and replaced
    provision = "ray"
    max = 4

A *host* is one `detent worker` of a pool: a process of the server's machine, an actor of a Ray cluster. All hosts of a pool are alike, so
what one of them offers is known before it runs: a job that needs more is refused, and does not wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from detent.canon.grammar import CPU, LABEL_HINT, RESOURCE_HINT, amount_fault, label_fault, name_fault
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.jobs.order import POOL, RESOURCE
from detent.jobs.placing import Offer

PROCESSES: Final = "processes"
RAY: Final = "ray"
PROVISIONERS: Final = (PROCESSES, RAY)
HOSTS_MAX: Final = 1_000
IDLE_SECONDS: Final = 60
IDLE_SECONDS_MAX: Final = 7 * 24 * 3_600
ALL: Final = "*"
"""All workspaces."""
HOST_LABEL: Final = "provisioned:"
"""How the label of a certificate begins that says who started its worker. Labels with a colon are not offered to jobs."""
_NUMBERS: Final = {
    "min": (0, HOSTS_MAX),
    "max": (0, HOSTS_MAX),
    "hosts": (0, HOSTS_MAX),
    "cpus": (1, 1_024),
    "idle_seconds": (0, IDLE_SECONDS_MAX),
}
_TEXTS: Final = ("connect", "pin", "project")
RAY_KEYS: Final = {
    "address": str,
    "namespace": str,
    "resources": dict,
    "label_selector": dict,
    "runtime_env": dict,
    "autoscaled": bool,
}
"""What `ray` under a pool may say."""
_KNOWN: Final = frozenset({"provision", "labels", "resources", "workspaces", RAY, *_NUMBERS, *_TEXTS})


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool, as the settings describe it."""

    name: str
    labels: tuple[str, ...] = ()
    """What its workers have; a job may ask for these."""
    provision: str | None = None
    """Who starts its hosts; None: they come and go by themselves."""
    least: int = 0
    most: int = 1
    hosts: int | None = None
    """How many hosts it has unless an operator scales it; None: as many as the queue asks for."""
    cpus: int = 1
    """Jobs that a host runs at once."""
    resources: Mapping[str, int] = field(default_factory=dict)
    workspaces: tuple[str, ...] | None = ("local",)
    """Whose jobs its hosts run; None: those of all."""
    idle_seconds: int = IDLE_SECONDS
    connect: str | None = None
    """Where its hosts find the server; None: where it listens."""
    pin: str | None = None
    project: str | None = None
    """Where its hosts find functions; None: in the project of the server."""
    ray: Mapping[str, Any] = field(default_factory=dict)
    """What only Ray understands: the cluster, and what its nodes must have."""

    def covers(self, workspace: str) -> bool:
        """Whether its hosts run jobs of a workspace."""
        return self.workspaces is None or workspace in self.workspaces

    def offer(self, fault: str | None) -> Offer:
        """What each of its hosts offers, or would offer but for a fault."""
        named = {f"{POOL}{self.name}", f"{RESOURCE}{CPU}", *(f"{RESOURCE}{name}" for name in self.resources)}
        return Offer(frozenset({*named, *self.labels}), {CPU: self.cpus, **self.resources}, fault)

    def range_fault(self, hosts: int) -> str | None:
        """Say that it cannot have so many hosts, or nothing."""
        if self.least <= hosts <= self.most:
            return None
        return f"pool {self.name} has from {self.least} to {self.most} hosts, not {hosts}"


def read_pool(name: str, entry: Any) -> Pool:
    """A pool as its setting says it; `InvalidInput` says what is wrong with which key."""
    if label_fault("pool", name) is not None:
        raise InvalidInput(f"{show(name)} cannot name a pool", hint=f"a name has {LABEL_HINT}")
    if type(entry) is list:
        return Pool(name, _labels(entry))
    if not isinstance(entry, Mapping) or "provision" not in entry:
        raise InvalidInput(
            f"{show(entry)} is not a list of labels",
            hint=f'write for example gpu = ["a100"], or a table with provision = "{PROCESSES}"; a name has {LABEL_HINT}',
        )
    if unknown := sorted(set(entry) - _KNOWN):
        raise InvalidInput(f"{show(unknown[0])} is not a key", hint=f"known: {', '.join(sorted(_KNOWN))}")
    if entry["provision"] not in PROVISIONERS:
        raise InvalidInput(
            f"provision: {show(entry['provision'])} is unknown", hint=f"known: {', '.join(PROVISIONERS)}"
        )
    numbers = {key: _number(key, entry[key], *_NUMBERS[key]) for key in _NUMBERS if key in entry}
    least, hosts = numbers.get("min", 0), numbers.get("hosts")
    most = numbers.get("max", max(1, least, hosts or 0))
    if not least <= (most if hosts is None else hosts) <= most:
        raise InvalidInput(f"min {least}, hosts {hosts} and max {most} do not go together")
    return Pool(
        name,
        _labels(entry.get("labels", [])),
        entry["provision"],
        least,
        most,
        hosts,
        numbers.get("cpus", 1),
        _resources(entry.get("resources", {})),
        _workspaces(entry.get("workspaces", ["local"])),
        numbers.get("idle_seconds", IDLE_SECONDS),
        _text("connect", entry.get("connect")),
        _text("pin", entry.get("pin")),
        _text("project", entry.get("project")),
        _ray(entry.get(RAY, {}), entry["provision"]),
    )


def _labels(said: Any) -> tuple[str, ...]:
    if type(said) is not list or any(label_fault("label", one) is not None for one in said):
        raise InvalidInput(f"{show(said)} is not a list of labels", hint=f"a label has {LABEL_HINT}")
    return tuple(sorted(set(said)))


def _workspaces(said: Any) -> tuple[str, ...] | None:
    if type(said) is not list or not said or any(type(one) is not str for one in said):
        raise InvalidInput(f"workspaces: {show(said)} is not a list of workspaces", hint=f'["{ALL}"] means all of them')
    return None if ALL in said else tuple(sorted(set(said)))


def _resources(said: Any) -> dict[str, int]:
    if not isinstance(said, dict) or CPU in said:
        raise InvalidInput(
            f"resources: {show(said)} does not name resources", hint="write {gpu = 1}; cpus is a key of its own"
        )
    for name, amount in said.items():
        if fault := name_fault(name) or amount_fault(name, amount):
            raise InvalidInput(f"resources: {fault}", hint=RESOURCE_HINT)
    return dict(sorted(said.items()))


def _number(key: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(f"{key}: {show(value)} is not a whole number from {least} to {most:,}")
    return value


def _text(key: str, value: Any) -> str | None:
    if value is not None and (type(value) is not str or not value):
        raise InvalidInput(f"{key}: {show(value)} is not a text")
    return value


def _ray(said: Any, provision: str) -> Mapping[str, Any]:
    if not isinstance(said, Mapping) or (said and provision != RAY):
        raise InvalidInput(f"ray: {show(said)} needs provision = {RAY!r}")
    for key, value in said.items():
        if key not in RAY_KEYS or type(value) is not RAY_KEYS[key]:
            raise InvalidInput(
                f"ray.{show(key)}: {show(value)} is not a setting of Ray", hint=f"known: {', '.join(sorted(RAY_KEYS))}"
            )
    return dict(said)
