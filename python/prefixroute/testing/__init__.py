"""Engines without a GPU, to test routers against. Extra ``testing``."""

from __future__ import annotations

from prefixroute.testing.publisher import EventPublisher

__all__ = ["EventPublisher"]
