"""How fast a contract is loaded: checked models and bindings, beside libyaml merely parsing the same bytes.

The ceiling is `CParser.get_event` in a loop that throws every event away: nothing that reads YAML through it can be
faster. Goal: `detent validate` on 1,000 steps below 0.4 s of CPU, start-up included, of which loading is a part.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from detent.contract import contract_digest, from_document, load, long_form

STEPS = (1_000, 100_000 if "--full" in sys.argv else 10_000)
ROUNDS = 3


def written(steps: int) -> bytes:
    """A chain in the short form, four lines a step, as people write them."""
    lines = ["name: chain", "mode: parallel", "params: {rows: 10}", "steps:"]
    for index in range(steps):
        lines.append(f"  - id: step_{index}")
        if index:
            lines.append(f"    needs: [step_{index - 1}]")
        lines.append("    run: {python: etl:extract, with: {source: a, rows: {$param: rows}}}")
        lines.append("    timeout: 5m")
    return "\n".join(lines).encode()


def parse_only(data: bytes) -> int:
    """Every event of libyaml, counted and thrown away."""
    from yaml import StreamEndEvent  # noqa: PLC0415
    from yaml._yaml import CParser  # noqa: PLC0415

    parser = CParser(data)
    count = 1
    while type(parser.get_event()) is not StreamEndEvent:
        count += 1
    return count


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU milliseconds of the fastest of a few rounds."""
    fastest = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        fastest = min(fastest, time.process_time() - begun)
    return 1_000 * fastest


def main() -> None:
    print(f"CPU time, fastest of {ROUNDS}; ratio to libyaml's bare events of the same bytes")
    rows: list[tuple[int, float]] = []
    for steps in STEPS:
        data = written(steps)
        bare = cpu_ms(lambda data=data: parse_only(data))  # type: ignore[misc]
        loading = cpu_ms(lambda data=data: load(data))  # type: ignore[misc]
        contract = load(data)
        document = long_form(contract)
        again = cpu_ms(lambda document=document: from_document(document))  # type: ignore[misc]
        digest = cpu_ms(lambda contract=contract: contract_digest(contract))  # type: ignore[misc]
        print(f"  {steps:,} steps, {len(data) / 1024:,.0f} KiB")
        print(f"    bare events      {bare:>9,.0f} ms")
        print(f"    load             {loading:>9,.0f} ms   {loading / bare:.1f} x")
        print(f"    from_document    {again:>9,.0f} ms   {again / bare:.1f} x  (the long form, without YAML)")
        print(f"    contract_digest  {digest:>9,.0f} ms   {digest / bare:.1f} x")
        rows.append((steps, loading))
    (few, quick), (many, slow) = rows
    print(f"  a step at {many:,} costs {slow / many / (quick / few):.2f} times a step at {few:,}")


if __name__ == "__main__":
    main()
