"""Token ids for requests that are known by block hashes alone.

Two prompts share tokens exactly where they share blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixroute.draws import scattered
from prefixroute.validation import check_int
from prefixroute.workload import Request

FIRST_TOKEN, VOCABULARY = 1_000, 30_000
"""Ids from 1,000 to 30,999: ordinary tokens of every model with a vocabulary of 32,000 or more."""
_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)


@dataclass(frozen=True, slots=True)
class SynthesizedPrompt:
    """One request as token ids.

    Attributes:
        tokens: the prompt.
        output: what the trace's answer was; the next turn of the conversation continues it.
    """

    tokens: NDArray[np.uint32]
    output: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class PromptMaker:
    """Makes up the tokens of a workload.

    A chained hash covers all that stands before its block. So equal hashes become equal tokens at equal places, and
    different ones different tokens but for chance (1 in 30,000 for each token).

    Args:
        block_size: tokens in a block of the workload.
        first_token: least token id.
        vocabulary: number of token ids.
    """

    block_size: int
    first_token: int = FIRST_TOKEN
    vocabulary: int = VOCABULARY

    def __post_init__(self) -> None:
        """Refuse a vocabulary that no model has."""
        check_int("block_size", self.block_size, 1)
        check_int("first_token", self.first_token, 0)
        check_int("vocabulary", self.vocabulary, 2, (1 << 32) - self.first_token)

    def make(self, request: Request, number: int) -> SynthesizedPrompt:
        """Return the tokens of the ``number``-th request of the workload.

        Args:
            request: of the workload.
            number: of the request, from 0.
        """
        length, total = request.prompt_tokens, request.prompt_tokens + request.output_tokens
        context = request.context if len(request.context) > len(request.prompt) else request.prompt
        shared = self._drawn(context.array, self.block_size)
        # What stands behind the last full block is shared with nobody.
        own = self._drawn(scattered(np.array([number], np.uint64)), max(0, total - len(shared)))
        tokens = np.concatenate([shared, own])[:total]
        return SynthesizedPrompt(tokens[:length], tokens[length:])

    def _drawn(self, seeds: NDArray[np.uint64], count: int) -> NDArray[np.uint32]:
        """Return ``count`` token ids for each seed, one after another."""
        with np.errstate(over="ignore"):
            numbers = seeds[:, None] + np.arange(1, count + 1, dtype=np.uint64)[None, :] * _STEP
        drawn = scattered(numbers.ravel()) % np.uint64(self.vocabulary)
        return (drawn + np.uint64(self.first_token)).astype(np.uint32)
