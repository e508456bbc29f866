"""``config.toml``: read strictly, and every fault names the file and the key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from detent.errors import HomeError
from detent.executor.sandbox import DEFAULT_REQUIRED, Profile
from detent.kernel import BackoffSchedule, KernelConfig, LeasePolicy, QuotaPolicy
from detent.kernel.policy import DEFAULT_BACKOFF, DEFAULT_LEASE, INTERRUPTION_PAUSES, RULES
from detent.owner.settings import _SECTIONS, SANDBOX_PROFILES, SANDBOX_REQUIRED, TEMPLATE, read_settings
from detent.scheduling import SchedulingPolicy

LEDGER = '[ledger]\norigin = "detent/00"\nroot = "sha256:' + "ab" * 32 + '"\n'


DEFAULT = KernelConfig(
    backoff_schedules=(BackoffSchedule("default", (1_000, 2_000, 4_000)), INTERRUPTION_PAUSES),
    scheduling=SchedulingPolicy().to_map(),
    rules=RULES,
)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def config_of(tmp_path: Path, text: str) -> KernelConfig:
    settings = read_settings(written(tmp_path, LEDGER + text))
    return settings.kernel_config(partitions=1, partition_id=0, environment={})


def test_the_template_is_the_default_configuration(tmp_path: Path) -> None:
    path = written(tmp_path, TEMPLATE.format(origin="detent/00", root="sha256:" + "ab" * 32))
    settings = read_settings(path)
    assert settings.origin == "detent/00"
    assert settings.root == b"\xab" * 32
    assert settings.kernel_config(partitions=1, partition_id=0, environment={}) == DEFAULT
    assert settings.sandbox_required == SANDBOX_REQUIRED


def test_the_profiles_of_the_settings_are_those_of_the_sandbox(tmp_path: Path) -> None:
    assert [profile.value for profile in Profile] == list(SANDBOX_PROFILES)
    assert DEFAULT_REQUIRED.value == SANDBOX_REQUIRED
    for profile in SANDBOX_PROFILES:
        path = written(tmp_path, LEDGER + f'[sandbox]\nrequired = "{profile}"\n')
        assert read_settings(path).sandbox_required == profile
    assert read_settings(written(tmp_path, LEDGER)).sandbox_required == SANDBOX_REQUIRED


def test_without_sections_the_defaults_hold(tmp_path: Path) -> None:
    assert config_of(tmp_path, "") == DEFAULT


def test_every_setting_reaches_the_kernel(tmp_path: Path) -> None:
    text = """
[queue]
capacity_per_class = 3
capacity_total = 7
[leases.long]
ttl_ms = 60000
heartbeat_ms = 20000
[backoffs]
slow = [1, 2]
[quotas.small]
gpu_time_budget_ms = 1
cpu_time_budget_ms = 2
io_bytes_budget = 3
memory_bytes_budget = 4
[kernel]
seed = 11
on_quota_running = "cancel"
runtime_class = "GPU"
"""
    config = config_of(tmp_path, text)
    assert (config.queue.capacity_per_class, config.queue.capacity_total) == (3, 7)
    assert config.lease_policies == (DEFAULT_LEASE, LeasePolicy("long", 60_000, 20_000))
    assert config.backoff_schedules == (DEFAULT_BACKOFF, BackoffSchedule("slow", (1, 2)), INTERRUPTION_PAUSES)
    assert config.quota_policies[1:] == (QuotaPolicy(1, 2, 3, 4),)
    assert (config.seed, config.on_quota_running, config.environment["runtime_class"]) == (11, "cancel", "GPU")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[qeue]\ncapacity_total = 1\n", "[qeue]"),
        ("[queue]\ncapacity = 1\n", "queue.capacity"),
        ("[queue]\ncapacity_total = 0\n", "capacity_total"),
        ("[queue]\ncapacity_total = '9'\n", "capacity_total"),
        ("[queue]\ncapacity_total = true\n", "capacity_total"),
        ("[queue]\nadmission_policy = 'two words'\n", "admission_policy"),
        ("[leases.default]\nttl_ms = 1\n", "leases.default"),
        ("[leases.default]\nttl_ms = 1\nheartbeat_ms = 1\nextra = 1\n", "leases.default"),
        ("[leases.default]\nttl_ms = 0\nheartbeat_ms = 1\n", "leases.default"),
        ("[leases.default]\nttl_ms = -1\nheartbeat_ms = 1\n", "leases.default"),
        ("[leases.default]\nttl_ms = 1.5\nheartbeat_ms = 1\n", "leases.default"),
        ("[leases.default]\nttl_ms = 18446744073709551615\nheartbeat_ms = 1\n", "leases.default"),
        ("[leases]\ndefault = 7\n", "leases.default"),
        ("[leases.remote]\nttl_ms = 0\nheartbeat_ms = 1\n", "leases.remote"),
        ("[workers]\naudit_percent = 101\n", "workers.audit_percent"),
        ("[workers]\naudit_percent = true\n", "workers.audit_percent"),
        ("[workers]\naudit_percent = '5%'\n", "workers.audit_percent"),
        ("[leases.'two words']\nttl_ms = 1\nheartbeat_ms = 1\n", "two words"),
        ("[backoffs]\ndefault = 7\n", "backoffs.default"),
        ("[backoffs]\ndefault = []\n", "backoffs.default"),
        ("[backoffs]\ndefault = ['1']\n", "backoffs.default"),
        ("[quotas.small]\ngpu = 1\n", "quotas.small"),
        ("[quotas]\nsmall = 1\n", "quotas.small"),
        ("[quotas.small]\ngpu_time_budget_ms = -1\n", "quotas.small"),
        ("[quotas.small]\nevaluation_rule_id = 'LE_SOME'\n", "quotas.small"),
        ("[quotas.'two words']\ngpu_time_budget_ms = 1\n", "two words"),
        ("[backoffs.slow]\ndelays = [1]\n", "backoffs.slow"),
        ("[tenants.local]\nquota = 'large'\n", "tenants.local: quota 'large' is not configured"),
        ("[tenants.local]\nbudget = 'small'\n", "tenants.local"),
        ("[kernel]\nseed = 'x'\n", "seed"),
        ("[kernel]\non_quota_running = 'explode'\n", "on_quota_running"),
        ("[kernel]\nruntime_class = 1\n", "runtime_class"),
        ("[sandbox]\nrequired = 'some'\n", "sandbox.required"),
        ("[sandbox]\nrequired = ['full']\n", "sandbox.required"),
        ("[sandbox]\nlimit = 1\n", "sandbox.limit"),
        ("[idempotency]\nkeys_max = 0\n", "idempotency.keys_max"),
        ("[idempotency]\nkeys_max = true\n", "idempotency.keys_max"),
        ("[idempotency]\nwindow_ms = 1.5\n", "idempotency.window_ms"),
        ("[idempotency]\nwindow_ms = 99999999999999999\n", "idempotency.window_ms"),
        ("[idempotency]\nkeys = 1\n", "idempotency.keys"),
        ("[resources]\ngpu = 0\n", "resources.gpu"),
        ("[resources]\ngpu = '1'\n", "resources.gpu"),
        ("[resources]\nGPU = 1\n", "'GPU'"),
        ("[resources]\ncpu = 8\n", "resources.cpu"),
        ("kernel = 7\n", "kernel"),
    ],
)
def test_a_bad_setting_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = written(tmp_path, (text + LEDGER) if text.startswith("kernel =") else (LEDGER + text))
    with pytest.raises(HomeError) as caught:
        read_settings(path).kernel_config(partitions=1, partition_id=0, environment={})
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[ledger]\norigin = 'x'\n",
        "[ledger]\norigin = 'x'\nroot = 'ab'\n",
        "[ledger]\norigin = 7\nroot = 'sha256:" + "ab" * 32 + "'\n",
        "[ledger]\norigin = 'x'\nroot = 7\n",
        "[ledger\n",
        "a = 1\na = 2\n",
    ],
)
def test_a_file_that_pins_nothing_is_refused(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(HomeError, match=r"config\.toml"):
        read_settings(path)


def test_a_missing_file_and_one_that_is_no_text_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="is missing"):
        read_settings(tmp_path / "config.toml")
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(HomeError, match="cannot be read"):
        read_settings(path)


def test_the_page_on_settings_names_every_section_and_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    rows = {
        found.partition(".")[0]: line for line in page.splitlines() for found in re.findall(r"^\| `\[([^]]+)\]`", line)
    }
    assert rows.keys() == _SECTIONS.keys()
    for section, keys in _SECTIONS.items():
        assert all(f"`{key}`" in rows[section] for key in keys or ())
