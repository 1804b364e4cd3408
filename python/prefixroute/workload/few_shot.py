"""Few-shot prompts: instructions, then examples chosen down a tree, then a question that is new each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from prefixroute.workload.arrivals import Arrivals
from prefixroute.workload.generator import generator
from prefixroute.workload.request import CacheEntry, Request
from prefixroute.workload.shape import Popularity, Shape, zipf_shares
from prefixroute.workload.streams import chain_key, stream
from prefixroute.workload.text import Text


@dataclass(frozen=True, slots=True)
class FewShotShape(Shape):
    """Sizes of the few-shot workload. Planning figures.

    Attributes:
        instruction_tokens: what all prompts begin with.
        tasks: branches at the first level of the tree, chosen by Zipf's law.
        variants: branches at each further level, chosen by Zipf's law.
        levels: levels of the tree.
        example_tokens: tokens of the examples at one level.
        question_tokens: tokens of the question.
        answer_tokens: tokens of the answer.
        zipf: exponent of the popularity of branches.
    """

    KIND: ClassVar[str] = "few_shot"
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"instruction_tokens", "answer_tokens"})
    MOST: ClassVar[Mapping[str, int]] = {"levels": 64}

    instruction_tokens: int = 1_000
    tasks: int = 20
    variants: int = 4
    levels: int = 3
    example_tokens: int = 1_500
    question_tokens: int = 150
    answer_tokens: int = 50
    zipf: float = 1.0

    @property
    def longest_tokens(self) -> int:
        """Tokens of a path of the tree, a question and its answer."""
        examples = self.instruction_tokens + self.levels * self.example_tokens
        return examples + self.question_tokens + self.answer_tokens

    def kept_tokens(self, requests: int) -> float:
        """Return the tokens of the paths that are known at the end, at most."""
        paths: int = 2 * self.tasks * self.variants ** (self.levels - 1)
        return min(paths, requests * self.levels) * self.longest_tokens


@generator(FewShotShape)
def few_shot(seed: int, count: int, block_size: int, arrivals: Arrivals, shape: FewShotShape) -> Iterator[Request]:
    """Return the few-shot workload: no sessions; what requests share is a path of a tree, named by ``document``."""
    first = Popularity(stream(seed, "few_shot.tasks"), zipf_shares(shape.tasks, shape.zipf))
    further = Popularity(stream(seed, "few_shot.variants"), zipf_shares(shape.variants, shape.zipf))
    times = arrivals.times(stream(seed, "few_shot.arrivals"))
    root = Text.of(chain_key(seed, "few_shot.instructions"), shape.instruction_tokens, block_size)
    known: dict[tuple[int, ...], Text] = {(): root}
    for number, time in zip(range(count), times, strict=False):
        path: tuple[int, ...] = ()
        for level in range(shape.levels):
            before = known[path]
            path = (*path, further.draw() if level else first.draw())
            if path not in known:
                known[path] = before.then(chain_key(seed, "few_shot.examples", *path), shape.example_tokens)
        examples = known[path]
        key = chain_key(seed, "few_shot.question", number)
        name = f"shots-{seed}-{'-'.join(map(str, path))}"
        text = examples.then(key, shape.question_tokens + shape.answer_tokens)
        entry = CacheEntry(name, examples.tokens, shape.instruction_tokens)
        yield text.request(time, examples.tokens + shape.question_tokens, document=name, entry=entry)
