"""`make golden`: rewrite every golden file that a program makes. Review the diff as code."""

from __future__ import annotations

from tests.golden import make


def main() -> None:
    """Run every maker in this folder."""
    make.main()


if __name__ == "__main__":
    main()
