"""Hosts on a Ray cluster: each is a detached actor that runs one `detent worker` on its node.

Ray gives a host its place, CPUs, GPUs and environment, and never sees a job: it would dispatch more slowly, and retries are the kernel's.
An actor is not restarted (`max_restarts=0`): a host that is lost was interrupted, and the keeper starts another one with a token of its own.

* An actor is detached and named `POOL/HOST` in a namespace of the ledger. It outlives the keeper; the next one finds it by its name.
* What it starts is in its constructor: Ray keeps that with the actor, so one that waits for room begins even if the keeper is gone.
* The worker ends with its actor: its lifeline is cut, and the server retires it as soon as the actor is not listed.
* Ray waits silently for what no node can ever hold, so `fault` compares with the nodes first.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any, Final

from detent.jobs.pools import Pool
from detent.workers.provision import HostOrder, ProvisionFailed, worker_words

GPU: Final = "gpu"
_PLAIN: Final = frozenset("!()")
"""What a value of a label selector has that is more than a value."""


class RayHosts:
    """Starts hosts on the Ray cluster that a pool names."""

    def __init__(self, pool: Pool, origin: str) -> None:
        self._pool = pool
        self._namespace = pool.ray.get("namespace", f"detent/{origin}")
        self._ray: Any = None

    def fault(self) -> str | None:
        """That no node of the cluster could hold a host even if it were empty, or nothing."""
        if self._pool.ray.get("autoscaled", False):
            return None
        ray = self._connected()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        return node_fault(needs(self._pool), self._pool.ray.get("label_selector", {}), nodes)

    def ensure(self, order: HostOrder) -> None:
        """Have Ray start an actor for a host; it waits there until a node has room."""
        ray, pool = self._connected(), self._pool
        asked = dict(needs(pool))
        options = {
            "name": f"{pool.name}/{order.host_id}",
            "namespace": self._namespace,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": 0,
            "max_task_retries": 0,
            "num_cpus": asked.pop("CPU"),
            "num_gpus": asked.pop("GPU", 0),
            "resources": asked,
        }
        for name in ("label_selector", "runtime_env"):
            if name in pool.ray:
                options[name] = pool.ray[name]
        try:
            ray.remote(RayHost).options(**options).remote(pool, order)
        except (ValueError, TypeError, ray.exceptions.RayError) as exc:
            raise ProvisionFailed(f"Ray refuses a host of pool {pool.name}: {exc}", hint="see [pools]") from exc

    def list(self) -> dict[str, bool]:
        """The actors of this pool that are not dead."""
        ray = self._connected()
        try:
            named = ray.util.list_named_actors(all_namespaces=True)
        except ray.exceptions.RayError as exc:
            raise self._unreachable(exc) from exc
        prefix = f"{self._pool.name}/"
        mine = (one["name"] for one in named if one["namespace"] == self._namespace)
        return {name.removeprefix(prefix): True for name in mine if name.startswith(prefix)}

    def release(self, host_id: str) -> None:
        """Kill the actor of a host."""
        ray = self._connected()
        try:
            ray.kill(ray.get_actor(f"{self._pool.name}/{host_id}", namespace=self._namespace))
        except ValueError:
            return  # It is gone.

    def close(self) -> None:
        """Leave the cluster. Its hosts go on: the next keeper finds them."""
        if self._ray is not None:
            self._ray.shutdown()

    def _connected(self) -> Any:
        if self._ray is not None:
            return self._ray
        try:
            import ray  # noqa: PLC0415 - an extra
        except ImportError as exc:
            raise ProvisionFailed(
                "Ray is not installed where the server runs", hint="pip install 'detent[ray]'"
            ) from exc
        try:
            ray.init(
                self._pool.ray.get("address", "auto"),
                namespace=self._namespace,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as exc:  # Ray raises what its layers raise: ConnectionError, RuntimeError, RpcError
            raise self._unreachable(exc) from exc
        self._ray = ray
        return ray

    def _unreachable(self, exc: Exception) -> ProvisionFailed:
        where = self._pool.ray.get("address", "this machine")
        return ProvisionFailed(
            f"no Ray cluster answers at {where}: {str(exc).splitlines()[0] if str(exc) else type(exc).__name__}",
            hint=f"start it, or set ray.address under [pools.{self._pool.name}]",
        )


class RayHost:
    """One host, on a node of the cluster: runs the worker, and ends with it."""

    def __init__(self, pool: Pool, order: HostOrder) -> None:
        place = tempfile.mkdtemp(prefix="detent-host-")
        ours, theirs = os.pipe()
        self._lifeline = theirs
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and command
            [sys.executable, *worker_words(pool, order, os.path.join(place, "state")), "--lifeline", str(ours)],  # noqa: PTH118
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(ours,),
            start_new_session=True,
        )
        os.close(ours)
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(order.token.encode())
        threading.Thread(target=_follow, args=(process, place), daemon=True).start()


def _follow(process: subprocess.Popen[bytes], place: str) -> None:
    """End the actor when its worker has ended."""
    code = process.wait()
    shutil.rmtree(place, ignore_errors=True)
    os._exit(code)


def needs(pool: Pool) -> dict[str, float]:
    """What a host takes of a node, by Ray's names."""
    gpus = pool.resources.get(GPU, 0)
    return {"CPU": pool.cpus, **({"GPU": gpus} if gpus else {}), **pool.ray.get("resources", {})}


def node_fault(needed: Mapping[str, float], labels: Mapping[str, str], nodes: list[Mapping[str, Any]]) -> str | None:
    """Say that none of these nodes could ever hold what is needed, or nothing. Selectors that are more than a value are Ray's to judge."""
    plain = {name: value for name, value in labels.items() if not _PLAIN & set(value)}
    labelled = [node for node in nodes if plain.items() <= node.get("Labels", {}).items()]
    if any(all(node["Resources"].get(name, 0) >= amount for name, amount in needed.items()) for node in labelled):
        return None
    asked = ", ".join(f"{amount:g} {name}" for name, amount in needed.items())
    where = f" with the labels {dict(plain)}" if plain else ""
    has = "; ".join(", ".join(f"{node['Resources'].get(name, 0):g} {name}" for name in needed) for node in labelled[:5])
    return f"no node of the Ray cluster{where} has {asked}; " + (f"they have {has}" if has else "there is none")
