"""`detent.verify`: check a bundle in a file."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from detent.errors import InvalidInput

if TYPE_CHECKING:
    from detent.ledger.findings import Report


def verify(path: str | PathLike[str], root: str | bytes | None = None, *, kept_heads: Iterable[str] = ()) -> Report:
    """Verify a ``.detent`` file; the report says whether it holds, every finding, what was proved and what was not.

    ``root`` is the digest that the ledger's owner passed on (``sha256:…``, or its 32 bytes). Without it the answer is
    never ``ok``: anyone can make a ledger that agrees with itself. ``kept_heads`` are tree heads kept from an earlier
    look, which the ledger must continue. Memory does not grow with the file. Raises `InvalidInput` when there is no such
    file or the root is not a digest; what is wrong inside the file is a finding.
    """
    # Not at the top: `import detent` and `detent --help` must not load what only this function needs.
    from detent.inspect.signatures import signature_checkers  # noqa: PLC0415
    from detent.ledger.verify import verify_bundle  # noqa: PLC0415
    from detent.store.spill import SpilledHeads  # noqa: PLC0415

    place = Path(path)
    try:
        file = place.open("rb")
    except OSError as exc:
        raise InvalidInput(
            f"{place} cannot be read: {exc.strerror or exc}",
            hint="give the path of a bundle that `detent export` wrote",
        ) from exc
    with file, SpilledHeads() as heads, signature_checkers() as verify_many:
        return verify_bundle(file, root, heads=heads, kept_heads=kept_heads, verify_many=verify_many)
