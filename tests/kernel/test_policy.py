"""Policy artifacts have exactly the fields their contract lists, and the configuration hashes what can change a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cbor2
import pytest

from detent.canon import PRNG_FAMILY, encode, sha256
from detent.errors import InvalidInput
from detent.kernel import BackoffSchedule, KernelConfig, LeasePolicy, QueuePolicy, QuotaPolicy
from detent.kernel.policy import RULES, RULES_FIRST
from tests.kernel.builders import config, queue_of

LEASE_MAP: dict[str, object] = {
    "lease_policy_id": "default",
    "lease_ttl_ticks": 30_000,
    "heartbeat_extension_ticks": 30_000,
    "expiry_transition": "RUNNING->RETRYING",
}
BACKOFF_MAP: dict[str, object] = {"backoff_schedule_id": "default", "delays_ms": [10, 20, 40], "jitter_mode": "NONE"}
KNOWN_QUOTA = QuotaPolicy(1000, 2000, 4096, 1048576)
KNOWN_QUOTA_HASH = "ca747ee3196f5379afabf6cd4936be206076af026a71e462c967d64bd42ea97f"
ARTIFACTS: list[tuple[Any, dict[str, object]]] = [
    (LeasePolicy, LEASE_MAP),
    (BackoffSchedule, BACKOFF_MAP),
    (QuotaPolicy, KNOWN_QUOTA.to_map()),
    (QueuePolicy, QueuePolicy().to_map()),
]


@pytest.mark.parametrize(
    ("artifact", "names"),
    [
        (LeasePolicy, "lease_policy_id lease_ttl_ticks heartbeat_extension_ticks expiry_transition"),
        (BackoffSchedule, "backoff_schedule_id delays_ms jitter_mode"),
        (
            QuotaPolicy,
            "quota_policy_hash gpu_time_budget_ms cpu_time_budget_ms io_bytes_budget memory_bytes_budget evaluation_rule_id",
        ),
    ],
)
def test_an_artifact_has_exactly_the_fields_of_its_contract(artifact: Any, names: str) -> None:
    """PIPE-043, PIPE-045, PIPE-086, PIPE-092, PIPE-099"""
    shown = dict(ARTIFACTS)[artifact]
    assert set(shown) == set(names.split())
    assert artifact.from_map(shown).to_map() == shown


@pytest.mark.parametrize(("artifact", "shown"), ARTIFACTS)
def test_a_missing_or_extra_field_is_refused_by_name(artifact: Any, shown: dict[str, object]) -> None:
    """PIPE-086, PIPE-092, PIPE-099"""
    for name in shown:
        with pytest.raises(InvalidInput, match=f"lacks {name}"):
            artifact.from_map({key: value for key, value in shown.items() if key != name})
    with pytest.raises(InvalidInput, match="unknown fields: max_retries"):
        artifact.from_map({**shown, "max_retries": 1})  # a manifest's field
    with pytest.raises(InvalidInput, match="must be a map"):
        artifact.from_map(list(shown))


@pytest.mark.parametrize("wrong", [-1, 2**64, 1.5, True, "1", None, [], {}, b""])
@pytest.mark.parametrize(("artifact", "shown"), ARTIFACTS)
def test_a_wrongly_typed_field_is_refused(artifact: Any, shown: dict[str, object], wrong: Any) -> None:
    """PIPE-018, PIPE-086, PIPE-092, PIPE-099"""
    for name in shown:
        if not (isinstance(wrong, str) and name in {"lease_policy_id", "backoff_schedule_id", "admission_policy"}):
            with pytest.raises(InvalidInput):
                artifact.from_map({**shown, name: wrong})


def test_another_expiry_transition_is_refused() -> None:
    """PIPE-086"""
    with pytest.raises(InvalidInput, match="RUNNING->RETRYING"):
        LeasePolicy.from_map({**LEASE_MAP, "expiry_transition": "RUNNING->FAILED"})


def test_a_lease_of_no_ticks_is_refused() -> None:
    """PIPE-088"""
    with pytest.raises(InvalidInput, match="at least 1"):
        LeasePolicy("none", 0, 1)


@pytest.mark.parametrize("mode", ["FULL", "none", "", None])
def test_jitter_is_refused(mode: Any) -> None:
    """PIPE-092, PIPE-094"""
    with pytest.raises(InvalidInput, match="jitter_mode"):
        BackoffSchedule("default", (1,), mode)


def test_an_empty_schedule_is_refused() -> None:
    """PIPE-095, X-041"""
    with pytest.raises(InvalidInput, match="at least one delay"):
        BackoffSchedule.from_map({**BACKOFF_MAP, "delays_ms": []})


@pytest.mark.parametrize("delay", [-1, 2**64, 1.5, True, "1", None])
def test_a_delay_that_is_no_count_is_refused_by_its_place(delay: Any) -> None:
    """PIPE-018, PIPE-092"""
    with pytest.raises(InvalidInput, match=r"delays_ms\[1\]"):
        BackoffSchedule.from_map({**BACKOFF_MAP, "delays_ms": [0, delay]})


def test_retry_k_uses_the_kth_delay_and_then_the_last() -> None:
    """PIPE-093, X-041"""
    schedule = BackoffSchedule("default", (10, 20, 40))
    assert [schedule.delay_ms(k) for k in range(5)] == [10, 20, 40, 40, 40]


def test_delays_become_ticks_rounded_up() -> None:
    """X-009"""
    settings = config(tick_ms=15)
    assert [settings.backoff_ticks("default", k) for k in range(3)] == [1, 2, 3]


def test_the_quota_policy_hash_has_its_known_answer() -> None:
    """PIPE-100, X-048"""
    assert KNOWN_QUOTA.hash().hex() == KNOWN_QUOTA_HASH
    assert KNOWN_QUOTA.to_map()["quota_policy_hash"] == bytes.fromhex(KNOWN_QUOTA_HASH)


@pytest.mark.parametrize("name", QuotaPolicy.BUDGETS)
def test_a_quota_policy_with_a_foreign_hash_is_refused(name: str) -> None:
    """PIPE-100"""
    with pytest.raises(InvalidInput, match="quota_policy_hash"):
        QuotaPolicy.from_map({**KNOWN_QUOTA.to_map(), name: 7})


@pytest.mark.parametrize("budget", [-1, 2**64, 1.5, True, "1", None])
@pytest.mark.parametrize("name", QuotaPolicy.BUDGETS)
def test_a_budget_that_is_no_count_is_refused_by_name(name: str, budget: Any) -> None:
    """PIPE-018, PIPE-045"""
    with pytest.raises(InvalidInput, match=name):
        replace(KNOWN_QUOTA, **{name: budget})


def test_only_the_two_evaluation_rules_exist() -> None:
    """X-049"""
    with pytest.raises(InvalidInput, match="LE_ALL_v1 or LE_ALL_RETRY_v1"):
        QuotaPolicy(1, 1, 1, 1, "LE_ALL_v2")
    assert QuotaPolicy(1, 1, 1, 1, "LE_ALL_v1").hash() != QuotaPolicy(1, 1, 1, 1, "LE_ALL_RETRY_v1").hash()


def test_a_plain_configuration_has_the_defaults_of_the_decisions() -> None:
    """PIPE-031, X-009, X-163"""
    plain = KernelConfig()
    assert (plain.partitions, plain.tick_ms, plain.epoch_base_ms, plain.on_quota_running) == (1, 1, 0, "fail")
    assert plain.lease_policies == (LeasePolicy("default", 30_000, 30_000),)
    assert plain.backoff_schedules == (BackoffSchedule("default", (1_000, 2_000, 4_000)),)
    assert (plain.queue.capacity_per_class, plain.queue.capacity_total) == (256, 2_560)
    assert plain.queue.admission_policy == "reject"
    assert plain.environment["runtime_class"] == "CPU-only"


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": 2},
        {"tick_ms": 2},
        {"epoch_base_ms": 5},
        {"lease_policies": (LeasePolicy("default", 31_000, 30_000),)},
        {"backoff_schedules": (BackoffSchedule("default", (1, 2)),)},
        {"quota_policies": (KNOWN_QUOTA,)},
        {"queue": QueuePolicy(255)},
        {"queue": QueuePolicy(256, 2_559)},
        {"queue": QueuePolicy(admission_policy="drop-lru")},
        {"on_quota_running": "cancel"},
        {"rules": RULES},
    ],
)
def test_whatever_can_change_a_run_changes_its_policy_hash_and_token(changes: dict[str, Any]) -> None:
    """PIPE-011, PIPE-012, X-044, X-051"""
    plain, other = KernelConfig(), KernelConfig(**changes)
    assert other.queue_policy_hash != plain.queue_policy_hash
    assert other.replay_token != plain.replay_token


def test_a_configuration_of_the_first_rules_has_the_bytes_it_always_had() -> None:
    """X-051: one that names no rules is read as one of the first, and ledgers of before stay as they are."""
    assert b"rules" not in KernelConfig().encode()
    assert KernelConfig.decode(KernelConfig().encode()).rules == RULES_FIRST
    newest = KernelConfig(rules=RULES)
    assert KernelConfig.decode(newest.encode()) == newest


@pytest.mark.parametrize("rules", [0, RULES + 1, "1", True, None])
def test_rules_that_are_not_known_here_are_refused(rules: Any) -> None:
    with pytest.raises(InvalidInput, match="rules"):
        KernelConfig(rules=rules)


def test_partitions_of_one_run_share_their_policy_hash() -> None:
    """PIPE-114"""
    one, two = (KernelConfig(partitions=2, partition_id=number) for number in (0, 1))
    assert (one.queue_policy_hash, one.replay_token) == (two.queue_policy_hash, two.replay_token)


def test_the_lock_of_the_dependencies_is_part_of_the_environment() -> None:
    """PIPE-031, PIPE-032"""
    locked = [
        KernelConfig(environment={"runtime_class": "CPU-only", "lock": lock}) for lock in ("sha256:a", "sha256:b")
    ]
    assert len({settings.environment_policy_hash for settings in locked}) == 2
    assert len({settings.replay_token for settings in locked}) == 2
    assert len({settings.queue_policy_hash for settings in locked}) == 1
    with pytest.raises(InvalidInput, match="runtime_class"):
        KernelConfig(environment={})


def test_the_replay_token_follows_its_formula() -> None:
    """PIPE-012, X-051"""
    settings = config(seed=4711)
    parts = [
        "UML_OS.ReplayToken_v1",
        "UML_OS.Pipeline.Orchestrator_v1",
        4711,
        "Philox4x32-10",
        "numeric/uint64-binary64-abort/v1",
        "ordering/job-id-transition-seq/v1",
        "parallel/priority-then-fifo/v1",
        sha256(cbor2.dumps({"runtime_class": "CPU-only"})),
        settings.queue_policy_hash,
    ]
    assert PRNG_FAMILY == "Philox4x32-10"
    assert settings.replay_token == sha256(cbor2.dumps(parts, canonical=True))


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, "1", None])
def test_a_seed_outside_64_bits_is_refused(seed: Any) -> None:
    """PIPE-013"""
    with pytest.raises(InvalidInput, match="seed"):
        config(seed=seed)
    assert config(seed=0).seed + config(seed=2**64 - 1).seed == 2**64 - 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"partitions": 0}, "at least 1"),
        ({"tick_ms": 0}, "at least 1"),
        ({"partition_id": 1}, "outside"),
        ({"on_quota_running": "retry"}, "fail"),
        ({"lease_policies": ()}, "lease_policy_id"),
        ({"lease_policies": (LeasePolicy("a", 1, 1), LeasePolicy("a", 2, 2))}, "lease_policy_id"),
        ({"backoff_schedules": (BackoffSchedule("a", (1,)),) * 2}, "backoff_schedule_id"),
        ({"quota_policies": (KNOWN_QUOTA, KNOWN_QUOTA)}, "quota policy"),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_refused(changes: dict[str, Any], text: str) -> None:
    """PIPE-033"""
    with pytest.raises(InvalidInput, match=text):
        config(**changes)


def test_a_configuration_survives_its_bytes() -> None:
    """PIPE-011"""
    settings = config(
        KNOWN_QUOTA, partitions=3, partition_id=2, seed=7, queue=queue_of(3), environment={"runtime_class": "x"}
    )
    assert KernelConfig.decode(settings.encode()) == settings
    assert replace(settings, seed=8).encode() != settings.encode()


def test_no_change_of_a_configurations_bytes_raises_anything_but_a_refusal() -> None:
    """PIPE-030"""
    settings = config(KNOWN_QUOTA)
    shown = settings.to_map()
    values: list[object] = [None, -1, 2**63, "x", b"x", [], [[]], [{}], {}, {"a": [1]}, True]
    for name in shown:
        for wrong in values:
            try:
                KernelConfig.decode(encode({**shown, name: wrong}))
            except InvalidInput:
                continue
            # What is left is another configuration that could be followed.
            assert name in {"environment", "epoch_base_ms", "partitions", "scheduling", "tick_ms", "seed"}
    with pytest.raises(InvalidInput, match="canonical"):
        KernelConfig.decode(b"\xff")
