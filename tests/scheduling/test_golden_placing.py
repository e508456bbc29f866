"""The golden life of a job that asks for a pool, labels and a resource: orders, offers and commands of then read and replay as then."""

from __future__ import annotations

from detent.access.turn import protocol_of, read_turn
from detent.jobs.order import read_order
from detent.kernel import Claim, Kernel, KernelConfig, Submit, checkpoint, decode_commands, restore
from detent.owner.content import open_value
from detent.scheduling.orders import write_request
from detent.scheduling.scheduler import Scheduler
from tests.golden.make import FOLDER


def golden() -> list[tuple[str, bytes]]:
    pairs = [line.split("\t") for line in (FOLDER / "placed.txt").read_text(encoding="utf-8").splitlines()]
    return [(name, bytes.fromhex(data)) for name, data in pairs]


def test_an_order_of_then_still_says_where_its_job_may_run() -> None:
    limits = read_order(open_value(dict(golden())["order"])).limits
    assert (limits.pool, limits.labels, dict(limits.resources)) == (
        "gpu",
        ("a100", "cuda"),
        {"gpu": 2, "memory_mb": 4096},
    )


def test_a_turn_of_then_still_says_what_its_worker_offers() -> None:
    said = read_turn(protocol_of(dict(golden())["turn"])[1])
    assert (said.pool, said.labels, dict(said.resources)) == ("gpu", ("a100", "cuda"), {"gpu": 2, "memory_mb": 8192})


def test_a_placed_job_of_then_is_leased_by_the_same_claim_now() -> None:
    """X-165: a ledger written then is decided the same now"""
    lines = golden()
    named = dict(lines)
    commands = decode_commands(named["commands"])
    assert isinstance(commands[0], Submit)
    asked = ["pool:gpu", "a100", "cuda", "resource:gpu", "resource:memory_mb"]
    assert commands[0].request == write_request(labels=asked)
    kernel = Kernel(KernelConfig.decode(named["config"]), make_queue=Scheduler)
    outcomes = [kernel.apply(command) for command in commands]
    made = [part for outcome in outcomes for record in outcome.records for part in (record.body, record.evidence)]
    assert [part for part in made if part is not None] == [
        data for name, data in lines if name.startswith(("record", "evidence"))
    ]
    claims = [
        [grant.job_id for grant in outcome.grants]
        for command, outcome in zip(commands, outcomes, strict=True)
        if isinstance(command, Claim)
    ]
    assert claims == [["plain"], [], ["placed"]]
    assert checkpoint(kernel) == named["checkpoint"]
    assert checkpoint(restore(named["checkpoint"], make_queue=Scheduler)) == named["checkpoint"]
