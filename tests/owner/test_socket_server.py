"""The owner's socket and its clients: whatever is sent, the owner lives on and others are served."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from detent.canon import SigningKey, sha256
from detent.errors import HomeError, InvalidInput, Refused, StoreUnavailable
from detent.kernel import (
    MANIFEST_LABEL,
    AdvanceTick,
    Cancel,
    ChangeTrust,
    Claim,
    Command,
    RaiseEpoch,
    RefusedManifest,
    Resume,
    Submit,
    VerifiedManifest,
)
from detent.kernel.commands import _NAMES, command_to_list
from detent.ledger import sign_manifest
from detent.owner import socket_messages
from detent.owner import socket_server as service_module
from detent.owner.session import Session
from detent.owner.socket_client import Connection
from detent.owner.socket_messages import CLIENT_COMMANDS, FRAME_BYTES_MAX, OWNER_COMMANDS, frame, read_message
from tests.kernel.builders import config, manifest
from tests.owner.homes import House, one
from tests.owner.rig import cancel

WAIT_SECONDS = 60


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
def owner(house: House) -> Iterator[Session]:
    with house.session() as session:
        yield session


class Raw:
    """A client that may send anything."""

    def __init__(self, house: House) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(WAIT_SECONDS)
        self.socket.connect(str(house.home.socket))
        self.stream = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> dict[str, Any] | None:
        """The next message; None when the owner has hung up."""
        head = self.stream.read(4)
        if len(head) < 4:
            return None
        return read_message(self.stream.read(int.from_bytes(head, "big")))

    def ask(self, *commands: list[object], **fields: object) -> dict[str, Any]:
        message = {"op": "ask", "id": 7, "partition": 0, "commands": list(commands), "content": [], **fields}
        self.send(frame(message))
        answer = self.read()
        assert answer is not None, "the owner hung up"
        assert answer["id"] == 7
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.socket.close()


def lives(house: House, owner: Session, job_id: str = "afterwards") -> None:
    """The owner serves its own process and others."""
    assert owner.owned is not None
    assert not owner.owned.failed, owner.owned.owners[0].failure
    assert one(owner, house.submit(job_id)).ok
    with house.session() as client:
        assert not client.owns
        assert one(client, cancel(job_id)).ok


# -- what is no message ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        frame(7),
        frame([1, 2]),
        b"\x00\x00\x00\x01\xff",
        b"\x00\x00\x00\x02\x18\x01",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x04\xa1\x01\x61\x61",
        b"\x00\x00\x00\x05" + b"\x9f\x01\xff\x00\x00",
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff" + b"x" * 100,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=[
        "number",
        "list",
        "garbage",
        "not canonical",
        "empty",
        "number as key",
        "indefinite",
        "too large",
        "huge",
        "http",
    ],
)
def test_what_is_no_message_is_answered_with_an_error_and_the_end(house: House, owner: Session, data: bytes) -> None:
    with Raw(house) as raw:
        raw.send(data)
        answer = raw.read()
        assert answer is not None
        assert answer["error"]["code"] == "INVALID_PARAMS"
        assert raw.read() is None
    lives(house, owner)


def test_a_client_that_hangs_up_in_the_middle_of_a_message_disturbs_no_other(house: House, owner: Session) -> None:
    for data in (b"", b"\x00", b"\x00\x00\x00\x09", b"\x00\x00\x00\x09\xa1"):
        with Raw(house) as raw:
            raw.send(data)
    lives(house, owner)


@pytest.mark.parametrize("begun", [b"\x00", b"\x00\xff\xff\xff", b"\x00\xff\xff\xff" + b"x" * 1_000_000])
def test_a_message_that_is_begun_and_not_ended_is_given_up_on(
    house: House, owner: Session, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """X-172: it holds up to 16 MiB of the owner's memory. A connection that is silent between messages stays."""
    with Raw(house) as silent:
        with monkeypatch.context() as patched, Raw(house) as raw:
            patched.setattr(service_module, "FRAME_SECONDS_MAX", 0.05)
            raw.send(begun)
            answer = raw.read()
            assert answer is not None
            assert "begun and not complete" in answer["error"]["message"]
            assert raw.read() is None
        silent.send(frame({"op": "hello", "id": 1}))
        assert silent.read() is not None
    lives(house, owner)


def test_a_client_that_hangs_up_before_its_answer_disturbs_no_other(house: House, owner: Session) -> None:
    for number in range(20):
        with Raw(house) as raw:
            command = command_to_list(house.submit(f"job-{number}"))
            raw.send(frame({"op": "ask", "id": 1, "partition": 0, "commands": [command]}))
    lives(house, owner)


def test_random_bytes_disturb_no_client(house: House, owner: Session) -> None:
    draw = random.Random(4711)
    for _ in range(60):
        data = draw.randbytes(draw.randint(1, 200))
        with Raw(house) as raw:
            raw.send(len(data).to_bytes(4, "big") + data)
            raw.socket.shutdown(socket.SHUT_WR)
            raw.read()
    lives(house, owner)


# -- what is no request ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "stop"},
        {"op": None},
        {"partition": 1},
        {"partition": -1},
        {"partition": "0"},
        {"partition": True},
        {"commands": None},
        {"commands": 7},
        {"commands": ["cancel"]},
        {"commands": [[]]},
        {"commands": [["cancel"]]},
        {"commands": [["cancel", 0]]},
        {"commands": [["no-such-command", 0]]},
        {"commands": [[["cancel"], 0]]},
        {"commands": [["cancel", 0, *[None] * 40]]},
        {"content": 7},
        {"content": [7]},
        {"content": [[b"x"]]},
        {"content": [[b"x", b"y"]]},
        {"content": [["x", "y"]]},
        {"content": [[sha256(b"one"), b"two"]]},
        {"content": [[sha256(b"x" * 20_000), b"x" * 20_000]]},
        {"commands": [["submit", 0, 1, 2, 3, 4, 5]]},
        {"commands": [["submit", 0, b"", b"", None, None, None]]},
        {"commands": [["submit", 0, b"", b"", b"", None]]},
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_goes_on(
    house: House, owner: Session, fields: dict[str, object]
) -> None:
    with Raw(house) as raw:
        answer = raw.ask(**{"commands": [], **fields})
        assert answer["error"]["code"] in {"INVALID_PARAMS", "MANIFEST_SCHEMA_INVALID"}, answer
        again = raw.ask(command_to_list(cancel("nobody")))
        assert again["answers"][0][3][0] == "UNKNOWN_JOB"
    lives(house, owner)


FORBIDDEN: list[Command] = [
    RaiseEpoch(0, 99, bytes(32), config().encode()),
    ChangeTrust(0, 2, bytes(32), b"mine"),
    AdvanceTick(2**63),
    Resume(2**63, ()),
]


@pytest.mark.parametrize("command", FORBIDDEN, ids=lambda command: type(command).__name__)
def test_epoch_trust_and_time_are_the_owners_own(house: House, owner: Session, command: Command) -> None:
    before = house.size()
    with Raw(house) as raw:
        answer = raw.ask(command_to_list(command))
        assert answer["error"]["code"] == "INVALID_PARAMS"
    assert house.size() == before
    lives(house, owner)


@pytest.mark.parametrize("command", FORBIDDEN, ids=lambda command: type(command).__name__)
def test_the_owners_own_cannot_be_asked_for_in_its_own_process_either(
    house: House, owner: Session, command: Command
) -> None:
    with pytest.raises(InvalidInput, match="owner's own"):
        owner.ask([house.submit(), command])
    assert house.state() is None
    lives(house, owner)


def test_every_command_is_either_for_clients_or_the_owners_own() -> None:
    """A new command must be put on one side or the other."""
    assert {cls for cls, name in _NAMES.items() if name not in CLIENT_COMMANDS} == set(OWNER_COMMANDS)
    assert {type(command) for command in FORBIDDEN} == set(OWNER_COMMANDS)


def test_the_tick_of_a_client_means_nothing(house: House, owner: Session) -> None:
    one(owner, house.submit())
    tick = owner.owned.owners[0]._kernel.tick if owner.owned else 0
    with Raw(house) as raw:
        answer = raw.ask(["claim", 2**63, "worker-1", 1])
        assert len(answer["answers"][0][4]) == 1
    with house.reader() as reader:
        assert reader.head(0).last_tick < tick + 60_000


# -- manifests ---------------------------------------------------------------------------------------------------------


def test_a_manifest_signed_by_a_stranger_is_refused(house: House, owner: Session) -> None:
    with house.session() as client:
        forged = sign_manifest(manifest("job-1"), SigningKey(b"\x99" * 32))
        answer = one(client, Submit(0, forged))
        assert answer.refusal is not None
        assert answer.refusal.code == "MANIFEST_SIGNATURE_INVALID"
    assert house.state() is None
    lives(house, owner)


def test_a_manifest_changed_after_it_was_signed_is_refused(house: House, owner: Session) -> None:
    good = house.verified("job-1", priority=1)
    other = manifest("job-1", priority=10)
    with house.session() as client:
        for forged in (
            VerifiedManifest(other, other.body(), good.key_id, good.signature),
            VerifiedManifest(good.manifest, good.body, good.key_id, bytes(64)),
            VerifiedManifest(good.manifest, good.body, good.key_id, b"short"),
            VerifiedManifest(good.manifest, good.body, bytes(32), good.signature),
        ):
            answer = one(client, Submit(0, forged))
            assert answer.refusal is not None
            assert answer.refusal.code == "MANIFEST_SIGNATURE_INVALID"
        assert one(client, Submit(0, good)).ok
    lives(house, owner)


def test_a_key_of_another_role_signs_no_manifest(house: House, owner: Session) -> None:
    (path,) = (house.home.path / "keys").glob("transition-*.key")
    forged = sign_manifest(manifest("job-1"), SigningKey(bytes.fromhex(path.read_text())))
    with house.session() as client:
        answer = one(client, Submit(0, forged))
    assert answer.refusal is not None
    assert answer.refusal.code == "MANIFEST_SIGNATURE_INVALID"


def test_a_forged_manifest_does_not_disturb_the_commands_beside_it(house: House, owner: Session) -> None:
    forged = Submit(0, sign_manifest(manifest("job-2"), SigningKey(b"\x99" * 32)))
    with house.session() as client:
        first, second, third = client.ask([house.submit("job-1"), forged, house.submit("job-3")])
    assert first.ok
    assert second.refusal is not None
    assert third.ok
    assert [house.state(f"job-{n}") for n in (1, 2, 3)] == ["QUEUED", None, "QUEUED"]


# -- ill-typed fields --------------------------------------------------------------------------------------------------

VALUES: list[object] = [
    None,
    True,
    -1,
    2**63,
    2**64 - 1,
    "",
    "x" * 10_000,
    "\x00",
    b"",
    bytes(32),
    [],
    [[]],
    {},
    {"a": 1},
]


def test_no_field_of_any_command_can_end_the_owner(house: House, owner: Session) -> None:
    """Every field of every command that clients may send, with every kind of wrong value."""
    one(owner, house.submit())
    (grant,) = one(owner, Claim(0, "worker-1")).grants
    lease = grant.lease_id
    samples: list[list[object]] = [
        command_to_list(house.submit("job-2")),
        ["transition", 0, "tenant-a", "job-1", 0, 1, "RUNNING", "SUCCEEDED", b"evidence", None, None],
        ["heartbeat", 0, "job-1", lease, False],
        ["cancel", 0, "tenant-a", "nobody", "CANCELLED_BY_USER", None, None],
        ["claim", 0, "worker-1", 1],
        ["dispatch", 0, 1],
        ["order", 0, "replica", b"\xa0"],
        ["finish", 0, "nobody", lease, "result", True, "COMPLETED", None, None],
        ["usage", 0, "job-1", lease, 0, 0, 0, 0, 0, 0],
        ["run_start", 0, "tenant-a", "run-1", "name", bytes(32), bytes(32), bytes(32), "op"],
        ["step_reuse", 0, "run-1", "step", "job-1", bytes(32)],
        ["run_reuse", 0, "run-1", "run-0", ["step"], bytes(32)],
        ["run_end", 0, "run-1", "completed"],
        ["erase", 0, [bytes(32)], 0, "REASON"],
        ["operate", 0, "p_ann", "dtk_1", "job.cancel", "job", "job-1", "OK", bytes(32), "tenant-a", None],
        ["worker_enroll", 0, "gpu-1", bytes(32), bytes(32), b"\xa0"],
        ["worker_retire", 0, "gpu-1", "RETIRED_BY_USER"],
    ]
    assert {str(sample[0]) for sample in samples} == CLIENT_COMMANDS
    with Raw(house) as raw:
        for sample in samples:
            for place in range(2, len(sample)):
                for value in VALUES:
                    answer = raw.ask([*sample[:place], value, *sample[place + 1 :]])
                    assert "answers" in answer or "error" in answer
                    assert answer.get("error", {}).get("code") != "INVARIANT_VIOLATION", (sample[0], place, value)
    lives(house, owner)


# -- readers that do not read ------------------------------------------------------------------------------------------


def test_a_client_that_does_not_read_blocks_no_other_and_is_disconnected(
    house: House, owner: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "UNSENT_BYTES_MAX", 10_000)
    with Raw(house) as raw:
        command = ["cancel", 0, "tenant-a", "nobody", "CANCELLED_BY_USER", None, None]
        message = frame({"op": "ask", "id": 1, "partition": 0, "commands": [command] * 50})

        def send() -> None:
            # However fast it sends, the owner has answered more than it may keep long before this is over.
            for number in range(20_000):
                raw.send(message)
                if number % 500 == 499:
                    one(owner, house.submit(f"meanwhile-{number}"))

        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send()
        lives(house, owner)


def test_a_client_that_does_not_read_does_not_keep_the_owner_from_ending(house: House) -> None:
    owner = house.session()
    with Raw(house) as raw:
        command = ["cancel", 0, "tenant-a", "nobody", "CANCELLED_BY_USER", None, None]
        message = frame({"op": "ask", "id": 1, "partition": 0, "commands": [command] * 1_000})
        for _ in range(20):
            raw.send(message)
        with house.session() as client:
            assert one(client, house.submit()).ok, "what was sent before has been answered by now"
        closing = threading.Thread(target=owner.close, daemon=True)
        closing.start()
        closing.join(WAIT_SECONDS)
        assert not closing.is_alive()


def test_an_answer_too_large_to_send_is_an_unknown_outcome_and_not_a_silence(
    house: House, owner: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-173"""
    one(owner, house.submit())
    with Raw(house) as raw:
        monkeypatch.setattr(socket_messages, "FRAME_BYTES_MAX", 300)
        raw.socket.sendall(frame({"op": "ask", "id": 7, "partition": 0, "commands": [["claim", 0, "worker-1", 1]]}))
        answer = raw.read()
    assert answer is not None
    assert answer["error"]["code"] == "OUTCOME_UNKNOWN"
    monkeypatch.undo()
    assert house.state() == "RUNNING"
    lives(house, owner)


def test_a_message_too_large_to_send_is_refused_before_it_is_sent(house: House, owner: Session) -> None:
    with house.session() as client:
        with pytest.raises(InvalidInput, match="too large"):
            client.ask([Cancel(0, "tenant-a", "x" * (FRAME_BYTES_MAX + 1))])
        assert one(client, house.submit()).ok


def test_many_requests_of_one_client_are_in_flight_side_by_side(house: House, owner: Session) -> None:
    connection = Connection.to(house.home.socket, lambda _connection: None)
    futures = [connection.ask(0, [house.submit(f"job-{n}")]) for n in range(50)]
    assert all(future.result(WAIT_SECONDS)[0].ok for future in futures)
    connection.close()
    with pytest.raises(StoreUnavailable):
        connection.ask(0, [cancel()])


def test_an_owner_of_another_version_is_told_apart(tmp_path: Path) -> None:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(tmp_path / "owner.sock"))
    server.listen()

    def answer() -> None:
        accepted, _ = server.accept()
        with accepted, accepted.makefile("rb") as stream:
            stream.read(int.from_bytes(stream.read(4), "big"))
            accepted.sendall(frame({"id": 0, "hello": {"protocol": 99, "pid": 1}}))
            stream.read()

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(HomeError, match="another version"):
        Connection.to(tmp_path / "owner.sock", lambda _connection: None)
    thread.join(WAIT_SECONDS)
    server.close()


# -- refusals ----------------------------------------------------------------------------------------------------------


def refusals(house: House) -> list[tuple[str | None, str]]:
    with house.reader() as reader:
        return [(row.job_id, row.code) for row in reader.refusals()]


def test_a_manifest_refused_at_the_socket_is_in_the_decision_log(house: House, owner: Session) -> None:
    """X-182: every refusal, under the job it was about"""
    forged = Submit(0, sign_manifest(manifest("job-2"), SigningKey(b"\x99" * 32)))
    with house.session() as client:
        answers = client.ask([house.submit("job-1"), forged, cancel("nobody")])
    assert [answer.status for answer in answers] == ["COMMITTED", "REFUSED", "REFUSED"]
    assert refusals(house) == [("nobody", "UNKNOWN_JOB"), ("job-2", "MANIFEST_SIGNATURE_INVALID")]
    with Raw(house) as raw:
        answer = raw.ask(["submit", 0, b"no manifest", bytes(32), bytes(64), None, None])
    assert answer["answers"][0][3][0] == "MANIFEST_SIGNATURE_INVALID"
    assert refusals(house)[0] == (None, "MANIFEST_SIGNATURE_INVALID")
    lives(house, owner)


def test_a_manifest_that_is_none_is_refused_though_its_signature_is_good(house: House, owner: Session) -> None:
    """X-182"""
    house.verified()
    key = house._key
    assert key is not None
    body = b"no manifest"
    with Raw(house) as raw:
        answer = raw.ask(["submit", 0, body, key.key_id, key.sign(MANIFEST_LABEL + body), None, None])
    assert answer["answers"][0][3][0] == "MANIFEST_SCHEMA_INVALID"
    assert refusals(house) == [(None, "MANIFEST_SCHEMA_INVALID")]


def test_an_unverified_manifest_is_refused_in_the_owners_process_too(house: House, owner: Session) -> None:
    """X-182"""
    bare: Any = manifest("job-1")
    refused = RefusedManifest(
        Refused("MANIFEST_SIGNATURE_INVALID", "the manifest's signature does not verify"), "job-2"
    )
    answers = owner.ask([Submit(0, bare), Submit(0, refused)])
    assert [answer.refusal.code for answer in answers if answer.refusal] == ["MANIFEST_SIGNATURE_INVALID"] * 2
    assert refusals(house) == [(f"job-{number}", "MANIFEST_SIGNATURE_INVALID") for number in (2, 1)]
    lives(house, owner)


def test_the_decision_log_is_bounded_whichever_process_fills_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-182"""
    monkeypatch.setattr("detent.store.sqlite.store.REFUSALS_KEPT_MAX", 5)
    forged = [Submit(0, sign_manifest(manifest(f"job-{n}"), SigningKey(b"\x99" * 32))) for n in range(12)]
    with house.session(), house.session() as client:
        client.ask(forged)
    assert [job_id for job_id, _ in refusals(house)] == [f"job-{n}" for n in range(11, 6, -1)]
