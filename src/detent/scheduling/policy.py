"""The scheduling policy: every setting that can change who waits, who runs and where, as one hashed artifact.

It has a canonical map, so two owners with the same map decide the same; its hash goes into ``queue_policy_hash`` and
through it into every replay token. `from_settings` reads what a person writes: any field may be left out, and an unknown
one is refused, because a misspelt limit that silently does nothing is worse than no start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from detent.canon import NotCanonical, check_uint64, decode, digest, encode
from detent.canon.grammar import PRIORITY_MAX, PRIORITY_MIN
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel.policy import QueuePolicy
from detent.scheduling.checks import check_bool, check_positive, check_priority, exact_fields
from detent.scheduling.index import LEAST_LOADED, ORDERS
from detent.scheduling.queues import ADMISSION_POLICIES, CAPACITY_DEFAULT
from detent.scheduling.sessions import Budgets

POLICY_LABEL: Final = b"detent/scheduling-policy/v1\x00"
POLICY_VERSION: Final = 1
TENANT_BOUND: Final = "capacity_per_tenant"
"""The field that only policies with such a bound have in their map."""
_CLASSES: Final = tuple(range(PRIORITY_MIN, PRIORITY_MAX + 1))


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """What the scheduler is configured to do; the defaults are those of A.10.

    ``watchdog_idle_ms`` binds only jobs that declare that they report progress; of ``watchdog_wall_ms`` and a job's own limit the
    smaller one holds (X-019). ``session_budgets`` are what a session gets that was given none of its own.
    """

    capacities: tuple[int, ...] = (CAPACITY_DEFAULT,) * len(_CLASSES)
    """Bound of each class, class 1 first."""
    capacity_total: int | None = None
    """Bound over all classes; None means their sum."""
    capacity_per_tenant: int | None = None
    """Waiting jobs that one tenant may have; None: as many as there is room for. A policy without it has the map it always had."""
    admission_policy: str = ADMISSION_POLICIES[0]
    placement_order: str = LEAST_LOADED
    pinning_allowed: bool = True
    session_affinity: bool = True
    session_budgets: Budgets = field(default_factory=Budgets)
    watchdog_wall_ms: int | None = None
    watchdog_idle_ms: int | None = 60_000
    workflow_priority_cap: int = PRIORITY_MAX

    FIELDS = (
        "capacities",
        "capacity_total",
        "admission_policy",
        "placement_order",
        "pinning_allowed",
        "session_affinity",
        "session_budgets",
        "watchdog_wall_ms",
        "watchdog_idle_ms",
        "workflow_priority_cap",
    )

    def __post_init__(self) -> None:
        if type(self.capacities) is not tuple or len(self.capacities) != len(_CLASSES):
            raise InvalidInput(f"capacities must be {len(_CLASSES)} bounds, one for each class")
        for priority, capacity in zip(_CLASSES, self.capacities, strict=True):
            check_positive(f"the capacity of class {priority}", capacity)
        if self.capacity_total is None:
            object.__setattr__(self, "capacity_total", sum(self.capacities))
        check_positive("capacity_total", self.capacity_total)
        if self.capacity_per_tenant is not None:
            check_positive("capacity_per_tenant", self.capacity_per_tenant)
        _one_of("admission_policy", self.admission_policy, ADMISSION_POLICIES)
        _one_of("placement_order", self.placement_order, tuple(ORDERS))
        for name in ("pinning_allowed", "session_affinity"):
            check_bool(name, getattr(self, name))
        if type(self.session_budgets) is not Budgets:
            raise InvalidInput(f"session_budgets must be Budgets, not {show(self.session_budgets)}")
        for name in ("watchdog_wall_ms", "watchdog_idle_ms"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        try:
            check_priority(self.workflow_priority_cap)
        except InvalidInput as exc:
            raise InvalidInput(f"workflow_priority_cap: {exc}") from exc

    def capacity(self) -> dict[int, int]:
        """The bound of each class, by class: what `ClassQueues` takes."""
        return dict(zip(_CLASSES, self.capacities, strict=True))

    def queue_policy(self) -> QueuePolicy:
        """The part of it that the kernel knows by name; the widest class stands for all of them there."""
        assert self.capacity_total is not None
        return QueuePolicy(max(self.capacities), self.capacity_total, self.admission_policy)

    def to_map(self) -> dict[str, object]:
        """The artifact as the map that is hashed and stored."""
        limited = {} if self.capacity_per_tenant is None else {TENANT_BOUND: self.capacity_per_tenant}
        return {
            "version": POLICY_VERSION,
            **limited,
            **{name: getattr(self, name) for name in self.FIELDS},
            "capacities": list(self.capacities),
            "session_budgets": dict(zip(Budgets.FIELDS, self.session_budgets.to_list(), strict=True)),
        }

    def encode(self) -> bytes:
        """Canonical bytes of the artifact: what a kernel's configuration carries without reading it."""
        return encode(self.to_map())

    def hash(self) -> bytes:
        """The digest by which records name this policy."""
        return digest(POLICY_LABEL, self.encode())

    @classmethod
    def decode(cls, data: bytes) -> SchedulingPolicy:
        """Read the artifact back from its bytes."""
        try:
            return cls.from_map(decode(data))
        except NotCanonical as exc:
            raise InvalidInput(f"a scheduling policy is canonical CBOR: {exc}") from exc

    @classmethod
    def from_map(cls, value: object) -> SchedulingPolicy:
        """Read the artifact; refuse a missing, extra or wrongly typed field."""
        limited = (TENANT_BOUND,) if isinstance(value, Mapping) and value.get(TENANT_BOUND) is not None else ()
        fields = dict(exact_fields("SchedulingPolicy", value, ("version", *limited, *cls.FIELDS)))
        version = fields.pop("version")
        if type(version) is not int or version != POLICY_VERSION:
            raise InvalidInput(f"a scheduling policy of another version than {POLICY_VERSION} cannot be read")
        if not isinstance(fields["capacities"], list):
            raise InvalidInput("capacities must be a list of bounds, class 1 first")
        if fields["capacity_total"] is None:
            raise InvalidInput("a stored scheduling policy says its capacity_total")
        budgets = exact_fields("session_budgets", fields["session_budgets"], Budgets.FIELDS)
        return cls(
            **{  # type: ignore[arg-type]
                **fields,
                "capacities": tuple(fields["capacities"]),
                "session_budgets": Budgets(**budgets),  # type: ignore[arg-type]
            }
        )

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> SchedulingPolicy:
        """Read what a person wrote; what is left out keeps its default.

        ``capacity`` is one bound for every class or a table of bounds by class. A watchdog limit of 0 means none.
        """
        known = {"capacity", TENANT_BOUND, *cls.FIELDS} - {"capacities"}
        if unknown := sorted(str(name) for name in settings if name not in known):
            raise InvalidInput(
                f"the scheduling policy has no setting {', '.join(map(show, unknown))}",
                hint=f"the settings are {', '.join(sorted(known))}",
            )
        fields: dict[str, object] = {name: settings[name] for name in (TENANT_BOUND, *cls.FIELDS) if name in settings}
        if "capacity" in settings:
            fields["capacities"] = _capacities(settings["capacity"])
        if "session_budgets" in settings:
            fields["session_budgets"] = _budgets(settings["session_budgets"])
        for name in ("watchdog_wall_ms", "watchdog_idle_ms"):
            if name in fields and check_uint64(name, fields[name]) == 0:  # type: ignore[arg-type]
                fields[name] = None
        return cls(**fields)  # type: ignore[arg-type]


def _capacities(setting: object) -> tuple[int, ...]:
    if not isinstance(setting, Mapping):
        return (check_positive("capacity", setting),) * len(_CLASSES)
    names = {str(priority): priority for priority in _CLASSES}
    if unknown := sorted(str(name) for name in setting if name not in names):
        raise InvalidInput(f"capacity has no class {', '.join(map(show, unknown))}", hint="the classes are 1 to 10")
    return tuple(check_positive(f"the capacity of class {name}", setting.get(name, CAPACITY_DEFAULT)) for name in names)


def _budgets(setting: object) -> Budgets:
    if not isinstance(setting, Mapping) or not set(setting) <= set(Budgets.FIELDS):
        raise InvalidInput(f"session_budgets is a table of {', '.join(Budgets.FIELDS)}, not {show(setting)}")
    return Budgets(**setting)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if type(value) is not str or value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, not {show(value)}")
