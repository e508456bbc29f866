"""Starting and stopping: what is said, what is refused and with which exit code, and who owns the home."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from detent.serve.listening import Listening, bound
from tests.homes import Played
from tests.serve.served import ANSWER_SECONDS, Served, play, serving, start


def attempt(played: Played, *options: str, environment: Mapping[str, str] | None = None) -> tuple[int, Any, str]:
    """Try to start a server that must not start: exit code, the JSON document, standard error."""
    port = () if "--port" in options else ("--port", "0")
    line = [sys.executable, "-m", "detent", "serve", "--home", str(played.home.path), "-o", "json", *port, *options]
    ended = subprocess.run(
        line,
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=False,
        env={**os.environ, **played.environment, **(environment or {})},
    )
    return ended.returncode, json.loads(ended.stdout), ended.stderr


@pytest.fixture
def played(tmp_path: Path) -> Played:
    return play(tmp_path)


def test_it_says_where_it_listens_and_ends_in_order_on_a_signal(played: Played) -> None:
    with serving(played) as served:
        assert served.told["url"] == f"http://127.0.0.1:{served.port}"
        token = Path(served.told["token_file"])
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
        assert json.loads((token.parent / "address.json").read_text())["url"] == served.told["url"]
        assert served.stop(signal.SIGTERM) == 0
        assert not (token.parent / "address.json").exists()
    with serving(played) as again:
        assert again.token == served.token, "what others were given stays valid"
        assert again.stop(signal.SIGINT) == 130


def test_a_request_under_way_is_answered_before_the_end(played: Played) -> None:
    with serving(played) as served, served.connect() as connection:
        head = f"POST /v1/jobs:read HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
        connection.sendall((head + "Content-Type: application/json\r\nContent-Length: 17\r\n\r\n").encode())
        assert served.get("/healthz").status == 200  # By now the server reads the body of the other one.
        ending = threading.Thread(target=served.stop)
        ending.start()
        wait_until_refused(served)
        connection.sendall(b'{"job_ids":["a"]}')
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        ending.join()
    assert served.process.returncode == 0


def wait_until_refused(served: Served) -> None:
    """Return when the server takes no more connections."""
    while True:
        try:
            served.connect().close()
        except OSError:
            return


def test_a_second_server_on_a_home_is_refused_and_told_where_the_first_is(played: Played) -> None:
    with serving(played) as served:
        code, document, said = attempt(played, "--port", "0")
        assert (code, document["error"]["code"]) == (3, "SERVER_RUNNING")
        assert served.told["url"] in said


def test_a_port_in_use_is_refused(played: Played) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        code, document, said = attempt(played, "--port", str(port))
    assert (code, document["error"]["code"]) == (4, "ADDRESS_UNUSABLE")
    assert f"127.0.0.1:{port}" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_can_reach_is_refused_without_protection(played: Played, host: str) -> None:
    code, document, said = attempt(played, "--host", host, "--port", "0")
    assert (code, document["error"]["code"]) == (3, "ADDRESS_EXPOSED")
    assert "--tls-cert" in said


def test_it_listens_for_others_when_that_is_said_and_warns(played: Played) -> None:
    with serving(played, "--host", "0.0.0.0", "--insecure-http", "--allow-host", "jobs.example") as served:
        assert served.get("/healthz").code == "HOST_REFUSED"
        assert served.get("/healthz", headers={"Host": "jobs.example"}).status == 200
        served.process.send_signal(signal.SIGTERM)
        assert "warning: tokens and data cross the network in the clear" in served.process.communicate()[1]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--host", "not an address"), "INVALID_PARAMS"),
        (("--behind-proxy", "everything"), "INVALID_PARAMS"),
        (("--tls-cert", "cert.pem"), "INVALID_PARAMS"),
        (("--tls-cert", "none.pem", "--tls-key", "none.pem"), "INVALID_PARAMS"),
        (("--port", "65536"), "INVALID_PARAMS"),
    ],
)
def test_wrong_options_are_refused(played: Played, options: tuple[str, ...], code: str) -> None:
    status, document, _ = attempt(played, *options)
    assert (status, document["error"]["code"]) == (2, code)


def test_without_its_extra_it_says_what_to_install(played: Played, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('uvicorn', 'httptools'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "import importlib.util\n"
        "known = importlib.util.find_spec\n"
        "hidden = ('uvicorn', 'httptools')\n"
        "importlib.util.find_spec = lambda name, package=None: None if name in hidden else known(name, package)\n"
    )
    status, document, said = attempt(played, environment={"PYTHONPATH": str(tmp_path)})
    assert (status, document["error"]["code"]) == (3, "EXTRA_MISSING")
    assert "pip install 'detent[serve]'" in said


def test_a_directory_without_a_home_gets_one(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    line = [sys.executable, "-m", "detent", "serve", "--port", "0", "--workers", "0", "-o", "json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, cwd=tmp_path, env=environment, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        process.terminate()
        assert process.wait(ANSWER_SECONDS) == 0
    assert told["home"] == str(tmp_path / ".detent")
    assert (tmp_path / ".detent" / "ledger.db").exists()


def test_a_token_that_others_can_read_is_refused(played: Played) -> None:
    with serving(played) as served:
        token = Path(served.told["token_file"])
    token.chmod(0o644)
    status, document, said = attempt(played)
    assert (status, document["error"]["code"]) == (2, "HOME_INVALID")
    assert str(token) in said
    token.chmod(0o600)
    token.write_text("nonsense\n")
    assert attempt(played)[1]["error"]["code"] == "HOME_INVALID"


def test_a_home_without_an_owner_of_its_own_is_taken_over_when_the_embedded_process_ends(played: Played) -> None:
    with played.session() as embedded:
        assert embedded.owns
        served = start(played.home.path, {**os.environ, **played.environment})
        assert served.told["owner"] == "elsewhere"
        assert served.get("/readyz").json["owner"] == "elsewhere"
    try:
        while served.get("/readyz").json.get("owner") != "here":
            assert served.process.poll() is None
    finally:
        assert served.stop() == 0


def test_neither_the_package_nor_the_help_loads_the_server() -> None:
    program = (
        "import sys\n"
        "import detent\n"
        "from detent.cli.app import run\n"
        "run(['--help'])\n"
        "run(['serve', '--help'])\n"
        "found = {'uvicorn', 'httptools', 'pydantic', 'detent.serve'} & set(sys.modules)\n"
        "sys.exit(f'loaded {sorted(found)}' if found else 0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_access_log_has_a_line_for_each_request_and_no_secret(played: Played, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with serving(played, "--access-log", str(log)) as served:
        served.get("/v1/jobs?limit=7", headers={"traceparent": f"00-{'4b' * 16}-{'a7' * 8}-01"})
        served.get("/v1/jobs/secret-name", headers={"traceparent": "00-none"})
        served.get("/v1/jobs", token=None)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["route"], line["status"], line["code"]) for line in lines] == [
        ("/v1/jobs", 200, None),
        ("/v1/jobs/{job_id}", 404, "UNKNOWN_JOB"),
        ("/v1/jobs", 401, "UNAUTHENTICATED"),
    ]
    assert [line["workspace"] for line in lines] == ["local", "local", None]
    assert [line["trace_id"] for line in lines] == ["4b" * 16, None, None]
    assert served.token not in log.read_text()
    assert "limit" not in log.read_text()
    assert "secret-name" not in log.read_text()


def test_a_connection_does_not_wait_for_receipts_between_the_pieces_of_an_answer() -> None:
    async def accepted(listener: socket.socket) -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(look, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            option = await asyncio.wait_for(found, ANSWER_SECONDS)
            writer.close()
            return option

    with bound(Listening(port=0)) as listener:
        assert asyncio.run(accepted(listener))


@pytest.mark.door("command: detent serve")
def test_the_ledger_says_when_a_server_started_drained_and_stopped_and_that_its_settings_changed(
    tmp_path: Path,
) -> None:
    played = play(tmp_path)
    path = played.home.settings().path
    before = sha256(path.read_bytes()).hexdigest()
    assert start(played.home.path, played.environment).stop() == 0
    path.write_text(path.read_text() + "\n# a remark\n")
    after = sha256(path.read_bytes()).hexdigest()
    served = start(played.home.path, played.environment)
    listed = served.json("/v1/audit?server=true")["items"]
    served.kill()
    assert [one["action"] for one in reversed(listed)] == [
        *("server.started", "server.drained", "server.stopped", "config.changed", "server.started")
    ]
    changed = next(one for one in listed if one["action"] == "config.changed")
    assert changed["principal"] == "p_server"
    assert changed["parameters"] == {"before": f"sha256:{before}", "after": f"sha256:{after}"}
