"""Which Python a benchmark ran on, and whether it was built with PGO: no figure means anything without it."""

from __future__ import annotations

import platform
import sys
import sysconfig

from detent.inspect.doctor import interpreter_of


def interpreter_text() -> str:
    """One line for the head of a benchmark, such as ``CPython 3.11.7, built without PGO``."""
    built = interpreter_of(str(sysconfig.get_config_var("CONFIG_ARGS") or ""), sys.base_prefix)
    return f"{platform.python_implementation()} {platform.python_version()}, {built.text}"


def main() -> None:
    print(f"   {interpreter_text()}")


if __name__ == "__main__":
    main()
