"""Bytes that mean one thing: deterministic CBOR, strict JSON, digests, signatures, Philox, ticks, tolerances.

Nothing here reads a clock, draws a random number or touches a file, and nothing here knows what a job is.
"""

from __future__ import annotations

from detent.canon.cbor import (
    ITEM_BYTES_MAX,
    MAX_DEPTH,
    RECORD_BYTES_MAX,
    NotCanonical,
    decode,
    decode_trusted,
    encode,
    encode_trusted,
)
from detent.canon.crypto import (
    DIGEST_BYTES,
    BadKey,
    SigningKey,
    check_public_key,
    digest,
    digest_text,
    key_id_of,
    parse_digest,
    sha256,
    verify,
)
from detent.canon.numbers import (
    EPS_DENOM,
    EPS_EQ,
    UINT64_MAX,
    add_uint64,
    approx_equal,
    bucket,
    check_uint64,
    compare,
    ms_to_ticks,
    rank_key,
    sub_uint64,
    tick_to_iso,
)
from detent.canon.philox import PRNG_FAMILY, Philox, philox4x32_10, seed_to_key
from detent.canon.strict_json import (
    NotStrictJson,
    json_decode,
    json_decode_trusted,
    json_digest,
    json_encode,
    json_encode_trusted,
)

__all__ = [
    "DIGEST_BYTES",
    "EPS_DENOM",
    "EPS_EQ",
    "ITEM_BYTES_MAX",
    "MAX_DEPTH",
    "PRNG_FAMILY",
    "RECORD_BYTES_MAX",
    "UINT64_MAX",
    "BadKey",
    "NotCanonical",
    "NotStrictJson",
    "Philox",
    "SigningKey",
    "add_uint64",
    "approx_equal",
    "bucket",
    "check_public_key",
    "check_uint64",
    "compare",
    "decode",
    "decode_trusted",
    "digest",
    "digest_text",
    "encode",
    "encode_trusted",
    "json_decode",
    "json_decode_trusted",
    "json_digest",
    "json_encode",
    "json_encode_trusted",
    "key_id_of",
    "ms_to_ticks",
    "parse_digest",
    "philox4x32_10",
    "rank_key",
    "seed_to_key",
    "sha256",
    "sub_uint64",
    "tick_to_iso",
    "verify",
]
