"""Batches that wait for missing ones."""

from __future__ import annotations

MAX_PENDING = 100_000
"""Batches that may wait for missing ones: vLLM's default for its own send queue (``hwm``)."""
MAX_PENDING_BYTES = 256 << 20
"""Bytes that these batches may take."""


class PendingBatches:
    """Batches by number, bounded in number and in bytes. A single batch always has room.

    Some are *unproven*: nobody knows whether they are of the process whose batches they wait for.

    Args:
        batches: most batches.
        size: most bytes of all of them.
    """

    def __init__(self, batches: int, size: int) -> None:
        self._most, self._most_bytes = batches, size
        self._batches: dict[int, bytes] = {}
        self._unproven: set[int] = set()
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._batches)

    def __contains__(self, number: int) -> bool:
        """Return whether a batch waits."""
        return number in self._batches

    def get(self, number: int) -> bytes | None:
        """Return a batch; ``None`` = it is not here."""
        return self._batches.get(number)

    def put(self, number: int, payload: bytes, *, proven: bool, always: bool = False) -> bool:
        """Keep a batch; return whether there was room for it, or whether it is to be kept ``always``."""
        full = len(self) >= self._most or self._bytes + len(payload) > self._most_bytes
        if full and self._batches and not always:
            return False
        self.pop(number)
        self._batches[number] = payload
        self._bytes += len(payload)
        if not proven:
            self._unproven.add(number)
        return True

    def pop(self, number: int) -> bytes | None:
        """Take a batch out; ``None`` = it is not here."""
        payload = self._batches.pop(number, None)
        self._bytes -= len(payload or b"")
        self._unproven.discard(number)
        return payload

    def pop_proven(self, number: int) -> bytes | None:
        """Take a batch out; ``None`` = it is not here, or unproven."""
        return None if number in self._unproven else self.pop(number)

    def pop_first(self) -> tuple[int, bytes]:
        """Take the batch with the lowest number out."""
        number = self.first
        return number, self.pop(number) or b""

    @property
    def first(self) -> int:
        """The lowest number."""
        return min(self._batches)

    def is_unproven(self, number: int) -> bool:
        """Return whether a batch waits unproven."""
        return number in self._unproven

    def prove(self) -> None:
        """Note that all are of the process whose batches they wait for."""
        self._unproven.clear()

    def doubt(self) -> None:
        """Note that nobody knows of any."""
        self._unproven = set(self._batches)

    def drop(self, *, proven: bool, below: int | None = None) -> int:
        """Forget those that are ``proven``, or those that are not, ``below`` a number; return how many there were."""
        numbers = self._batches.keys() - self._unproven if proven else self._unproven
        dropped = [number for number in numbers if below is None or number < below]
        for number in dropped:
            self.pop(number)
        return len(dropped)

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()
        self._unproven.clear()
        self._bytes = 0
