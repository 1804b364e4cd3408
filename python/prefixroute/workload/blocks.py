"""The one place where workloads take block hashes from."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


class BlockHashes:
    """One prompt, hashed: full blocks only."""

    __slots__ = ("array", "block_size", "token_count")

    def __init__(self, hashes: ArrayLike, *, token_count: int, block_size: int = 16) -> None:
        self.array: NDArray[np.uint64] = np.asarray(hashes, dtype=np.uint64)
        self.token_count = token_count
        self.block_size = block_size
        if token_count < len(self.array) * block_size:
            raise ValueError(f"token count must be {len(self.array) * block_size} or more, got {token_count}")

    def __len__(self) -> int:
        return len(self.array)
