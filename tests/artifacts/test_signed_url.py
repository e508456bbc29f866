"""Signed URLs: each opens one artifact to one tenant for a while, and nothing can be made of it that was not signed."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.artifacts.signed_url import (
    LABEL,
    LIFETIME_S_MAX,
    Access,
    UrlFault,
    UrlKey,
    check,
    sign,
)
from detent.canon import encode, sha256
from detent.errors import InvalidInput, Refused

NOW = 1_800_000_000
DIGEST = sha256(b"artifact")
KEY = UrlKey("2027-01", bytes(range(32)))
OLD = UrlKey("2026-12", bytes(range(1, 33)))
KEYS = {key.key_id: key for key in (KEY, OLD)}
ACCESS = Access(
    method="GET",
    host="files.example.org:8443",
    path="/v1/artifacts/plot.png",
    expires_s=NOW + 600,
    tenant="team a/ü&=%",
    digest=DIGEST,
    disposition="inline",
)
QUERY = sign(ACCESS, KEY)
CLAIMS, _, SIGNATURE = QUERY.rpartition("&signature=")


def asked(query: str = QUERY, **said: Any) -> Access | UrlFault:
    """The answer to a request that is as it should be, but for what is said."""
    request: dict[str, Any] = {
        "method": ACCESS.method,
        "host": ACCESS.host,
        "path": ACCESS.path,
        "tenant": ACCESS.tenant,
        "digest": ACCESS.digest,
        "keys": KEYS,
        "now_s": NOW,
    }
    answer = check(query, **(request | said))
    if isinstance(answer, Refused):
        return UrlFault(str(answer.details["fault"]))
    return answer


def signed(claims: str, key: UrlKey = KEY) -> str:
    """Claims with a signature from somewhere else."""
    return f"{claims}&signature={hmac.digest(key.secret, claims.encode(), 'sha256').hex()}"


def test_a_url_is_honoured_as_it_was_made_and_says_what_it_allows() -> None:
    """JOB-054"""
    assert asked() == ACCESS


def test_the_mac_covers_every_field_under_a_label_of_its_own() -> None:
    """Written out, so that nothing can be left out of it or change its place unnoticed."""
    signed_list = ["GET", ACCESS.host, ACCESS.path, NOW + 600, ACCESS.tenant, DIGEST, "inline", "2027-01"]
    expected = hmac.new(KEY.secret, b"detent/signed-url/v1\0" + encode(signed_list), hashlib.sha256).hexdigest()
    assert expected == SIGNATURE
    assert LABEL.endswith(b"\0")
    assert len(fields(Access)) == 7


def test_a_url_is_valid_until_its_second_and_not_in_it() -> None:
    """JOB-054"""
    assert asked(now_s=NOW + 599) == ACCESS
    assert asked(now_s=NOW + 600) is UrlFault.EXPIRED
    assert asked(now_s=NOW + 10**9) is UrlFault.EXPIRED


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"method": "HEAD"}, UrlFault.OTHER_METHOD),
        ({"method": "DELETE"}, UrlFault.OTHER_METHOD),
        ({"method": "get"}, UrlFault.OTHER_METHOD),
        ({"host": "files.example.org"}, UrlFault.OTHER_HOST),
        ({"host": "evil.example.org:8443"}, UrlFault.OTHER_HOST),
        ({"host": "files.example.org:8443."}, UrlFault.OTHER_HOST),
        ({"host": "files。example.org:8443"}, UrlFault.OTHER_HOST),
        ({"host": "ﬁles.example.org:8443"}, UrlFault.OTHER_HOST),
        ({"host": ""}, UrlFault.OTHER_HOST),
        ({"tenant": "team b"}, UrlFault.OTHER_TENANT),
        ({"tenant": "team a/ü&=%25"}, UrlFault.OTHER_TENANT),
        ({"digest": sha256(b"other")}, UrlFault.OTHER_CONTENT),
        ({"path": "/v1/artifacts/plot.svg"}, UrlFault.ALTERED),
        ({"path": "/v1/artifacts/Plot.png"}, UrlFault.ALTERED),
    ],
)
def test_a_url_is_of_no_use_for_another_request(said: dict[str, Any], fault: UrlFault) -> None:
    """JOB-054"""
    assert asked(**said) is fault


def test_a_host_is_the_same_in_capitals() -> None:
    assert asked(host="Files.Example.ORG:8443") == ACCESS


@pytest.mark.parametrize(
    "path",
    [
        "/v1/artifacts/../artifacts/plot.png",
        "/v1/./artifacts/plot.png",
        "/v1//artifacts/plot.png",
        "//v1/artifacts/plot.png",
        "/v1/artifacts/plot.png/",
        "/v1/artifacts/plot%2Epng",
        "/v1/artifacts%2fplot.png",
        "/v1/artifacts/%2e%2e/plot.png",
        "/v1\\artifacts\\plot.png",
        "/v1/artifacts/plot.png;a=b",
        "/v1/artifacts/plot.png\0",
        "/v1/artifacts/plot.png\n",
        "/v1/artifacts/plöt.png",
        "v1/artifacts/plot.png",
        "/",
        "",
        "/" + "a/" * 5000,
    ],
)
def test_a_path_that_could_be_read_in_two_ways_is_refused(path: str) -> None:
    assert asked(path=path) is UrlFault.MALFORMED
    with pytest.raises(InvalidInput):
        replace(ACCESS, path=path)


ALTERED = {
    "disposition": "attachment",
    "digest": f"sha256:{sha256(b'other').hex()}",
    "expires": str(NOW + 601),
    "host": "evil.example.org",
    "key": "2026-12",
    "method": "HEAD",
    "tenant": "team b",
}


@pytest.mark.parametrize("name", ALTERED)
def test_a_url_with_any_claim_altered_is_refused(name: str) -> None:
    """JOB-054: without a word about which one it was."""
    said = dict(parse_qsl(CLAIMS, strict_parsing=True)) | {name: ALTERED[name]}
    query = urlencode(said) + "&signature=" + SIGNATURE
    request = {"method": said["method"], "host": said["host"], "tenant": said["tenant"]}
    assert asked(query, **request) in {UrlFault.ALTERED, UrlFault.MALFORMED}
    access = replace(
        ACCESS,
        **request,
        expires_s=int(said["expires"]),
        digest=bytes.fromhex(said["digest"][7:]),
        disposition=said["disposition"],
    )
    well_written = sign(access, KEYS[said["key"]]).rpartition("&")[0] + "&signature=" + SIGNATURE
    assert asked(well_written, **request, digest=access.digest) is UrlFault.ALTERED


@pytest.mark.parametrize("place", range(64))
def test_a_signature_with_any_digit_altered_is_refused(place: int) -> None:
    digit = "0" if SIGNATURE[place] != "0" else "1"
    assert asked(f"{CLAIMS}&signature={SIGNATURE[:place]}{digit}{SIGNATURE[place + 1 :]}") is UrlFault.ALTERED


@pytest.mark.parametrize(
    "query",
    [
        "",
        "&",
        CLAIMS,
        f"{CLAIMS}&signature=",
        f"{CLAIMS}&signature={SIGNATURE[:-1]}",
        f"{CLAIMS}&signature={SIGNATURE[:32]}",
        f"{CLAIMS}&signature={SIGNATURE}00",
        f"{CLAIMS}&signature={SIGNATURE.upper()}",
        f"{CLAIMS}&signature={SIGNATURE}\n",
        f"{CLAIMS}&signature=%{ord(SIGNATURE[0]):02x}{SIGNATURE[1:]}",
        f"?{QUERY}",
        f"{QUERY}&",
        f"&{QUERY}",
        f"{QUERY}#fragment",
        f"{QUERY}&signature={SIGNATURE}",
        f"signature={SIGNATURE}&{QUERY}",
        f"signature={SIGNATURE}&{CLAIMS}",
        f"{QUERY}&disposition=attachment",
        f"disposition=attachment&{QUERY}",
        f"{CLAIMS}&disposition=inline&signature={SIGNATURE}",
        f"{CLAIMS}&extra=1&signature={SIGNATURE}",
        QUERY.replace("&", ";"),
        QUERY.replace("disposition", "Disposition"),
        QUERY.replace("disposition", "dispositio%6e"),
        QUERY.replace("disposition=inline", "disposition=inlin%65"),
        QUERY.replace("disposition=inline", "disposition=inline%00"),
        QUERY.replace("%2F", "%2f"),
        QUERY.replace("%2F", "/"),
        QUERY.replace("%20", "+"),
        QUERY.replace("%20", " "),
        QUERY.replace("%C3%BC", "%FC"),
        QUERY.replace("%C3%BC", "ü"),
        QUERY.replace("sha256%3A", "SHA256%3A"),
        QUERY.replace("sha256%3A", "md5%3A"),
        QUERY.replace("sha256%3A", "sha256:"),
        QUERY.replace(DIGEST.hex(), DIGEST.hex().upper()),
        QUERY.replace(DIGEST.hex(), DIGEST.hex()[:-2]),
        QUERY.replace("method=GET", "method=get"),
        QUERY.replace("method=GET", "method=DELETE"),
        QUERY.replace("host=files", "host=Files"),
        QUERY.replace("host=files", "host=%EF%AC%81les"),
        QUERY.replace("expires=", "expires=+"),
        QUERY.replace("expires=", "expires=0"),
        QUERY.replace("expires=", "expires=-"),
        QUERY.replace("expires=", "expires=%20"),
        QUERY.replace(f"expires={NOW + 600}", "expires="),
        QUERY.replace(f"expires={NOW + 600}", "expires=1e12"),
        QUERY.replace(f"expires={NOW + 600}", "expires=0x7fffffff"),
        QUERY.replace(f"expires={NOW + 600}", f"expires={2**64}"),
        QUERY.replace(f"expires={NOW + 600}", f"expires={'9' * 4000}"),
        QUERY.replace(f"expires={NOW + 600}", f"expires={'9' * 13}"),
        QUERY.replace(f"expires={NOW + 600}", "expires=%D9%A1%D9%A2"),
        QUERY.replace(f"expires={NOW + 600}", f"expires={NOW + 600}.0"),
        QUERY.replace(f"expires={NOW + 600}", "expires=NaN"),
        QUERY.replace("team", "team\ud800"),
        "a" * 100_000,
        "&" * 4_000 + QUERY,
    ],
    ids=range(57),
)
def test_a_url_written_in_any_other_way_is_refused(query: str) -> None:
    """JOB-054: twice, reordered, escaped otherwise, cut, overflowing: there is one way to write it."""
    assert query != QUERY
    assert asked(query) is UrlFault.MALFORMED


@pytest.mark.parametrize("found", ["%25", "%C3%BC"])
def test_a_tenant_that_only_looks_the_same_is_another(found: str) -> None:
    """Escaped twice, or composed otherwise: well written, and not what was signed."""
    query = QUERY.replace(found, {"%25": "%2525", "%C3%BC": "u%CC%88"}[found])
    assert query != QUERY
    assert asked(query) is UrlFault.ALTERED


def test_claims_in_another_order_are_refused_even_when_the_order_is_all_there_is_to_it() -> None:
    parts = CLAIMS.split("&")
    for place in range(len(parts) - 1):
        swapped = [*parts[:place], parts[place + 1], parts[place], *parts[place + 2 :]]
        assert asked("&".join(swapped) + f"&signature={SIGNATURE}") is UrlFault.MALFORMED


@pytest.mark.parametrize("name", ALTERED)
def test_a_claim_that_is_missing_or_empty_is_refused(name: str) -> None:
    parts = CLAIMS.split("&")
    without = "&".join(part for part in parts if not part.startswith(f"{name}="))
    empty = "&".join(f"{name}=" if part.startswith(f"{name}=") else part for part in parts)
    assert asked(f"{without}&signature={SIGNATURE}") is UrlFault.MALFORMED
    assert asked(f"{empty}&signature={SIGNATURE}") in {UrlFault.MALFORMED, UrlFault.UNKNOWN_KEY}


def test_a_signature_over_the_text_or_by_another_secret_is_refused() -> None:
    assert asked(signed(CLAIMS)) is UrlFault.ALTERED
    other = UrlKey(KEY.key_id, bytes(32))
    assert asked(sign(ACCESS, other)) is UrlFault.ALTERED


def test_keys_change_by_their_id_and_an_old_one_is_honoured_while_it_is_kept() -> None:
    query = sign(ACCESS, OLD)
    assert asked(query) == ACCESS
    assert asked(query, keys={KEY.key_id: KEY}) is UrlFault.UNKNOWN_KEY
    assert asked(query, keys={}) is UrlFault.UNKNOWN_KEY
    # The id is signed too: the same secret under another name makes another URL.
    renamed = UrlKey("renamed", OLD.secret)
    assert asked(query.replace("key=2026-12", "key=renamed"), keys={"renamed": renamed}) is UrlFault.ALTERED


@pytest.mark.parametrize("seconds", [LIFETIME_S_MAX + 1, 10**9, 2**40 - NOW])
def test_a_url_that_lives_too_long_is_refused_however_it_is_signed(seconds: int) -> None:
    assert asked(sign(replace(ACCESS, expires_s=NOW + seconds), KEY)) is UrlFault.TOO_LONG_LIVED
    longest = replace(ACCESS, expires_s=NOW + LIFETIME_S_MAX)
    assert asked(sign(longest, KEY)) == longest


@pytest.mark.parametrize(
    "said",
    [
        {"method": "DELETE"},
        {"method": "GET\n"},
        {"host": "Files.example.org"},
        {"host": "fíles.example.org"},
        {"host": "a..b"},
        {"host": "host/path"},
        {"host": "user@host"},
        {"host": "host:0"},
        {"host": "host:123456"},
        {"host": "-host"},
        {"host": ""},
        {"expires_s": 0},
        {"expires_s": -1},
        {"expires_s": 2**64},
        {"expires_s": True},
        {"expires_s": 1.5},
        {"expires_s": "1"},
        {"tenant": ""},
        {"tenant": "a\nb"},
        {"tenant": "x" * 10_000},
        {"digest": DIGEST[:31]},
        {"digest": DIGEST.hex()},
        {"disposition": "INLINE"},
        {"disposition": "inline; filename=x"},
    ],
)
def test_what_could_be_written_in_two_ways_is_not_signed(said: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        replace(ACCESS, **said)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]:8080", "a-b.example.org"])
def test_plain_hosts_are_signed(host: str) -> None:
    access = replace(ACCESS, host=host)
    assert asked(sign(access, KEY), host=host) == access


def test_a_secret_that_is_short_is_refused_and_a_good_one_is_never_shown() -> None:
    with pytest.raises(InvalidInput):
        UrlKey("k", bytes(31))
    with pytest.raises(InvalidInput):
        UrlKey("k&key=x", bytes(32))
    assert repr(KEY) == "UrlKey('2027-01')"
    assert KEY.secret.hex() not in repr(KEY)


text = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")), min_size=1, max_size=12
)
plain = st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True)
accesses = st.builds(
    Access,
    method=st.sampled_from(["GET", "HEAD"]),
    host=plain,
    path=plain.map(lambda word: f"/{word}"),
    expires_s=st.integers(NOW + 1, NOW + LIFETIME_S_MAX),
    tenant=text,
    digest=st.sampled_from([DIGEST, bytes(32)]),
    disposition=st.sampled_from(["inline", "attachment"]),
)


@given(accesses)
def test_every_url_that_is_signed_is_honoured(access: Access) -> None:
    query = sign(access, KEY)
    assert query.isascii()
    request = {"method": access.method, "host": access.host, "path": access.path, "tenant": access.tenant}
    assert asked(query, **request, digest=access.digest) == access


@given(accesses, accesses)
def test_no_two_accesses_share_a_signature(one: Access, other: Access) -> None:
    """Delimiters in a field, or a field that ends where the next begins, give nothing to move."""
    assert (sign(one, KEY) == sign(other, KEY)) == (one == other)
    assert (sign(one, KEY)[-64:] == sign(other, KEY)[-64:]) == (one == other)


def test_a_character_cannot_move_from_one_field_to_the_next() -> None:
    first = replace(ACCESS, host="ab", path="/c", tenant="d")
    second = replace(ACCESS, host="a", path="/bc", tenant="d")
    third = replace(ACCESS, tenant="a&disposition=attachment&x=")
    assert len({sign(access, KEY)[-64:] for access in (first, second, third)}) == 3
    assert asked(sign(third, KEY), tenant=third.tenant) == third


@given(st.text(max_size=300))
def test_no_text_whatever_is_honoured_or_breaks_the_check(query: str) -> None:
    assert asked(query) is UrlFault.MALFORMED
    assert asked(f"{query}&signature={SIGNATURE}") is UrlFault.MALFORMED
