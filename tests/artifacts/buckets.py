"""A bucket of a test's own on the session's S3 server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from urllib.request import Request, urlopen

import obstore
from obstore.store import S3Store as Client

from detent.artifacts.s3 import S3Store

REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Server:
    """Where the S3 server listens."""

    url: str

    @property
    def variables(self) -> dict[str, str]:
        """The surroundings in which a program finds it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": REGION,
        }

    def make(self, bucket: str) -> None:
        """Make a bucket; obstore has no word for that."""
        with urlopen(Request(f"{self.url}/{bucket}", method="PUT"), timeout=30):
            pass

    def store(self, bucket: str, prefix: str = "") -> S3Store:
        """A store of artifacts in a bucket, that does not try twice."""
        return S3Store(
            bucket,
            prefix,
            config={"endpoint": self.url, "access_key_id": "k", "secret_access_key": "s", "region": REGION},
            client_options={"allow_http": True},
            retry={"max_retries": 0, "retry_timeout": timedelta(seconds=5)},
        )


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket that is there, and a client that obeys no rule of ours."""

    server: Server
    name: str

    @property
    def client(self) -> Client:
        return Client(
            self.name,
            config={"endpoint": self.server.url, "access_key_id": "k", "secret_access_key": "s", "region": REGION},
            client_options={"allow_http": True},
        )

    def store(self, prefix: str = "") -> S3Store:
        return self.server.store(self.name, prefix)

    def write(self, key: str, data: bytes) -> None:
        """Put an object behind Detent's back."""
        obstore.put(self.client, key, data)

    def keys(self) -> list[str]:
        return sorted(entry["path"] for page in obstore.list(self.client) for entry in page)
