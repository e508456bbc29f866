"""What the execution key of a step or task is made of, and what changed when two keys differ.

Code is read and never run (`code`, from `scopes` and `scan` up through `modules`, `meaning` and `reach`),
files are hashed by content (`files`), and everything ends as one flat mapping of named ingredients (`job`),
which `changes` compares. docs/reuse.md tells users how it decides.
"""

from __future__ import annotations

from detent.reuse.ingredients.changes import ABSENT, Change, changed, describe
from detent.reuse.ingredients.code import CodeDigest, CodeReader, source_digest, together, version_digest
from detent.reuse.ingredients.files import (
    FileDigests,
    FileUnreadable,
    FileUnsettled,
    OutputFault,
    inputs_digests,
    outputs_digests,
    outputs_match,
)
from detent.reuse.ingredients.job import (
    ArrayKeys,
    Surroundings,
    around,
    binding_digest,
    default_shell,
    env_version,
    ingredients,
    is_same_request,
    is_same_work,
    key_of_order,
    key_of_work,
    never_reused,
    of_surroundings,
    platform_name,
    python_version,
)
from detent.reuse.ingredients.meaning import Unresolved

__all__ = [
    "ABSENT",
    "ArrayKeys",
    "Change",
    "CodeDigest",
    "CodeReader",
    "FileDigests",
    "FileUnreadable",
    "FileUnsettled",
    "OutputFault",
    "Surroundings",
    "Unresolved",
    "around",
    "binding_digest",
    "changed",
    "default_shell",
    "describe",
    "env_version",
    "ingredients",
    "inputs_digests",
    "is_same_request",
    "is_same_work",
    "key_of_order",
    "key_of_work",
    "never_reused",
    "of_surroundings",
    "outputs_digests",
    "outputs_match",
    "platform_name",
    "python_version",
    "source_digest",
    "together",
    "version_digest",
]
