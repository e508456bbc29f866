"""Bundles, changed as bytes and as what they hold: `verify` finds it, or lists under "not proved" what it cannot show.

A case takes one of the bundles of a home where everything has happened, changes it, and has `verify` and `replay` read it within
a limit of memory and time. A file that was changed item by item gets a fitting end item again: that item is no signature.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from typing import Any

import cbor2

from detent.canon import NotCanonical, encode
from detent.ledger.bundle import BUNDLE_LABEL, END
from detent.ledger.loose import loose
from tests.attacks.case import Case
from tests.attacks.mutate import BYTES_MAX, changed_inside, pick, raw_bytes
from tests.attacks.recorded import Recorded

RAW_SHARE = 0.25
STALE_END_SHARE = 0.05
KINDS: dict[str, tuple[str, ...]] = {
    "whole": (),
    "whole with content": ("--content",),
    "whole without reports": ("--no-reports",),
    "run": ("RUN",),
    "run with content": ("RUN", "--content"),
    "run without reports": ("RUN", "--no-reports"),
}
EXPORTED_TICK = "exported_tick"
OWNERS = "partial of owners"
"""An item of a run's bundle that only tells of owners: those that signed nothing of the run may be left out."""
NOT_PROVED: dict[str, Callable[[Counter[str], Counter[str]], bool]] = {
    "When the file was exported": lambda gone, new: gone.keys() | new.keys() <= {"header"},
    "content which is not in the file": lambda gone, new: gone.keys() | new.keys() <= {"content"},
    "the file was exported without their reports": lambda gone, new: gone.keys() | new.keys() <= {"content"},
    "Anything about the rest of the ledger": lambda gone, new: gone.keys() | new.keys() <= {OWNERS},
}
"""Beginnings of sentences under "not proved", and which items may be others than they were when it is said."""


class Bundles:
    """The bundles of a recorded home."""

    def __init__(self, recorded: Recorded) -> None:
        self.desk = recorded.desk
        self.target = recorded.aside / "attacked.detent"
        recorded.put_back()
        (run_id, *_) = [run["run_id"] for run in recorded.said["list", "-o", "json"].document if run["name"] == "flow"]
        self.files: dict[str, bytes] = {}
        self.root = ""
        for kind, options in KINDS.items():
            words = [run_id if word == "RUN" else word for word in options]
            said = self.desk.one("export", *words, "--output", str(self.target), "-o", "json")
            assert said.code == 0, said
            self.root = said.document["root"]
            self.files[kind] = self.target.read_bytes()
            self.target.unlink()


def attack(bundles: Bundles, seed: int) -> Case:
    """One case."""
    draw = random.Random(f"bundles/{seed}")
    case = Case("bundles", seed)
    kind = draw.choice(list(bundles.files))
    whole = bundles.files[kind]
    changed, said = whole, ""
    while changed == whole:
        changed, said = _change(draw, whole, draw.choice(list(bundles.files.values())))
    case.done = f"{kind}: {said}"
    bundles.target.write_bytes(changed)
    answers = bundles.desk.ask(
        [
            ("verify", str(bundles.target), "--root", bundles.root, "-o", "json"),
            ("replay", str(bundles.target), "-o", "json"),
        ]
    )
    case.take(answers)
    if case.problems:
        return case
    if answers[0].code != 0:
        case.outcome = "found"
        return case
    _judge(case, whole, changed, answers[0].document["not_proved"])
    return case


def _judge(case: Case, whole: bytes, changed: bytes, not_proved: list[str]) -> None:
    """A green verdict over another file: only for items whose change it says it cannot see, and for heads left out or repeated."""
    before, after = Counter(_items(whole)), Counter(_items(changed))
    gone, new = before - after, after - before
    if not gone and not new:
        case.outcome = "no effect"  # The same items in another order.
        return
    kinds = [Counter({_kind(item): 1 for item in some if _kind(item) not in {"head", END}}) for some in (gone, new)]
    if not kinds[0] and not kinds[1] and not any(item not in before for item in new if _kind(item) == "head"):
        case.outcome = "no effect"
        return
    case.outcome = "listed"
    sure = [about for words, about in NOT_PROVED.items() if any(words in said for said in not_proved)]
    header = kinds[0]["header"] and not _only_tick(gone, new)
    if header or not any(about(*kinds) for about in sure):
        case.problems.append(f"verify is green; gone: {_told(gone)}; new: {_told(new)}")


def _only_tick(gone: Counter[bytes], new: Counter[bytes]) -> bool:
    (before,), (after,) = ([loose(item) for item in some if _kind(item) == "header"] for some in (gone, new))
    return {**before, EXPORTED_TICK: 0} == {**after, EXPORTED_TICK: 0}


def _kind(item: bytes) -> str:
    value = loose(item)
    if not isinstance(value, dict):
        return "?"
    kinds = {loose(record[1])["kind"] for record in value["records"]} if value.get("kind") == "partial" else set()
    return OWNERS if kinds == {"owner_epoch"} else str(value.get("kind"))


def _told(items: Counter[bytes]) -> str:
    return ", ".join(f"{loose(item)!r:.200}" for item in items) or "nothing"


def _items(data: bytes) -> list[bytes]:
    """The items of a bundle as bytes; of a damaged one, those before the damage."""
    found: list[bytes] = []
    stream = BytesIO(data)
    try:
        while stream.tell() < len(data):
            found.append(cbor2.CBORDecoder(stream).decode())
    except (cbor2.CBORDecodeError, ValueError, MemoryError, OverflowError):
        pass
    return [item for item in found if isinstance(item, bytes)]


def _change(draw: random.Random, whole: bytes, other: bytes) -> tuple[bytes, str]:
    if draw.random() < RAW_SHARE:
        return raw_bytes(draw, whole), "raw bytes"
    items, said = _changed_items(draw, _items(whole)[:-1], _items(other)[:-1])
    if draw.random() < STALE_END_SHARE:
        return b"".join(encode(item, bytes_max=BYTES_MAX) for item in [*items, _items(whole)[-1]]), f"{said}, old end"
    return _written(items), said


def _written(items: list[bytes]) -> bytes:
    """A file of these items with an end item that fits."""
    framed = b"".join(encode(item, bytes_max=BYTES_MAX) for item in items)
    end = {"kind": END, "items": len(items), "digest": sha256(BUNDLE_LABEL + framed).digest()}
    return framed + encode(encode(end))


def _changed_items(draw: random.Random, items: list[bytes], others: list[bytes]) -> tuple[list[bytes], str]:
    kinds = sorted({_kind(item) for item in items})
    chosen = draw.choice(kinds)
    at = pick(draw, [number for number, item in enumerate(items) if _kind(item) == chosen])
    operation = draw.choice(
        ("leaf", "leaf", "leaf", "leaf", "leaf", "drop", "drop all", "twice", "swap", "splice", "graft")
    )
    new, said = list(items), f"{operation} {chosen} {at} of {len(items)}"
    if operation == "leaf":
        new[at] = changed_inside(draw, items[at]) or raw_bytes(draw, items[at])
    elif operation == "drop":
        del new[at]
    elif operation == "drop all":
        new = [item for item in items if _kind(item) != chosen]
    elif operation == "twice":
        new.insert(draw.randrange(len(new) + 1), items[at])
    elif operation == "swap":
        other = pick(draw, range(len(items)))
        new[at], new[other] = new[other], new[at]
    elif operation == "splice":
        place = pick(draw, range(len(others)))
        new[at : at + draw.randrange(3)] = others[place : place + draw.randrange(1, 4)]
    else:
        new[at] = _grafted(draw, items[at], draw.choice([item for item in others if _kind(item) == chosen] or items))
    return new, said


def _grafted(draw: random.Random, item: bytes, other: bytes) -> bytes:
    """An item with some fields of another one."""
    fields: Any = loose(item)
    theirs: Any = loose(other)
    names = [name for name in fields if name in theirs and name != "kind"]
    if not names:
        return item
    taken = draw.sample(names, draw.randint(1, len(names)))
    try:
        return encode(fields | {name: theirs[name] for name in taken}, bytes_max=BYTES_MAX)
    except NotCanonical:
        return item
