"""Packages without what their own ``__init__`` imports, so that single modules of heavy hosts can run."""

from __future__ import annotations

import importlib.util
import sys
import types


def make_bare(*names: str) -> None:
    """Put packages into ``sys.modules`` that have their folders and nothing else. Parents go first."""
    for name in names:
        parent, _, leaf = name.rpartition(".")
        if parent:
            paths = [f"{path}/{leaf}" for path in sys.modules[parent].__path__]
        else:
            spec = importlib.util.find_spec(name)
            assert spec is not None
            paths = list(spec.submodule_search_locations or ())
        package = types.ModuleType(name)
        package.__path__ = paths
        sys.modules[name] = package
