"""A flood of connections is bounded where the settings say so; the rest is asked by `python -m tests.faults.floods` in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.floods import open_stream
from tests.serve.served import play, read_all, serving

pytestmark = pytest.mark.door("setting [access] connections")


def test_connections_and_streams_are_as_many_as_the_settings_say(tmp_path: Path) -> None:
    played = play(tmp_path)
    with (played.home.path / "config.toml").open("a") as settings:
        settings.write("connections = 6\nstreams_of_server = 2\n")
    with serving(played) as served:
        streams = [open_stream(served, "jobs") for _ in range(2)]
        refused = served.get("/v1/events?topics=jobs")
        assert (refused.status, refused.code) == (429, "STREAMS_FULL")
        more = [served.connect() for _ in range(4)]
        with served.connect() as one_too_many:
            assert b'"code": "CONNECTIONS_FULL"' in read_all(one_too_many)
        for connection in (*streams, *more):
            connection.close()
        assert served.get("/v1/jobs").status == 200
