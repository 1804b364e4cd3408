"""Groups of identical prompts at one instant: best of n, rollouts of reinforcement learning, voting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from prefixroute.workload.arrivals import Arrivals, Even
from prefixroute.workload.request import Entry, Request
from prefixroute.workload.shape import Shape
from prefixroute.workload.streams import chain_key, stream
from prefixroute.workload.text import Text
from prefixroute.workload.workload import Workload


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
    def longest_tokens(self) -> int:
        """Tokens of a prompt and one answer."""
        return self.shared_tokens + self.prompt_tokens + self.answer_tokens

    def kept_tokens(self, requests: int) -> float:  # noqa: ARG002 - one group at a time
        """Return the tokens of one prompt and its answer."""
        return self.longest_tokens


def fan_out(
    seed: int = 1,
    *,
    requests: int = 40_000,
    block_size: int = 16,
    arrivals: Arrivals | None = None,
    shape: FanOutShape | None = None,
) -> Workload:
    """Return the fan-out workload: groups arrive by ``arrivals``, the requests of a group at one time.

    There are no sessions; ``document`` names the group.

    Args:
        seed: 0 or more; another seed is another draw, with other names.
        requests: how many, all groups together; the last group may be short.
        block_size: tokens a block.
        arrivals: when groups arrive; as many requests as one million a day, evenly, unless given.
        shape: sizes; planning figures unless given.
    """
    sizes = FanOutShape() if shape is None else shape
    sizes.check(block_size, requests)

    def source() -> Iterator[Request]:
        process = arrivals or Even(Even().rate_per_s / sizes.copies)
        return _requests(seed, requests, block_size, process, sizes)

    return Workload("fan-out", block_size, source, requests, sizes.behind(arrivals))


def _requests(seed: int, count: int, block_size: int, arrivals: Arrivals, shape: FanOutShape) -> Iterator[Request]:
    times = arrivals.times(stream(seed, "fan_out.arrivals"))
    shared = Text.empty(block_size).then(chain_key(seed, "fan_out.shared"), shape.shared_tokens)
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
                entry=Entry(name, prompt.tokens, shape.shared_tokens),
            )
