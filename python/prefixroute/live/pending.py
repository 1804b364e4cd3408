"""Batches that wait for missing ones."""

from __future__ import annotations

MAX_PENDING = 100_000
"""Batches that may wait for missing ones: vLLM's default for its own send queue (``hwm``)."""
MAX_PENDING_BYTES = 256 << 20
"""Bytes that these batches may take."""


class PendingBatches:
    """Batches by number, bounded in number and in bytes. A single batch always has room.

    Args:
        batches: most batches.
        size: most bytes of all of them.
    """

    def __init__(self, batches: int, size: int) -> None:
        self._most, self._most_bytes = batches, size
        self._batches: dict[int, bytes] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._batches)

    def __contains__(self, number: int) -> bool:
        """Return whether a batch waits."""
        return number in self._batches

    def put(self, number: int, payload: bytes, *, always: bool = False) -> bool:
        """Keep a batch; return whether there was room for it, or whether it is to be kept ``always``."""
        full = len(self) >= self._most or self._bytes + len(payload) > self._most_bytes
        if full and self._batches and not always:
            return False
        self.pop(number)
        self._batches[number] = payload
        self._bytes += len(payload)
        return True

    def pop(self, number: int) -> bytes | None:
        """Take a batch out; ``None`` = it is not here."""
        payload = self._batches.pop(number, None)
        self._bytes -= len(payload or b"")
        return payload

    def pop_first(self) -> tuple[int, bytes]:
        """Take the batch with the lowest number out."""
        number = self.first
        return number, self.pop(number) or b""

    @property
    def first(self) -> int:
        """The lowest number."""
        return min(self._batches)

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()
        self._bytes = 0
