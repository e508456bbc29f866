"""Bundles of a server's ledger: fetched into a file and verified here, because a server cannot vouch for itself.

What is kept of a ledger on this machine counts beside the bundle: the tree heads that its servers have shown, and the root that its user
pinned once. Both go by the ledger's name, so a server that shows another ledger finds neither.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from detent.canon import digest_text, parse_digest
from detent.errors import HomeError, InvalidInput
from detent.inspect.signatures import signature_checkers
from detent.ledger.batch import tree_origin
from detent.ledger.bundle import read_items
from detent.ledger.claims import NO_KEPT_HEAD
from detent.ledger.findings import FINDINGS, Finding, Report
from detent.ledger.items import SCOPE_LEDGER, SCOPE_RUN, HeaderItem, HeadItem
from detent.ledger.verify import verify_bundle
from detent.owner.home_permissions import refuse_foreign_state
from detent.remote.heads import kept_head, servers_directory
from detent.remote.http import ANSWER_SECONDS, Http
from detent.remote.problems import AnswerInvalid
from detent.store.files import read_no_follow, replace_no_follow
from detent.store.spill import SpilledHeads
from detent.words.states import FAILED, RUNNING

WRITING_SECONDS: Final = 3_600.0
"""How long a server may take to write a bundle, which has as many batches as the ledger, before its first byte comes."""
VERIFY_SECONDS: Final = 1.0
"""Between two looks at a verification by the server."""
_COUNTS_CHARS_MAX: Final = 4_096
NEVER: Final = "never"
"""The state of a verification that was not asked for."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A bundle that has come, and what it says about itself: nothing of it is verified yet."""

    root: str
    """The root that the server names."""
    header: HeaderItem
    counts: dict[str, int]
    notes: dict[int, str]
    """The tree head of each partition."""


def fetch_bundle(
    http: Http, file: BinaryIO, run_id: str | None, *, content: bool = False, reports: bool = True
) -> Fetched:
    """Write the bundle of a run, or of the whole ledger, into a file as it comes."""
    path = "/v1/ledger/bundle" if run_id is None else f"/v1/runs/{run_id}/bundle"
    query = {"reports": None if reports else False, "content": content or None}
    with http.opened(path, query=query, silence=WRITING_SECONDS) as answer:
        root, counts = answer.headers.get("detent-root", ""), _counts(answer.headers.get("detent-counts", ""))
        file.writelines(answer.pieces())
    file.flush()
    with Path(file.name).open("rb") as written:
        header, notes = _beginning(written)
    try:
        parse_digest(root)
    except InvalidInput:
        raise _not_a_bundle(http) from None
    if header is None or header.run_id != run_id:
        raise _not_a_bundle(http)
    return Fetched(root, header, counts, notes)


def _beginning(file: BinaryIO) -> tuple[HeaderItem | None, dict[int, str]]:
    """The header of a bundle and its tree heads, which come before everything else."""
    header, notes = None, {}
    for item in read_items(file):
        if isinstance(item, HeaderItem):
            header = item
        elif isinstance(item, HeadItem):
            notes[item.partition] = item.note
        else:
            break
    return header, notes


def _counts(written: str) -> dict[str, int]:
    """What a server counted while it wrote a bundle; nothing where it does not say so, or not in words of ours."""
    try:
        said = json.loads(written) if len(written) <= _COUNTS_CHARS_MAX else None
    except ValueError:
        said = None
    named = said if isinstance(said, dict) else {}
    return {name: value for name, value in named.items() if isinstance(value, int) and not isinstance(value, bool)}


def _not_a_bundle(http: Http) -> AnswerInvalid:
    return AnswerInvalid(f"{http.address.url} did not send the bundle", hint="is the server of another version?")


# -- verified here -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification of a server's ledger found."""

    report: Report
    pinned_before: bool
    """Whether the root was not given now, but pinned by an earlier check."""


def verify_there(http: Http, run_id: str | None, root: bytes | None, heads: Sequence[str] = ()) -> Verified:
    """Fetch a bundle and verify it here, against a root and what this machine keeps of the ledger.

    Without ``root``, the one that an earlier green check was given counts. A green check keeps the root.
    """
    origin = str(http.get("/v1/version")["origin"])
    remembered = KeptRoot(origin)
    pinned = remembered.root() if root is None else root
    kept = kept_head(origin)  # Before the bundle is written: it must reach at least as far.
    with tempfile.TemporaryDirectory(prefix="detent-verify-") as directory:
        path = Path(directory, "bundle.detent")
        with path.open("xb") as file:
            fetched = fetch_bundle(http, file, run_id)
        of_run = fetched.header.scope == SCOPE_RUN
        noted = [] if kept is None or of_run else [kept.note]
        with path.open("rb") as bundle, SpilledHeads() as spilled, signature_checkers() as verify_many:
            report = verify_bundle(bundle, pinned, heads=spilled, kept_heads=[*heads, *noted], verify_many=verify_many)
    note = fetched.notes.get(0)
    if of_run and kept is not None and note is not None:
        report = _continued(report, kept.insist_on(http, note))
    # Its own head is not kept: it is signed for the bundle, and the server's newest one may be older. Contacts keep that one.
    if report.ok and root is not None:
        remembered.keep(root)
    return Verified(report, pinned_before=root is None and pinned is not None)


def _continued(report: Report, size: int) -> Report:
    """A report of a run that also says what a server has proved about its tree; nothing is proved of one that was not verified."""
    if not report.ok:
        return report
    shown = f"The tree of partition 0 continues the tree head over {size:,} batches that was kept here of this server."
    unproved = tuple(one for one in report.not_proved if one != NO_KEPT_HEAD)
    return replace(report, proved=(*report.proved, shown), not_proved=unproved)


class KeptRoot:
    """The root of one ledger, as a user of this machine pinned it."""

    def __init__(self, origin: str) -> None:
        name = re.sub(r"[^A-Za-z0-9.-]", "_", tree_origin(origin, 0))
        self.path = servers_directory(os.environ) / f"{name}.root"

    def root(self) -> bytes | None:
        """What is kept; None when nothing is."""
        refuse_foreign_state(self.path.parent)
        try:
            return parse_digest(read_no_follow(self.path).decode().strip())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, InvalidInput) as exc:
            raise HomeError(
                f"the pinned root in {self.path} cannot be read", hint="give it with --root, or remove the file"
            ) from exc

    def keep(self, root: bytes) -> None:
        """Remember a root; where nothing can be written, nothing is remembered."""
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_no_follow(self.path, f"{digest_text(root)}\n".encode())


# -- verified by the server ----------------------------------------------------------------------------------------------


def verify_by_server(http: Http, run_id: str | None, wait: Callable[[float], object] = time.sleep) -> Report:
    """Have the server verify, and give what it says: its word, about its own root."""
    path = "/v1/ledger/verify" if run_id is None else f"/v1/runs/{run_id}/verify"
    told: dict[str, Any] = http.post(path, {})
    while told["state"] in {RUNNING, NEVER}:
        if told["state"] == NEVER:  # It was started anew meanwhile, and knows of nothing.
            http.post(path, {})
        wait(VERIFY_SECONDS)
        told = http.get(path, seconds=ANSWER_SECONDS)
    if told["state"] == FAILED:
        raise AnswerInvalid(f"{http.address.url} could not verify: {told['error']}", hint="ask its operator")
    findings = tuple(_finding(one) for one in told["findings"])
    codes: dict[str, int] = {}
    for one in findings:
        codes[one.code] = codes.get(one.code, 0) + 1
    return Report(
        ok=bool(told["ok"]),
        findings=findings,
        findings_total=int(told["findings_total"]),
        proved=tuple(map(str, told["proved"])),
        not_proved=tuple(map(str, told["not_proved"])),
        counts={name: value for name, value in told["counts"].items() if isinstance(value, int)},
        scope=SCOPE_LEDGER if run_id is None else SCOPE_RUN,
        origin=told["origin"],
        run_id=run_id,
        root=told["root"],
        codes=codes,
    )


def _finding(told: dict[str, Any]) -> Finding:
    if told["code"] not in FINDINGS:
        raise AnswerInvalid(
            f"the server found {told['code']!r:.100}", hint="this version of detent does not know it: upgrade"
        )
    place = "" if told["place"] is None else f"{told['place']}: "
    return Finding(str(told["code"]), f"{place}{told['message']}")
