"""Which missing modules are packages that are there outside the jail."""

from __future__ import annotations

import pytest

from detent.executor.sandbox.classify import is_outside
from detent.executor.sandbox.model import Raised


@pytest.mark.parametrize(
    ("type_name", "message", "outside"),
    [
        ("ModuleNotFoundError", "No module named 'pytest'", True),
        ("ModuleNotFoundError", "No module named 'helper_of_mine'", False),
        ("ModuleNotFoundError", "No module named 'pytest.helper_of_mine'", False),
        ("ModuleNotFoundError", "No module named 'pytest.mark'; 'pytest' is not a package", False),
        ("ModuleNotFoundError", "No module named 'tkinter'", False),
        ("ModuleNotFoundError", "no such thing", False),
        ("ValueError", "No module named 'pytest'", False),
    ],
)
def test_only_a_package_that_this_process_would_find_is_outside(type_name: str, message: str, outside: bool) -> None:
    assert is_outside(Raised(type_name, message, "", None, None)) is outside
