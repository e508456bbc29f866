"""Make this folder's golden files and the published schema: `make golden` runs this, and the diff is reviewed as code.

`broken.yaml` is written by hand, with every kind of fault; `broken.txt` is what the loader says about it, for people.
"""

from __future__ import annotations

import json
from pathlib import Path

from detent.contract import ContractInvalid, load, schema

FOLDER = Path(__file__).resolve().parent
BROKEN = FOLDER / "broken.yaml"
FINDINGS = FOLDER / "broken.txt"
SCHEMA = FOLDER.parents[1] / "docs" / "contract.schema.json"


def findings_text() -> str:
    """What is wrong with the broken contract: a line for each finding, and its hint below."""
    try:
        load(BROKEN.read_bytes(), name=BROKEN.name)
    except ContractInvalid as exc:
        return "".join(f"{finding}\n    {finding.hint}\n" for finding in exc.findings)
    return "nothing\n"


def schema_text() -> str:
    """The schema as it is published."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Rewrite every file."""
    FINDINGS.write_text(findings_text(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
