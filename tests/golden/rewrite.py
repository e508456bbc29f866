"""`make golden`: rewrite every golden file that a program makes. Review the diff as code."""

from __future__ import annotations

from tests.contract import golden as contract
from tests.golden import make
from tests.web import aria


def main() -> None:
    """Run every maker."""
    make.main()
    contract.main()
    aria.main()


if __name__ == "__main__":
    main()
