"""What the index is measured against from Python: Dynamo's wheel, and the dict a careful person would write in an hour.

Both take prompts and answer as the index does (tokens held, by replica number), so that a bench swaps one for another.
Hashing, building an event and applying it are separate calls: a bench times the step it is about.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

SEED = 1337
Tokens = Sequence[int] | npt.NDArray[np.uint32]


class DictBaseline:
    """A dict from chained block hash to a bit mask of replicas, hashed by `xxhash` block by block.

    The chain is made by the seed: a block is hashed with the hash before it as seed. `match` hashes as it walks and
    stops where no replica follows.
    """

    name = "dict + xxhash"

    def __init__(self, replicas: int, block_size: int = 16) -> None:
        self._all = (1 << replicas) - 1
        self._replicas = replicas
        self._block_size = block_size
        self._masks: dict[int, int] = {}

    def hash(self, tokens: Tokens) -> list[int]:
        """Chained hashes of the full blocks."""
        digest, step = xxhash.xxh3_64_intdigest, 4 * self._block_size
        raw = _little_endian(tokens)
        chain = SEED
        return [chain := digest(raw[at : at + step], chain) for at in range(0, len(raw) - step + 1, step)]

    def store(self, replica: int, hashes: Sequence[int]) -> None:
        """The replica holds these blocks."""
        bit, masks = 1 << replica, self._masks
        for block in hashes:
            masks[block] = masks.get(block, 0) | bit

    def remove(self, replica: int, hashes: Sequence[int]) -> None:
        """The replica no longer holds these blocks."""
        bit, masks = 1 << replica, self._masks
        for block in hashes:
            rest = masks.get(block, 0) & ~bit
            if rest:
                masks[block] = rest
            else:
                masks.pop(block, None)

    def match(self, tokens: Tokens) -> list[int]:
        """Tokens held by each replica."""
        digest, step, masks = xxhash.xxh3_64_intdigest, 4 * self._block_size, self._masks
        raw = _little_endian(tokens)
        chain, alive, held = SEED, self._all, [0] * self._replicas
        full = len(raw) // step
        for depth in range(full):
            chain = digest(raw[depth * step : (depth + 1) * step], chain)
            mask = masks.get(chain, 0) & alive
            if mask != alive:
                self._settle(held, alive & ~mask, depth)
                alive = mask
                if not alive:
                    break
        self._settle(held, alive, full)
        return held

    def match_hashes(self, hashes: Sequence[int]) -> list[int]:
        """Tokens held by each replica, from `hash`'s answer."""
        masks, alive, held = self._masks, self._all, [0] * self._replicas
        for depth, block in enumerate(hashes):
            mask = masks.get(block, 0) & alive
            if mask != alive:
                self._settle(held, alive & ~mask, depth)
                alive = mask
                if not alive:
                    break
        self._settle(held, alive, len(hashes))
        return held

    def _settle(self, held: list[int], mask: int, depth: int) -> None:
        while mask:
            held[(mask & -mask).bit_length() - 1] = depth * self._block_size
            mask &= mask - 1


class DynamoRadixTree:
    """`dynamo.llm.RadixTree` of the wheel `ai-dynamo-runtime`: content hashes in, a dict by (worker, rank) out.

    Its events are JSON bytes, and every call goes through a thread of its own: that is its public API, and its price.
    """

    name = "ai-dynamo-runtime"

    def __init__(self, replicas: int, block_size: int = 16) -> None:
        from dynamo.llm import RadixTree, compute_block_hash_for_seq  # noqa: PLC0415 (a 226 MB wheel: only when asked)

        self._tree = RadixTree()
        self._hash = compute_block_hash_for_seq
        self._replicas = replicas
        self._block_size = block_size
        self._event_id = 0

    def hash(self, tokens: Tokens) -> list[int]:
        """Content hashes of the full blocks (the tree compares contents, not chains)."""
        # It reads a list three times faster than the numbers of an array.
        return self._hash(tokens.tolist() if isinstance(tokens, np.ndarray) else tokens, self._block_size)

    def stored_event(self, hashes: Sequence[int], first: int = 0) -> bytes:
        """The bytes of the event by which an engine announces the blocks of a chain from block `first` on."""
        names = engine_hashes(hashes)
        blocks = [
            {"block_hash": engine, "tokens_hash": content}
            for engine, content in zip(names[first:], hashes[first:], strict=True)
        ]
        return self._event({"stored": {"parent_hash": names[first - 1] if first else None, "blocks": blocks}})

    def removed_event(self, hashes: Sequence[int], first: int = 0) -> bytes:
        """The bytes of the event that takes back the blocks of a chain from block `first` on."""
        return self._event({"removed": {"block_hashes": engine_hashes(hashes)[first:]}})

    def apply(self, replica: int, event: bytes) -> None:
        """Applies an event of a replica."""
        self._tree.apply_event(replica, event)

    def match(self, tokens: Tokens) -> list[int]:
        """Tokens held by each replica."""
        return self.match_hashes(self.hash(tokens))

    def match_hashes(self, hashes: Sequence[int]) -> list[int]:
        """Tokens held by each replica, from `hash`'s answer."""
        held = [0] * self._replicas
        for (worker, _rank), blocks in self._tree.find_matches(hashes).scores.items():
            held[worker] = blocks * self._block_size
        return held

    def _event(self, data: dict[str, object]) -> bytes:
        self._event_id += 1
        return json.dumps({"event_id": self._event_id, "data": data}).encode()


def engine_hashes(contents: Sequence[int]) -> list[int]:
    """Names that an engine would give to the blocks of a chain: each covers the block and all before it."""
    chain = SEED
    return [chain := xxhash.xxh3_64_intdigest(content.to_bytes(8, "little"), chain) for content in contents]


def _little_endian(tokens: Tokens) -> bytes:
    if isinstance(tokens, np.ndarray):
        return np.ascontiguousarray(tokens, dtype="<u4").tobytes()
    return array("I", tokens).tobytes()
