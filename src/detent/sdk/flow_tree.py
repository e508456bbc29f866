"""A recorded flow as a source tree: its steps written down as a contract, beside the code that they call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from detent.canon import json_encode
from detent.errors import InvalidInput
from detent.remote.trees import Tree, tree_of

if TYPE_CHECKING:
    from detent.contract.model import Contract
    from detent.sdk.recording import Recording


def tree_of_flow(recording: Recording) -> tuple[Tree, Contract]:
    """What a server needs to run a flow: nothing of it is called there but its tasks. Gives the contract as well."""
    contract = recording.contract()
    if contract.base is None:
        raise InvalidInput(
            f"flow {recording.name!r} was typed at a prompt or in a notebook, so its code cannot be sent",
            hint="put it into a .py file and import it from there",
        )
    source = recording.source.replace("/", ".")
    entry = source if ":" in source else f"{source}:flow"
    text = json_encode(recording.document(), name="contract")
    return tree_of(Path(contract.base), entry, text, contract, {}), contract
