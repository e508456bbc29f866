"""The files in `deploy/`: they have the fields that Kubernetes and Compose know, name what there is, and what they start answers.

No cluster runs here, and the whole schema of Kubernetes is not at hand. The schema below lists the fields that the files use: one that is not
in it is a mistake, or is added after a look at the reference of Kubernetes or Compose.
"""

from __future__ import annotations

import os
import shlex
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPSConnection
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from detent.serve.routes import ALL
from detent.version import __version__
from tests.serve.certificates import Certificates, certificates
from tests.serve.served import ANSWER_SECONDS, Served, start

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PORT = 7733
TEXT, WHOLE, YES_NO, WORDS = str, int, bool, dict
META = {"name!": TEXT, "labels": WORDS}
SECRET_VOLUME = {"secretName!": TEXT, "defaultMode": WHOLE, "items": [{"key!": TEXT, "path!": TEXT}]}
PROBE = {
    "httpGet!": {"path!": TEXT, "port!": TEXT, "scheme": TEXT, "httpHeaders": [{"name!": TEXT, "value!": TEXT}]},
    "periodSeconds": WHOLE,
    "failureThreshold": WHOLE,
}
CONTAINER = {
    "name!": TEXT,
    "image!": TEXT,
    "args": [TEXT],
    "env": [{"name!": TEXT, "value!": TEXT}],
    "envFrom": [{"secretRef!": {"name!": TEXT}}],
    "ports": [{"name!": TEXT, "containerPort!": WHOLE}],
    "startupProbe": PROBE,
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "resources": {"requests": WORDS},
    "volumeMounts": [{"name!": TEXT, "mountPath!": TEXT, "readOnly": YES_NO}],
}
POD = {
    "terminationGracePeriodSeconds": WHOLE,
    "securityContext!": {"runAsNonRoot!": YES_NO, "runAsUser!": WHOLE, "fsGroup!": WHOLE},
    "initContainers": [CONTAINER],
    "containers!": [CONTAINER],
    "volumes": [{"name!": TEXT, "secret": SECRET_VOLUME, "emptyDir": WORDS}],
}
REPLICATED = {
    "replicas!": WHOLE,
    "selector!": {"matchLabels!": WORDS},
    "template!": {"metadata!": {"labels!": WORDS}, "spec!": POD},
}
CLAIM = {"metadata!": META, "spec!": {"accessModes!": [TEXT], "resources!": {"requests!": WORDS}}}
KINDS: dict[tuple[str, str], Any] = {
    ("v1", "Service"): {"selector!": WORDS, "ports!": [{"name!": TEXT, "port!": WHOLE, "targetPort!": TEXT}]},
    ("apps/v1", "StatefulSet"): {**REPLICATED, "serviceName!": TEXT, "volumeClaimTemplates": [CLAIM]},
    ("apps/v1", "Deployment"): REPLICATED,
}
COMPOSE = {
    "image": TEXT,
    "build": {"context!": TEXT, "dockerfile!": TEXT},
    "environment": WORDS,
    "secrets": [TEXT],
    "volumes": [TEXT],
    "ports": [TEXT],
    "healthcheck": {"test!": [TEXT], "interval": TEXT, "retries": WHOLE, "start_period": TEXT},
    "depends_on": WORDS,
    "restart": TEXT,
    "stop_grace_period": TEXT,
    "entrypoint": [TEXT],
    "command": [TEXT],
    "profiles": [TEXT],
    "network_mode": TEXT,
}


def faults(value: Any, schema: Any, where: str) -> list[str]:
    """What is wrong with a part of a file."""
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{where} is no list"]
        return [fault for place, one in enumerate(value) for fault in faults(one, schema[0], f"{where}[{place}]")]
    if not isinstance(schema, dict):
        return [] if type(value) is schema else [f"{where} is {value!r}"]
    if not isinstance(value, dict):
        return [f"{where} is no map"]
    known = {name.removesuffix("!"): part for name, part in schema.items()}
    missing = [name for name in schema if name.endswith("!") and name[:-1] not in value]
    found = [f"{where} lacks {name[:-1]}" for name in missing]
    found += [f"{where}.{name} is not a field" for name in value if name not in known]
    return found + [
        fault for name in value if name in known for fault in faults(value[name], known[name], f"{where}.{name}")
    ]


def objects() -> list[dict[str, Any]]:
    return [dict(one) for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())]


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def pods() -> list[dict[str, Any]]:
    return [one["spec"]["template"]["spec"] for one in objects() if "template" in one["spec"]]


def containers() -> list[dict[str, Any]]:
    return [one for pod in pods() for one in (*pod.get("initContainers", []), *pod["containers"])]


def insist_on_command(words: list[str]) -> None:
    """That `detent` has this command with these options."""
    command = import_module(f"detent.cli.{words[0]}").command
    assert isinstance(command, click.Command)
    _, left, _ = command.make_parser(click.Context(command)).parse_args(list(words[1:]))
    assert left == []


def server_words() -> list[str]:
    (found,) = [one["args"] for one in containers() if one["name"] == "server"]
    return list(found)


def test_every_object_of_the_manifests_has_the_fields_of_its_kind() -> None:
    for one in objects():
        schema = {"apiVersion!": TEXT, "kind!": TEXT, "metadata!": META, "spec!": KINDS[one["apiVersion"], one["kind"]]}
        assert faults(one, schema, one["metadata"]["name"]) == []
    broken = objects()[1]
    broken["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    del broken["spec"]["serviceName"]
    said = faults(broken["spec"], KINDS["apps/v1", "StatefulSet"], "x")
    assert said == ["x lacks serviceName", "x.template.spec.containers[0].livenesProbe is not a field"]


def test_what_the_manifests_name_is_there() -> None:
    for one in objects():
        if "template" not in one["spec"]:
            continue
        labels, pod = one["spec"]["template"]["metadata"]["labels"], one["spec"]["template"]["spec"]
        assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
        claims = {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
        volumes = claims | {volume["name"] for volume in pod.get("volumes", [])}
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert container["image"] == f"detent:{__version__}"
            insist_on_command(container["args"])
    service, stateful, _ = objects()
    assert service["metadata"]["name"] == stateful["spec"]["serviceName"]
    assert service["spec"]["selector"].items() <= stateful["spec"]["template"]["metadata"]["labels"].items()
    (server,) = stateful["spec"]["template"]["spec"]["containers"]
    assert [(port["name"], port["containerPort"]) for port in server["ports"]] == [("http", PORT)]
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(PORT, "http")]
    paths = {route.path for route in ALL}
    assert {server[f"{one}Probe"]["httpGet"]["path"] for one in ("startup", "readiness", "liveness")} <= paths


def test_the_compose_file_has_known_fields_and_names_what_there_is() -> None:
    said = compose()
    assert said.keys() == {"services", "secrets", "volumes"}
    assert [fault for name, one in said["services"].items() for fault in faults(one, COMPOSE, name)] == []
    for one in said["services"].values():
        assert set(one.get("secrets", [])) <= said["secrets"].keys()
        assert set(one.get("depends_on", {})) <= said["services"].keys()
        named = {volume.partition(":")[0] for volume in one.get("volumes", [])}
        assert {name for name in named if not name.startswith(".")} <= said["volumes"].keys()
    server, worker = said["services"]["server"], said["services"]["worker"]
    assert server["image"] == worker["image"] == f"detent:{__version__}"
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
    script = server["command"][0].splitlines()[-1].replace("$$", "$")
    begin, serve = (shlex.split(part) for part in script.split("&&"))
    insist_on_command(begin[1:])
    insist_on_command(serve[2:])
    insist_on_command(worker["command"])
    assert server["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert f"http://127.0.0.1:{PORT}/readyz" in server["healthcheck"]["test"][-1]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("deploy") / "tls")


@pytest.fixture(scope="module")
def served(held: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server as the manifest starts it, on the loopback and a free port."""
    place = tmp_path_factory.mktemp("pod")
    environment = {**os.environ, "XDG_STATE_HOME": str(place / "state")}
    (begin,) = [one["args"] for one in containers() if one["name"] == "home"]
    words = [str(place / "home") if word == "/srv/detent/home" else word for word in begin]
    subprocess.run(
        [sys.executable, "-m", "detent", *words], env=environment, cwd=place, check=True, timeout=ANSWER_SECONDS
    )
    files = {"/run/tls/tls.crt": str(held.chain), "/run/tls/tls.key": str(held.key), "0.0.0.0": "127.0.0.1"}
    words = [files.get(word, word) for word in server_words()[1:]]
    for left_out in ("--home", "--port"):
        place_of = words.index(left_out)
        del words[place_of : place_of + 2]
    server = start(place / "home", environment, *words)
    yield server
    server.stop()


@pytest.mark.door("detent serve", "GET /readyz", "GET /healthz")
def test_the_server_of_the_manifest_answers_its_probes(served: Served, held: Certificates) -> None:
    (server,) = [one for one in containers() if one["name"] == "server"]
    context = ssl.create_default_context(cafile=str(held.authority))
    for name in ("startup", "readiness", "liveness"):
        probe = server[f"{name}Probe"]["httpGet"]
        assert probe["scheme"] == "HTTPS"
        connection = HTTPSConnection("127.0.0.1", served.port, timeout=ANSWER_SECONDS, context=context)
        connection.request("GET", probe["path"], headers={one["name"]: one["value"] for one in probe["httpHeaders"]})
        assert connection.getresponse().status == 200, name
        connection.close()
