"""Where a ledger in PostgreSQL is: a URL as libpq takes it, and the schema that the ledger's tables are in.

    postgresql://user@host:5432/database?schema=detent&sslmode=verify-full

``schema`` is ours and does not reach libpq. A password belongs into libpq's own places (``PGPASSWORD``, a password file, a service)
or into a file that only the user may read (``[store] url_file``): a command line can be read by every user of the machine, and
settings are shown and copied. Wherever an address is shown, it is shown without one.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from detent.canon.late import dataclass, pattern
from detent.errors import InvalidInput

SCHEMES: Final = ("postgresql", "postgres")
SCHEMA_DEFAULT: Final = "detent"
_SCHEMA: Final = pattern(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_SECRET: Final = frozenset({"password", "sslpassword", "passfile_password"})
_URL_CHARACTERS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """One ledger in PostgreSQL. Two addresses are equal when they are written the same."""

    url: str = field(repr=False)
    """What libpq is given; it may hold a password."""
    schema: str
    shown: str
    """The address without a password, for people and records."""

    def __str__(self) -> str:
        return self.shown

    @property
    def has_password(self) -> bool:
        """Whether the URL itself holds one."""
        return self.url != _without_secrets(self.url)


def is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL database."""
    return url.partition("://")[0] in SCHEMES and "://" in url


def parse_address(url: str, source: str) -> PostgresAddress:
    """The address that a URL names. `InvalidInput` says where it stands and never repeats it: it may hold a password."""
    hint = "write postgresql://USER@HOST:5432/DATABASE?schema=detent"
    if len(url) > _URL_CHARACTERS_MAX or not url.isprintable():
        raise InvalidInput(f"{source} is not the URL of a store", hint=hint)
    if not is_postgres(url):
        raise InvalidInput(f"{source} does not name a store that is known", hint=hint)
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidInput(f"{source} is not a URL", hint=hint) from None
    schemas = [value for name, value in given if name == "schema"]
    schema = schemas[0] if schemas else SCHEMA_DEFAULT
    if len(schemas) > 1 or _SCHEMA.fullmatch(schema) is None or schema.startswith("pg_"):
        raise InvalidInput(
            f"{source}: the schema of a ledger has up to 63 lower-case letters, digits and _, and one name",
            hint="leave ?schema= out for the schema detent",
        )
    rest = urlencode([(name, value) for name, value in given if name != "schema"], quote_via=quote)
    plain = urlunsplit(parts._replace(query=rest))
    shown = _without_secrets(plain)
    if schema != SCHEMA_DEFAULT:
        shown += f"{'&' if '?' in shown else '?'}schema={schema}"
    return PostgresAddress(plain, schema, shown)


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in _SECRET]
    netloc = f"{user.partition(':')[0]}{at}{host}"
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query, quote_via=quote)))
