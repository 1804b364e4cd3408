"""Engines without a GPU, to test routers against. Extra ``testing``."""

from __future__ import annotations

from prefixroute.testing.app import FakeApp
from prefixroute.testing.core import EngineCore, EngineRequest, PlainCost
from prefixroute.testing.kv_events import EventEncoder
from prefixroute.testing.publisher import EventPublisher
from prefixroute.testing.server import FakeEngine
from prefixroute.testing.settings import Behaviour, EngineSettings
from prefixroute.testing.tokens import render, tokenize

__all__ = [
    "Behaviour",
    "EngineCore",
    "EngineRequest",
    "EngineSettings",
    "EventEncoder",
    "EventPublisher",
    "FakeApp",
    "FakeEngine",
    "PlainCost",
    "render",
    "tokenize",
]
