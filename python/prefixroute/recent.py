"""A mapping that is bounded by how many keys it remembers."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """The keys that were set last, with their values: one more than ``most`` drops the one that was set longest ago."""

    def __init__(self, most: int) -> None:
        """Start empty."""
        super().__init__()
        self._most = most

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the bound in a pickle."""
        return type(self), (self._most,), None, None, iter(self.items())

    def __setitem__(self, key: K, value: V) -> None:
        """Set a key, as the newest one."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
