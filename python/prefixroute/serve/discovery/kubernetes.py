"""Engines that are endpoints of a Kubernetes service, by the official client."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.types import Replica

_TARGET = re.compile(r"(?P<namespace>[a-z0-9.-]+)/(?P<service>[a-z0-9.-]+)(?::(?P<port>[a-z0-9-]+))?")
_TIMEOUT_S = 10


class KubernetesSource:
    """The ready endpoints of a service: an engine for each pod, whose uid is its incarnation.

    Reads the service's EndpointSlices, with the pod's service account, or else with the kubeconfig. It needs the verb
    ``list`` on ``endpointslices`` of ``discovery.k8s.io`` in that namespace.

    Args:
        target: ``NAMESPACE/SERVICE``, or with ``:PORT`` by number or name; without it the first port counts.
        api: the client's ``DiscoveryV1Api``; by default one that is configured as said.

    Raises:
        ConfigError: the target is none, the client is not installed, or it finds no configuration.
    """

    name = "kubernetes"

    def __init__(self, target: str, api: Any = None) -> None:
        matched = _TARGET.fullmatch(target)
        if matched is None:
            raise ConfigError(
                f"discovery.kubernetes must be NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT, got {target!r}"
            )
        self._namespace, self._service, self._port = matched["namespace"], matched["service"], matched["port"]
        self._api = _configured() if api is None else api

    async def find(self) -> dict[str, Replica]:
        """Return the endpoints that are ready; raise what the client raises if it cannot tell."""
        listed = await asyncio.to_thread(
            self._api.list_namespaced_endpoint_slice,
            self._namespace,
            label_selector=f"kubernetes.io/service-name={self._service}",
            _request_timeout=_TIMEOUT_S,
        )
        found: dict[str, Replica] = {}
        for one in listed.items:
            port = self._port_of(one.ports or ())
            if port is not None:
                for address, uid in _ready(one.endpoints or ()):
                    host = f"[{address}]" if ":" in address else address
                    found[f"http://{host}:{port}"] = Replica(incarnation=uid)
        return found

    def _port_of(self, ports: Iterable[Any]) -> int | None:
        for port in ports:
            if self._port is None or self._port in {port.name, str(port.port)}:
                return None if port.port is None else int(port.port)
        return None


def _ready(endpoints: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Yield address and pod of the endpoints that take requests; not known counts as ready, as the API says."""
    for endpoint in endpoints:
        conditions = endpoint.conditions
        if conditions is not None and (conditions.ready is False or conditions.terminating):
            continue
        uid = endpoint.target_ref.uid if endpoint.target_ref is not None else ""
        for address in endpoint.addresses[:1]:  # the others are the same pod
            yield address, uid or ""


def _configured() -> Any:
    kubernetes = extra_module("kubernetes", "kubernetes")
    try:
        kubernetes.config.load_incluster_config()
    except kubernetes.config.ConfigException:
        try:
            kubernetes.config.load_kube_config()
        except kubernetes.config.ConfigException as error:
            raise ConfigError(f"discovery.kubernetes: neither in a pod nor with a kubeconfig: {error}") from error
    return kubernetes.client.DiscoveryV1Api()
