"""Tampering with where a job was to run, and with what its worker offered: orders are content, requests and offers are commands."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from detent.jobs.order import Call, JobLimits, Order
from detent.kernel import Claim, Command, Manifest, Submit, decode_commands, encode_commands
from detent.ledger import ContentItem, replay_items, sign_manifest
from detent.owner.content import open_value, seal_trusted
from detent.scheduling.orders import write_request
from detent.scheduling.scheduler import Scheduler
from tests.ledger.build import Builder
from tests.tamper.forge import changed, check, found, with_batch

ORDER = Order(
    Call(kind="python", target="tasks:fit"), "fit", JobLimits(pool="gpu", labels=("a100",), resources={"gpu": 1})
)
ASKED = ("a100", "pool:gpu", "resource:gpu")
NUMBER = 1
"""The batch that the job was submitted and leased in."""


def placing() -> Builder:
    """A ledger on which a worker that offers a GPU ran the job that asked for one."""
    ledger = Builder(make_queue=Scheduler)
    payload = ledger.content(seal_trusted(ORDER.document(), bytes(16)))
    manifest = Manifest(
        *("acme", "fit", "task", payload, 5, ledger.config.quota_policies[0].hash(), 0), origin=ledger.origin
    )
    signed = sign_manifest(manifest, ledger.keys["manifest"])
    assert ledger.apply(Submit(0, signed, None, write_request(labels=list(ASKED)))).ok
    assert ledger.apply(Claim(0, "gpu-1/boot", 1, labels=ASKED)).grants
    ledger.commit()
    ledger.finish("fit")
    ledger.commit()
    ledger.keep_head()
    return ledger


def test_an_honest_ledger_of_placed_jobs_verifies_and_replays() -> None:
    ledger = placing()
    assert check(ledger).ok
    assert replay_items(ledger.items(), make_queue=Scheduler).ok


@pytest.mark.parametrize(
    ("name", "value"), [("pool", "cpu"), ("labels", ["any"]), ("resources", {"gpu": 8}), ("pool", None)]
)
def test_an_order_that_names_another_place_is_found(name: str, value: Any) -> None:
    """Tampering: artifact bytes swapped (X)"""
    ledger = placing()
    [item] = ledger.contents
    document: Any = open_value(item.data)
    assert document[name] != value
    edited = {**document, name: value} if value is not None else {k: v for k, v in document.items() if k != name}
    ledger.contents = [ContentItem(item.digest, seal_trusted(edited, bytes(16)))]
    assert item.digest.hex() in found(check(ledger), "CONTENT_DIGEST_WRONG").message


REQUESTS = (None, write_request(labels=[]), write_request(labels=["a100"]), write_request(labels=[*ASKED, "big"]))
OFFERS = (None, ("a100",), ("a100", "pool:gpu"), (*ASKED, "big"))


def forged(commands: list[Command], **changes: Any) -> list[Command]:
    """The commands with another request of the job, or another offer of the worker."""
    kind = Submit if "request" in changes else Claim
    made = [dataclasses.replace(one, **changes) if isinstance(one, kind) else one for one in commands]
    assert made != commands
    return made


CHANGES = [{"request": request} for request in REQUESTS] + [{"labels": offer} for offer in OFFERS]


@pytest.mark.parametrize("changes", CHANGES)
def test_a_request_or_an_offer_that_is_changed_with_an_editor_is_found(changes: dict[str, Any]) -> None:
    """X-165: a changed command is found"""
    ledger = placing()
    items = with_batch(
        ledger.items(),
        NUMBER,
        lambda item: changed(item, commands=encode_commands(forged(decode_commands(item.commands), **changes))),
    )
    assert found(check(ledger, items), "COMMANDS_DIGEST_WRONG").batch_no == NUMBER


@pytest.mark.parametrize("changes", [{"request": REQUESTS[3]}, {"labels": OFFERS[1]}, {"labels": OFFERS[2]}])
def test_an_owner_who_rewrites_a_request_or_an_offer_is_found_by_a_replay_and_by_a_kept_head(
    changes: dict[str, Any],
) -> None:
    """Tampering: commands rewritten by a holder of the owner's key (R, C): a worker that did not offer what the job asked for"""
    ledger = placing()
    kept = ledger.head()
    commit = ledger.commits[NUMBER]
    commands = encode_commands(forged(decode_commands(commit.commands), **changes))
    ledger.commits[NUMBER] = dataclasses.replace(commit, commands=commands)
    ledger.heads = []
    assert not replay_items(ledger.items(), make_queue=Scheduler).ok
    assert found(check(ledger, kept_heads=[kept]), "LEDGER_FORKED").partition == 0
