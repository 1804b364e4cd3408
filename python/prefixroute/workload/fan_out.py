"""Groups of identical prompts at one instant: best of n, rollouts of reinforcement learning, voting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from prefixroute.workload.arrivals import Arrivals, Even
from prefixroute.workload.generator import generator
from prefixroute.workload.request import CacheEntry, Request
from prefixroute.workload.shape import Shape
from prefixroute.workload.streams import chain_key, stream
from prefixroute.workload.text import Text


@dataclass(frozen=True, slots=True)
class FanOutShape(Shape):
    """Sizes of the fan-out workload. Planning figures.

    Attributes:
        copies: requests with the same prompt, all at once.
        shared_tokens: what the prompts of all groups begin with.
        prompt_tokens: what only the copies of one group share.
        answer_tokens: tokens of each answer; answers differ.
    """

    KIND: ClassVar[str] = "fan_out"
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"shared_tokens", "answer_tokens"})

    copies: int = 8
    shared_tokens: int = 1_000
    prompt_tokens: int = 3_000
    answer_tokens: int = 500

    @property
    def usual_arrivals(self) -> Arrivals:
        """As many requests as one million a day, which come as groups."""
        return Even(Even().rate_per_s / self.copies)

    @property
    def longest_tokens(self) -> int:
        """Tokens of a prompt and one answer."""
        return self.shared_tokens + self.prompt_tokens + self.answer_tokens

    def kept_tokens(self, requests: int) -> float:  # noqa: ARG002 - one group at a time
        """Return the tokens of one prompt and its answer."""
        return self.longest_tokens


@generator(FanOutShape)
def fan_out(seed: int, count: int, block_size: int, arrivals: Arrivals, shape: FanOutShape) -> Iterator[Request]:
    """Return the fan-out workload: groups arrive by ``arrivals``, the requests of a group at one time.

    There are no sessions; ``document`` names the group.
    """
    times = arrivals.times(stream(seed, "fan_out.arrivals"))
    shared = Text.of(chain_key(seed, "fan_out.shared"), shape.shared_tokens, block_size)
    for first, time in zip(range(0, count, shape.copies), times, strict=False):
        group = first // shape.copies
        prompt = shared.then(chain_key(seed, "fan_out.prompt", group), shape.prompt_tokens)
        blocks = prompt.blocks
        name = f"group-{seed}-{group}"
        for number in range(first, min(first + shape.copies, count)):
            answered = prompt.then(chain_key(seed, "fan_out.answer", number), shape.answer_tokens)
            yield Request(
                time,
                blocks,
                answered.split(prompt.tokens)[1],
                prompt.tokens,
                shape.answer_tokens,
                document=name,
                entry=CacheEntry(name, prompt.tokens, shape.shared_tokens),
            )
