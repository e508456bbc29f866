"""URLs that let their holder fetch one artifact for a while: signing and checking. Pure; time is an argument.

A URL carries all its claims in the open, and a MAC over them:

    https://HOST/PATH?disposition=...&digest=...&expires=...&host=...&key=...&method=...&tenant=...&signature=...

The MAC is HMAC-SHA-256 over a label and the canonical CBOR list of method, host, path, expiry, tenant, digest, disposition and
key id. A list has its lengths in it, so no field can lend a character to its neighbour.

There is exactly one way to write each URL. A query is taken apart and put together again, and what does not come out byte for
byte the same is refused: parameters twice, in another order, with other escapes or beside ours never reach the MAC. Only when
the MAC is valid does a refusal say more than that it is not, so guessing reveals nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from detent.artifacts.content_type import ATTACHMENT, INLINE
from detent.canon import digest_text, encode, parse_digest
from detent.canon.late import pattern
from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.kernel.manifest import digest_fault, id_fault

LABEL: Final = b"detent/signed-url/v1\0"
REFUSAL_CODE: Final = "URL_INVALID"
"""The registered code of every refusal; `Refused.details["fault"]` says which `UrlFault` it is."""
METHODS: Final = ("GET", "HEAD")
DISPOSITIONS: Final = (INLINE, ATTACHMENT)
LIFETIME_S_MAX: Final = 7 * 24 * 3600
"""A URL that is valid for longer is refused, however well it is signed."""
EXPIRES_S_MAX: Final = 2**40
SECRET_BYTES_MIN: Final = 32
QUERY_CHARS_MAX: Final = 4096

_HOST: Final = pattern(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::[1-9][0-9]{0,4})?")
_PATH: Final = pattern(r"(?:/[A-Za-z0-9_~:@=-](?:[A-Za-z0-9._~:@=-]|%2F){0,255}){1,16}")
_KEY_ID: Final = pattern(r"[a-z0-9][a-z0-9-]{0,31}")
_NUMBER: Final = pattern(r"[1-9][0-9]{0,12}")
_SIGNATURE: Final = pattern(r"[0-9a-f]{64}")


class UrlFault(StrEnum):
    """Why a URL is not honoured."""

    MALFORMED = "URL_MALFORMED"
    """Not written as `sign` writes it."""
    UNKNOWN_KEY = "URL_UNKNOWN_KEY"
    ALTERED = "URL_ALTERED"
    """The MAC does not fit: something in it, its path included, is not what was signed."""
    OTHER_METHOD = "URL_OTHER_METHOD"
    OTHER_HOST = "URL_OTHER_HOST"
    OTHER_TENANT = "URL_OTHER_TENANT"
    OTHER_CONTENT = "URL_OTHER_CONTENT"
    EXPIRED = "URL_EXPIRED"
    TOO_LONG_LIVED = "URL_TOO_LONG_LIVED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a URL allows. Refuses, with `InvalidInput`, fields that could be written in more than one way."""

    method: str
    host: str
    path: str
    expires_s: int
    """The first second, since 1970, at which the URL is no longer valid."""
    tenant: str
    digest: bytes
    disposition: str

    def __post_init__(self) -> None:
        if fault := _access_fault(self):
            raise InvalidInput(f"no URL can be signed for this: {fault}")


@dataclass(frozen=True, slots=True, repr=False)
class UrlKey:
    """A secret with the name by which URLs refer to it; the secret is never shown."""

    key_id: str
    secret: bytes

    def __post_init__(self) -> None:
        if type(self.key_id) is not str or _KEY_ID.fullmatch(self.key_id) is None:
            raise InvalidInput(f"a key id is up to 32 of a-z, 0-9 and -, not {show(self.key_id)}")
        if type(self.secret) is not bytes or len(self.secret) < SECRET_BYTES_MIN:
            raise InvalidInput(f"a secret for URLs has at least {SECRET_BYTES_MIN} bytes")

    def __repr__(self) -> str:
        return f"UrlKey({self.key_id!r})"


def sign(access: Access, key: UrlKey) -> str:
    """The query string that makes a URL of the host and path; it goes behind the ``?`` as it is."""
    return f"{_claims(access, key.key_id)}&signature={_mac(access, key).hex()}"


def check(  # noqa: PLR0913 - a request has this many parts, and each of them can be lied about
    query: str,
    *,
    method: str,
    host: str,
    path: str,
    tenant: str,
    digest: bytes,
    keys: Mapping[str, UrlKey],
    now_s: int,
) -> Access | Refused:
    """Whether a request may have what it asks for.

    ``query`` is the raw query string and ``path`` the raw path, as they stood in the request. ``tenant`` and ``digest`` are
    those of the content that the server is about to send. ``keys`` holds every key that is still honoured, by its id: the new
    one that signs and old ones until their last URL has expired.
    """
    parsed = _parse(query, path)
    if parsed is None:
        return _refused(UrlFault.MALFORMED, "the URL is not written as this server writes its URLs")
    access, key_id, signature = parsed
    key = keys.get(key_id)
    if key is None:
        return _refused(UrlFault.UNKNOWN_KEY, "the URL was signed with a key that is not honoured")
    if not hmac.compare_digest(_mac(access, key), signature):
        return _refused(UrlFault.ALTERED, "the URL was altered, or is used at another path than it was made for")
    if access.method != method:
        return _refused(UrlFault.OTHER_METHOD, f"the URL was made for {access.method}")
    if access.host != host.lower():
        return _refused(UrlFault.OTHER_HOST, "the URL was made for another host")
    if access.tenant != tenant:
        return _refused(UrlFault.OTHER_TENANT, "the URL was made for another tenant")
    if access.digest != digest:
        return _refused(UrlFault.OTHER_CONTENT, "the URL was made for other content")
    if access.expires_s <= now_s:
        return _refused(UrlFault.EXPIRED, "the URL has expired; ask for a new one")
    if access.expires_s - now_s > LIFETIME_S_MAX:
        return _refused(UrlFault.TOO_LONG_LIVED, f"the URL is valid for longer than {LIFETIME_S_MAX} seconds")
    return access


def _mac(access: Access, key: UrlKey) -> bytes:
    signed = [getattr(access, each.name) for each in fields(Access)]
    return hmac.digest(key.secret, LABEL + encode([*signed, key.key_id]), "sha256")


def _claims(access: Access, key_id: str) -> str:
    said = {
        "disposition": access.disposition,
        "digest": digest_text(access.digest),
        "expires": str(access.expires_s),
        "host": access.host,
        "key": key_id,
        "method": access.method,
        "tenant": access.tenant,
    }
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in said.items())


def _parse(query: str, path: str) -> tuple[Access, str, bytes] | None:
    """The claims of a query, its key id and its MAC; None for anything that `sign` does not write."""
    if type(query) is not str or len(query) > QUERY_CHARS_MAX or not query.isascii():
        return None
    claims, mark, signature = query.rpartition("&signature=")
    if not mark or _SIGNATURE.fullmatch(signature) is None:
        return None
    said = dict(part.partition("=")[::2] for part in claims.split("&"))
    try:
        read = {name: unquote_to_bytes(value).decode() for name, value in said.items()}
        if _NUMBER.fullmatch(read["expires"]) is None:
            return None
        access = Access(
            method=read["method"],
            host=read["host"],
            path=path,
            expires_s=int(read["expires"]),
            tenant=read["tenant"],
            digest=parse_digest(read["digest"]),
            disposition=read["disposition"],
        )
        key_id = read["key"]
    except (KeyError, UnicodeDecodeError, InvalidInput):
        return None
    if _claims(access, key_id) != claims:
        return None
    return access, key_id, bytes.fromhex(signature)


def _access_fault(access: Access) -> str | None:
    if access.method not in METHODS:
        return f"the method must be one of {', '.join(METHODS)}"
    if type(access.host) is not str or _HOST.fullmatch(access.host) is None or ".." in access.host:
        return "the host must be a lower-case ASCII name, with a port if there is one"
    if type(access.path) is not str or _PATH.fullmatch(access.path) is None:
        return "the path must be plain segments without escapes but %2F, dots in front or empty ones"
    if type(access.expires_s) is not int or not 0 < access.expires_s <= EXPIRES_S_MAX:
        return f"the expiry must be a second from 1 to {EXPIRES_S_MAX}"
    if access.disposition not in DISPOSITIONS:
        return f"the disposition must be one of {', '.join(DISPOSITIONS)}"
    return id_fault("tenant", access.tenant) or digest_fault("digest", access.digest)


def _refused(fault: UrlFault, message: str) -> Refused:
    return Refused(REFUSAL_CODE, message, {"fault": fault.value})
