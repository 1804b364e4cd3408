"""Text that nobody needs to see, built layer by layer: a system prompt, a document, a turn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefixroute.draws import chain
from prefixroute.hashing import BlockHashes
from prefixroute.workload.request import Request, cached_tokens


def made_up(key: int, tokens: int, block_size: int) -> BlockHashes:
    """Return a prompt that is told from all others by ``key``; none of them begins like it."""
    return BlockHashes(chain(key, 0, tokens // block_size), token_count=tokens, block_size=block_size)


class Text(NamedTuple):
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
        hashes, before, block_size = self
        length = before + tokens
        fresh = chain(key, len(hashes), length // block_size)
        return Text(np.concatenate([hashes, fresh]), length, block_size)

    @property
    def blocks(self) -> BlockHashes:
        """The text as a prompt."""
        return BlockHashes(self.hashes, token_count=self.tokens, block_size=self.block_size)

    def split(self, prompt_tokens: int) -> tuple[BlockHashes, BlockHashes]:
        """Return the first ``prompt_tokens`` as a prompt, and what is cached of the text after the answer as context.

        The two share memory.
        """
        hashes, tokens, block_size = self
        cached = cached_tokens(prompt_tokens, tokens - prompt_tokens)
        context = BlockHashes(hashes[: cached // block_size], token_count=cached, block_size=block_size)
        return context.head(prompt_tokens // block_size, prompt_tokens), context

    def request(self, arrival_s: float, prompt_tokens: int, **named: Any) -> Request:
        """Return the request whose prompt is the first ``prompt_tokens`` of this text, and whose answer is the rest."""
        prompt, context = self.split(prompt_tokens)
        return Request(arrival_s, prompt, context, prompt_tokens, self.tokens - prompt_tokens, **named)
