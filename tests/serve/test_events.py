"""The proxy whose Router follows the engines' KV events, as ``prefixroute serve --fake 2`` runs it."""

from __future__ import annotations

import time
from contextlib import ExitStack

from starlette.testclient import TestClient

from prefixroute.serve import Settings, create_app
from prefixroute.testing import Behaviour, FakeEngine, render, tokenize


def test_the_proxy_knows_what_its_engines_hold() -> None:
    with ExitStack() as stack:
        engines = [stack.enter_context(FakeEngine(behaviour=Behaviour(0, 0))) for _ in range(2)]
        feeds = {engine.url: engine.feed for engine in engines}
        app = create_app(
            Settings.of({"discovery.replicas": tuple(feeds)}), feeds=feeds, render=render, tokenizer=tokenize
        )
        client = stack.enter_context(TestClient(app))
        router = app.state.service.router
        messages = [{"role": "user", "content": "All of it again. " * 600}]
        first = client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 4})
        assert first.status_code == 200
        held = {engine.url: engine.core.held_tokens for engine in engines}
        end = time.monotonic() + 20
        while dict(zip(router.replicas, router.index.held_tokens(), strict=True)) != held:
            assert time.monotonic() < end, "the events did not come"
            time.sleep(0.005)
        home = first.headers["x-replica"]
        assert router.stats()["replicas"][home]["feed"]["applied"] > 0
        again = client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 4})
        cached = again.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert again.headers["x-replica"] == home
        assert cached == router.stats()["reported_hit_tokens"] > 2_000
