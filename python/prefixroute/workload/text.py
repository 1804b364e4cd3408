"""Text that nobody needs to see, built layer by layer: a system prompt, a document, a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.draws import chain
from prefixroute.hashing import BlockHashes
from prefixroute.workload.request import Request, cached_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """The hashes of a text's full blocks, shape (tokens // block_size,), and its length in tokens."""

    hashes: NDArray[np.uint64]
    tokens: int
    block_size: int

    @classmethod
    def of(cls, key: int, tokens: int, block_size: int) -> Text:
        """Return a text that is told from all others by ``key``; none of them begins like it."""
        return cls(chain(key, 0, tokens // block_size), tokens, block_size)

    def then(self, key: int, tokens: int) -> Text:
        """Return this text followed by ``tokens`` more, which are told from all others by ``key``.

        The blocks that the new tokens fill are theirs, the one that both texts share included.
        """
        length = self.tokens + tokens
        fresh = chain(key, len(self.hashes), length // self.block_size)
        return Text(np.concatenate([self.hashes, fresh]), length, self.block_size)

    def request(self, arrival_s: float, prompt_tokens: int, **named: Any) -> Request:
        """Return the request whose prompt is the first ``prompt_tokens`` of this text, and whose answer is the rest."""
        return Request(arrival_s, *self.split(prompt_tokens), prompt_tokens, self.tokens - prompt_tokens, **named)

    @property
    def blocks(self) -> BlockHashes:
        """The text as a prompt."""
        return BlockHashes(self.hashes, token_count=self.tokens, block_size=self.block_size)

    def split(self, prompt_tokens: int) -> tuple[BlockHashes, BlockHashes]:
        """Return the first ``prompt_tokens`` as a prompt, and as its context what is cached of the text once it is answered.

        The two share memory.
        """
        context = self.blocks
        prompt = context.head(prompt_tokens // self.block_size, prompt_tokens)
        cached = cached_tokens(prompt_tokens, self.tokens - prompt_tokens)
        return prompt, context.head(cached // self.block_size, cached)
