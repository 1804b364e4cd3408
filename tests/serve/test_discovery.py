"""Discovery: what sources say, and what becomes of the fleet when they flap, fail, or say nothing."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes
import pytest
from loopback import Engine, MakeProxy

from prefixroute import ConfigError, Replica, Router
from prefixroute.serve import Settings
from prefixroute.serve.discovery import FleetWatch, sources_of
from prefixroute.serve.discovery.kubernetes import KubernetesSource
from prefixroute.serve.discovery.sources import DnsSource, FileSource, Found
from prefixroute.serve.fleet import ServedFleet
from prefixroute.serve.metrics import Metrics
from waiting import until

A, B, C = "http://a:1", "http://b:1", "http://c:1"


class Told:
    """A source that says what it is told to."""

    name = "told"

    def __init__(self) -> None:
        self.found: Found = {}
        self.error: Exception | None = None

    async def find(self) -> Found:
        if self.error is not None:
            raise self.error
        return self.found


class World:
    """A router, its fleet, one source, and a clock that the test moves."""

    def __init__(self, **options: Any) -> None:
        settings = Settings.of({f"discovery.{name}": value for name, value in options.items()})
        self.now = 0.0
        self.router = Router(prompt_kind="messages", clock=lambda: self.now)
        self.metrics, self.source = Metrics(), Told()
        self.fleet = ServedFleet(self.router, settings, self.metrics, clock=lambda: self.now)
        self.discovery = FleetWatch([self.source], self.fleet, self.metrics, settings.discovery)

    def look(self, *names: str, **more: Replica) -> dict[str, str]:
        self.source.found = {**dict.fromkeys(names, Replica()), **more}
        asyncio.run(self.discovery.look())
        return self.states()

    def states(self) -> dict[str, str]:
        return {name: replica["state"] for name, replica in self.router.stats()["replicas"].items()}

    def failures(self) -> float:
        return (
            self.metrics.registry.get_sample_value("prefixroute_serve_discovery_failures_total", {"source": "told"})
            or 0.0
        )


ACTIVE, DRAINING = "active", "draining"


def test_engines_join_leave_and_are_forgotten() -> None:
    world = World(leave_after_s=30)
    assert world.look(A, B) == {A: ACTIVE, B: ACTIVE}
    assert world.look(A) == {A: ACTIVE, B: DRAINING}
    world.now = 29
    assert world.look(A) == {A: ACTIVE, B: DRAINING}
    world.now = 30
    assert world.look(A) == {A: ACTIVE}
    assert set(world.fleet.engines) == {A}


def test_one_that_flaps_keeps_what_it_holds() -> None:
    world = World(leave_after_s=30)
    world.look(A, B)
    prompt = [{"role": "user", "content": "word " * 500}]
    world.router.route(prompt, candidates=[A]).finish()
    for _ in range(20):
        world.now += 5
        assert world.look(B) == {A: DRAINING, B: ACTIVE}
        world.now += 5
        assert world.look(A, B) == {A: ACTIVE, B: ACTIVE}
    assert world.router.choose(prompt).hit_tokens > 500


def test_one_with_requests_in_flight_is_forgotten_only_after_them() -> None:
    world = World(leave_after_s=0)
    world.look(A, B)
    ticket = world.router.route([], candidates=[A])
    for _ in range(3):
        world.now += 10
        assert world.look(B) == {A: DRAINING, B: ACTIVE}
    ticket.finish()
    assert world.look(B) == {B: ACTIVE}
    assert world.router.stats()["in_flight"] == 0


def test_another_incarnation_comes_back_empty() -> None:
    world = World()
    world.look(**{A: Replica(incarnation="1")})
    prompt = [{"role": "user", "content": "word " * 500}]
    world.router.route(prompt).finish()
    world.look(**{A: Replica(incarnation="1")})
    assert world.router.choose(prompt).hit_tokens > 0
    world.look(**{A: Replica(incarnation="2")})
    assert world.router.choose(prompt).hit_tokens == 0


def test_a_source_that_fails_or_empties_changes_nothing() -> None:
    world = World(leave_after_s=0)
    world.look(A, B)
    world.source.error = OSError("no server")
    for _ in range(3):
        asyncio.run(world.discovery.look())
    assert world.states() == {A: ACTIVE, B: ACTIVE}
    world.source.error = None
    assert world.look() == {A: ACTIVE, B: ACTIVE}
    assert world.failures() == 4
    assert world.look(B) == {B: ACTIVE}


def test_a_source_may_begin_with_nothing() -> None:
    world = World()
    assert world.look() == {}
    assert world.failures() == 0
    assert world.look(C) == {C: ACTIVE}


def test_a_broken_engine_that_flaps_does_not_come_back_as_a_sound_one() -> None:
    world = World()
    world.look(A, B)
    for _ in range(3):
        world.fleet.failed(A, "status 500")
    assert world.states()[A] == "suspended"
    assert world.look(B)[A] == DRAINING
    assert world.look(A, B)[A] == "suspended"


def test_an_operator_overrules_discovery() -> None:
    world = World()
    world.look(A, B)
    world.fleet.hold(A, held=True)
    assert world.look(A, B) == {A: DRAINING, B: ACTIVE}
    assert world.look(B) == {A: DRAINING, B: ACTIVE}
    assert world.look(A, B) == {A: DRAINING, B: ACTIVE}
    world.fleet.hold(A, held=False)
    assert world.states() == {A: ACTIVE, B: ACTIVE}


def find(source: Any) -> Found:
    return asyncio.run(source.find())


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "engines.txt"
    path.write_text(f"# mine\n{A}/  # the first\n\n{B}\n")
    source = FileSource(str(path))
    assert find(source) == {A: Replica(), B: Replica()}
    replaced = tmp_path / "new"
    replaced.write_text(f"{C}\n")
    replaced.rename(path)
    assert find(source) == {A: Replica(), B: Replica()}
    assert find(source) == {C: Replica()}
    path.unlink()
    with pytest.raises(ConfigError, match=r"engines\.txt"):
        find(source)


@pytest.mark.parametrize("half", ["", f"{A}\n{B[:-1]}", "\xff", None])
def test_a_file_that_is_being_written_changes_nothing(tmp_path: Path, half: str | None) -> None:
    path = tmp_path / "engines.txt"
    path.write_text(f"{A}\n{B}\n")
    world = World(leave_after_s=0)
    discovery = FleetWatch([FileSource(str(path))], world.fleet, world.metrics, Settings().discovery)
    asyncio.run(discovery.look())
    if half is None:
        path.unlink()
    else:
        path.write_text(half, encoding="latin-1")
    asyncio.run(discovery.look())
    assert world.states() == {A: ACTIVE, B: ACTIVE}
    path.write_text(f"{A}\n{C}\n")
    for _ in range(2):
        asyncio.run(discovery.look())
    assert world.states() == {A: ACTIVE, C: ACTIVE}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.json", json.dumps({"replicas": [A, {"url": B, "weight": 2, "incarnation": "x"}]})),
        ("e.yaml", f"replicas:\n- {A}\n- url: {B}\n  weight: 2\n  incarnation: x\n"),
        ("e.toml", f'replicas = ["{A}", {{url = "{B}", weight = 2, incarnation = "x"}}]'),
    ],
)
def test_a_structured_file_says_more_of_an_engine(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert find(FileSource(str(path))) == {A: Replica(), B: Replica(weight=2, incarnation="x")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.txt", f"{A}\n"),
        ("e.json", json.dumps({"replicas": [A]})),
        ("e.yaml", f"replicas: [{A}]"),
        ("e.toml", f'replicas = ["{A}"]'),
    ],
)
def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8-sig")
    assert find(FileSource(str(path))) == {A: Replica()}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("e.txt", "a:1", r"replicas\[0\].*http://HOST:PORT"),
        ("e.json", '{"replicas": {}}', "replicas.*list"),
        (
            "e.json",
            '{"replicas": [{"url": "http://a:1", "wait": 2}]}',
            r"replicas\[0\].*'wait';.*url, weight.*'weight'",
        ),
        ("e.json", '{"replicas": [{"url": "http://a:1", "weight": 0}]}', r"replicas\[0\].*weight.* 0,.* 0"),
        ("e.json", '{"replicas": [{"weight": 2}]}', r"replicas\[0\].*http://HOST:PORT"),
        ("e.yaml", "replicas: [", r"e\.yaml:1: .*YAML"),
        ("e.txt", f"{A}\n{B}\n{A}/\n", rf"replicas\[2\] .*{A},"),
        ("e.json", json.dumps({"replicas": [A, {"url": A, "weight": 2}]}), rf"replicas\[1\] .*{A},"),
        ("e.json", '{"replicas": [], "replicas": []}', "'replicas'"),
        ("e.json", '{"replicas": [{"url": "http://a:1", "weight": 2, "weight": 3}]}', "'weight'"),
        ("e.yaml", f"replicas:\n- url: {A}\n  weight: 2\n  weight: 3\n", r"e\.yaml:4: .*'weight'"),
        ("e.yaml", "{replicas: [], replicas: []}", r"e\.yaml:1: .*'replicas'.*line 1"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        find(FileSource(str(path)))


def test_dns_lists_every_address_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[str] = ["10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.1"]

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answers]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    source = DnsSource("engines.internal:8000")
    assert list(find(source)) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://[fd00::1]:8000"]
    world = World(leave_after_s=0)
    discovery = FleetWatch([source], world.fleet, world.metrics, Settings().discovery)
    asyncio.run(discovery.look())
    engines = world.states()
    assert len(engines) == 3
    answers.clear()
    with pytest.raises(OSError, match="no such name"):
        find(source)
    asyncio.run(discovery.look())
    assert world.states() == engines
    answers.append("10.0.0.1")
    asyncio.run(discovery.look())
    assert world.states() == {"http://10.0.0.1:8000": ACTIVE}
    for wrong in ("engines.internal", "ftp://a:1", ":80"):
        with pytest.raises(ConfigError, match=r"discovery\.dns"):
            DnsSource(wrong)


def an_endpoint(address: str, uid: str, **conditions: Any) -> dict[str, Any]:
    target = {"kind": "Pod", "uid": uid}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


@pytest.fixture
def kube_api() -> Iterator[SimpleNamespace]:
    """Yield an API server that knows one service, and the official client for it."""
    api = SimpleNamespace(endpoints=[], asked=[], ports=[{"name": "grpc", "port": 9}, {"name": "http", "port": 8000}])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            api.asked.append(self.path)
            item = {"addressType": "IPv4", "metadata": {"name": "s"}, "endpoints": api.endpoints, "ports": api.ports}
            body = json.dumps(
                {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "items": [item]}
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    configuration = kubernetes.client.Configuration(host=f"http://127.0.0.1:{server.server_address[1]}")
    with kubernetes.client.ApiClient(configuration) as client:
        api.client = kubernetes.client.DiscoveryV1Api(client)
        yield api
    server.shutdown()
    server.server_close()
    thread.join()


def test_kubernetes_lists_the_ready_endpoints_of_a_service(kube_api: SimpleNamespace) -> None:
    kube_api.endpoints = [
        an_endpoint("10.0.0.1", "u1", ready=True),
        an_endpoint("10.0.0.2", "u2", ready=False),
        an_endpoint("10.0.0.3", "u3", ready=True, terminating=True),
        an_endpoint("10.0.0.4", "u4"),
    ]
    found = find(KubernetesSource("prod/vllm:http", kube_api.client))
    assert found == {
        "http://10.0.0.1:8000": Replica(incarnation="u1"),
        "http://10.0.0.4:8000": Replica(incarnation="u4"),
    }
    assert kube_api.asked == [
        "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices?labelSelector=kubernetes.io/service-name%3Dvllm"
    ]
    assert list(find(KubernetesSource("prod/vllm:8000", kube_api.client))) == list(found)
    assert "http://10.0.0.1:9" in find(KubernetesSource("prod/vllm", kube_api.client))  # the first port
    assert find(KubernetesSource("prod/vllm:metrics", kube_api.client)) == {}


@pytest.mark.parametrize("target", ["vllm", "prod/", "prod/vllm:", "Prod/vllm", "a/b/c", "prod/vllm:x y"])
def test_a_target_that_is_none_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match=rf"discovery\.kubernetes.*NAMESPACE/SERVICE.*'{target}'"):
        KubernetesSource(target, object())


def test_without_a_cluster_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"discovery\.kubernetes"):
        sources_of(Settings.of({"discovery.kubernetes": "prod/vllm"}).discovery)


def test_all_sources_together_are_the_fleet(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text(B)
    settings = Settings.of({"discovery.replicas": [A], "discovery.file": str(tmp_path / "e.txt")})
    assert [source.name for source in sources_of(settings.discovery)] == ["static", "file"]


def test_a_server_follows_its_file(pair: list[Engine], make_proxy: MakeProxy, tmp_path: Path) -> None:
    first, second = pair
    path = tmp_path / "engines.txt"
    path.write_text(first.url)
    proxy = make_proxy([], discovery__file=str(path), discovery__interval_s=0.02, discovery__leave_after_s=0.1)

    def asked() -> set[str]:
        return {proxy.chat(f"{number} " * 20, max_tokens=1).headers["x-replica"] for number in range(8)}

    assert asked() == {first.url}
    path.write_text(f"{first.url}\n{second.url}\n")
    until(lambda: asked() == {first.url, second.url})
    path.write_text("not a URL")
    assert asked() <= {first.url, second.url}
    path.write_text(second.url)
    until(lambda: asked() == {second.url})
    until(lambda: proxy.router.replicas == (second.url,))
    assert proxy.idle()
