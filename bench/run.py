"""`make bench`: every benchmark after the other, each printing both of its sides and their ratio.

Timings are for reading, not for tests. ``--full`` uses the sizes that the published figures were made with.
"""

from __future__ import annotations

import importlib
import sys
import time

PROGRAMMES = (
    "bench.interpreter",
    "bench.goals",
    "bench.start_up",
    "bench.validate_cpu",
    "bench.plan_rate",
    "bench.contract_rate",
    "bench.reuse_key_rate",
    "bench.queue_rate",
    "bench.placement_rate",
    "bench.ordered_rate",
    "bench.commit_target_rate",
    "bench.sandbox_rate",
    "bench.runner_rate",
    "bench.pool_rate",
    "bench.artifact_rate",
    "bench.run_rate",
    "bench.owner_rate",
    "bench.http_rate",
    "bench.store_append",
    "bench.postgres_rate",
    "bench.verify_rate",
    "bench.big_ledger",
)


def main() -> None:
    for name in PROGRAMMES:
        begun = time.perf_counter()
        print(f"== {name}")
        importlib.import_module(name).main()
        print(f"   ({time.perf_counter() - begun:.0f} s)\n", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, ".")
    main()
