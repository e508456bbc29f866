"""How large a contract may be. Each limit is checked while the file is read, before the rest of it is looked at."""

from __future__ import annotations

from typing import Final

from detent.canon.strict_json import JSON_DEPTH_MAX

BYTES_MAX: Final = 16 * 1024 * 1024
NODES_MAX: Final = 2_000_000
"""Keys, values, lists and mappings together."""
DEPTH_MAX: Final = JSON_DEPTH_MAX
"""Lists and mappings inside one another, counted from the top of the file."""
VALUE_DEPTH_MAX: Final = 48
"""The same inside one value (an argument, a default, a payload), so that every value fits the long form as well."""
STEPS_MAX: Final = 100_000
SOURCE_BYTES_MAX: Final = 256 * 1024
"""Size of the Python source in one ``code:``."""
DURATION_MS_MAX: Final = 2**53
"""285,000 years; every JSON reader can hold it exactly."""
LONG_FORM_BYTES_MAX: Final = 64 * BYTES_MAX
"""The long form of a file that keeps the other limits cannot come near this."""
