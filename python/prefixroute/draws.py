"""Draws that depend on nothing but their arguments: what stands in for chance, and rendezvous hashing.

Compiled, since a decision takes several. The same on every machine, except that weighted choices rest on its logarithm.
"""

from __future__ import annotations

from prefixroute._core import chain, draw, scattered

LONGEST = 1 << 22
"""Numbers of a chain at most: the index takes no prompt of more blocks."""

__all__ = ["LONGEST", "chain", "draw", "scattered"]
