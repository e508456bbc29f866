"""Where a server may send requests: no address inside, in whatever form it is written."""

from __future__ import annotations

import pytest

from detent.access.destinations import address_fault, read_destination, read_networks
from detent.errors import InvalidInput

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::8.8.8.8", "2002:808:808::"]
INSIDE = [
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *(
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.8",
        "192.88.99.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
    ),
    *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1", "fec0::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::127.0.0.1"),
    *(
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
    ),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_used(address: str) -> None:
    assert address_fault(address) is None


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_refused(address: str) -> None:
    assert "is not an address of the public internet" in str(address_fault(address))


@pytest.mark.parametrize("text", ["", "example.org", "1.2.3", "0x7f000001", "2130706433", "1.2.3.4.5", "[::1]"])
def test_a_text_that_is_not_an_address_is_refused(text: str) -> None:
    assert "is not an address" in str(address_fault(text))


def test_an_operator_allows_networks_by_name() -> None:
    allowed = read_networks(["127.0.0.0/8", "fd00::/8"])

    assert address_fault("127.0.0.1", allowed) is None
    assert address_fault("::ffff:127.0.0.1", allowed) is None, "judged by the address that it carries"
    assert address_fault("fd12::1", allowed) is None
    assert address_fault("10.0.0.1", allowed) is not None


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"'10\.0\.0\.1/8' is not a network"):
        read_networks(["10.0.0.1/8"])


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://example.org", ("example.org", 443, "/")),
        ("https://Example.ORG:8443/hooks?a=1&b=%20", ("example.org", 8443, "/hooks?a=1&b=%20")),
        ("https://[2606:2800::1]:444/x", ("2606:2800::1", 444, "/x")),
        ("https://93.184.216.34/", ("93.184.216.34", 443, "/")),
    ],
)
def test_a_url_is_read_into_its_parts(url: str, parts: tuple[str, int, str]) -> None:
    found = read_destination(url)

    assert (found.host, found.port, found.target) == parts


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://example.org/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "gopher://x/",
            "//example.org/",
            "example.org",
        ),
        *("https://", "https:///x", "https://user@example.org/", "https://user:pass@example.org/", "https://a@b@c/"),
        *("https://example.org/#x", "https://example.org:0/", "https://example.org:65536/", "https://example.org:/"),
        *(
            "https://exam ple.org/",
            "https://example.org/a b",
            "https://example.org/\r\nhost: x",
            "https://example.org\\@x/",
        ),
        *(
            "https://-a/",
            "https://a-/",
            "https://a_b/",
            "https://ex\u0430mple.org/",
            "https://example.org/" + "a" * 2_000,
        ),
        *("HTTPS://example.org/", "https://[::1", "https://[::1]x/", "https://[zz::1]/", "javascript:alert(1)", ""),
    ],
)
def test_a_url_in_another_form_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_destination(url)
    assert caught.value.code == "URL_REFUSED"
