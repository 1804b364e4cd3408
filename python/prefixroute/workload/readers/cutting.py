"""Text cut into blocks: by bytes alone, or so that each prompt has the tokens that the log says it had.

Blocks of text are named by a chain of hashes over bytes. Equal prefixes must be cut at equal places, whatever the
number of tokens of the prompts they are in. :class:`Ruler` therefore remembers where it has cut: what a prompt shares
with earlier ones is cut as it was there, and the rest of its reported tokens is spread over the rest of its bytes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final, NamedTuple

import numpy as np

from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.limits import BYTES_PER_TOKEN
from prefixroute.recent import Recent
from prefixroute.types import Namespace
from prefixroute.workload.request import cached_tokens

MOST_CUTS: Final = 2_000_000
"""Places that a ruler remembers, some 130 bytes each. What is new in later texts is cut as if nobody had had it
before."""

_MOST_RECENT = 2_048
"""Texts whose cuts are remembered as lists, so that a next turn need not follow them one by one."""
_WINDOW = 32
"""Names in which a text that is known has a cut: 512 bytes for blocks of 16 tokens, four times what these have at
most."""
_NEAR = 16
_ALIKE = 1.25
"""How far the reported tokens of an answer may be from those of its text. Beyond that they have reasoning that is not
repeated."""


class Cut(NamedTuple):
    """A prompt and its context in blocks, and their lengths in tokens."""

    prompt: BlockHashes
    context: BlockHashes
    prompt_tokens: int
    output_tokens: int


def answered(prompt: BlockHashes, context: BlockHashes, repeated: int, output: int | None) -> Cut:
    """Return a request's blocks: of its context those that are cached once it has been answered.

    Args:
        prompt: its blocks.
        context: those of prompt and answer; the prompt's own where the answer is not known.
        repeated: tokens of the answer that a next prompt repeats.
        output: tokens of the answer, where they are reported.
    """
    tokens = prompt.token_count
    if context is not prompt:
        cached = cached_tokens(tokens, repeated)
        context = context.head(min(len(context), cached // prompt.block_size), cached)
    return Cut(prompt, context, tokens, repeated if output is None else output)


class EvenCutter:
    """Cuts text into blocks of as many bytes each: of ``block_size`` tokens at one rate for the whole log."""

    def __init__(self, block_size: int, bytes_per_token: float) -> None:
        """Round the bytes of a block to a whole number of units of 4 bytes."""
        self.block_size = block_size
        self.unit = max(1, round(bytes_per_token * block_size / BYTES_PER_TOKEN))

    @property
    def bytes_per_token(self) -> float:
        """The rate, as rounded."""
        return BYTES_PER_TOKEN * self.unit / self.block_size

    def cut(
        self, prompt: bytes, answer: bytes, namespace: Namespace | None, reported: int | None, output: int | None
    ) -> Cut:
        """Return prompt and answer in blocks; the reported tokens of the prompt change nothing."""
        del reported
        hashes = hash_blocks(prompt + answer, self.unit, namespace)
        bytes_per_block = BYTES_PER_TOKEN * self.unit
        tokens, held = (
            math.ceil(size * self.block_size / bytes_per_block) for size in (len(prompt), len(prompt) + len(answer))
        )
        context = BlockHashes(hashes.array, token_count=held, block_size=self.block_size)
        blocks = context.head(len(prompt) // bytes_per_block, tokens)
        return answered(blocks, context if answer else blocks, held - tokens, output)


class Ruler:
    """Cuts each prompt into the blocks of its reported tokens, where equal prefixes are cut alike.

    Order matters: the first text with a prefix settles how it is cut. A pass over a log has a ruler of its own. A cut
    is known by the hash of the text up to it, and remembers the cut before it: texts that part between two cuts may
    each have put one there, and a text that goes on has the cuts of that which it goes on with.
    """

    def __init__(self, block_size: int, bytes_per_token: float) -> None:
        """Take the rate of texts whose tokens nobody reports."""
        self.block_size, self.bytes_per_token = block_size, bytes_per_token
        self._unit = max(1, block_size // BYTES_PER_TOKEN)
        self._width = BYTES_PER_TOKEN * self._unit
        self._before: dict[int, int] = {}
        self._recent: Recent[int, list[int]] = Recent(_MOST_RECENT)

    def cut(
        self, prompt: bytes, answer: bytes, namespace: Namespace | None, reported: int | None, output: int | None
    ) -> Cut:
        """Return prompt and answer in blocks.

        Args:
            prompt: its text.
            answer: the text that a next prompt repeats of the answer.
            namespace: what may share blocks.
            reported: tokens of the prompt, where they are known.
            output: tokens of the answer, likewise.
        """
        fine = hash_blocks(prompt + answer, self._unit, namespace).array
        names = fine.tolist()
        cuts = self._known(names)
        known = len(cuts)
        inside = len(prompt) // self._width
        earlier = sum(place < inside for place in cuts)
        tokens = self._tokens(cuts[:earlier], len(prompt)) if reported is None else reported
        if earlier < tokens // self.block_size and earlier == len(cuts):
            cuts += self._spread(cuts, len(prompt), tokens, inside)
            earlier = len(cuts)
        full = min(tokens // self.block_size, earlier)
        repeated = math.ceil(len(answer) * tokens / max(1, len(prompt)))
        if output is not None and repeated / _ALIKE <= output <= repeated * _ALIKE:
            repeated = output
        held = tokens + repeated
        if answer and len(cuts) < held // self.block_size:
            cuts += self._spread(cuts, len(prompt) + len(answer), held, len(names))
        self._remember(names, cuts, known)
        chain = fine[cuts[: max(full, held // self.block_size)]]
        context = BlockHashes(chain, token_count=max(held, len(chain) * self.block_size), block_size=self.block_size)
        blocks = context.head(full, tokens)
        return answered(blocks, context if len(chain) > full else blocks, repeated, output)

    def _known(self, names: list[int]) -> list[int]:
        """Return where earlier texts were cut that begin like this one: the last such place, and those before it."""
        before = self._before
        at = self._last_known(names)
        if at < 0:
            return []
        recent = self._recent.get(names[at])
        if recent is not None:
            return list(recent)
        cuts: list[int] = []
        while True:
            cuts.append(at)
            name = before[names[at]]
            if not name:
                return cuts[::-1]
            at = _last(names, name, at)

    def _last_known(self, names: list[int]) -> int:
        """Return the last place where an earlier text was cut, or -1.

        Windows of names are searched by halves: those with a cut come first, since earlier texts share a beginning.
        """
        known = self._before.keys()
        windows = range(0, len(names), _WINDOW)
        after = bisect_left(windows, x=True, key=lambda first: known.isdisjoint(names[first : first + _WINDOW]))
        at = min(len(names), after * _WINDOW) - 1
        while at >= 0 and names[at] not in known:
            at -= 1
        return at

    def _remember(self, names: list[int], cuts: list[int], known: int) -> None:
        if cuts:
            self._recent[names[cuts[-1]]] = cuts
        if len(self._before) >= MOST_CUTS:
            return
        last = names[cuts[known - 1]] if known else 0
        for place in cuts[known:]:
            name = names[place]
            self._before[name] = last
            last = name

    def _tokens(self, cuts: list[int], size: int) -> int:
        """Return the tokens of a prompt that nobody has counted.

        Those of its known blocks, and the rest at the log's rate.
        """
        start = (cuts[-1] + 1) * self._width if cuts else 0
        return len(cuts) * self.block_size + math.ceil((size - start) / self.bytes_per_token)

    def _spread(self, cuts: list[int], size: int, tokens: int, end: int) -> list[int]:
        """Return where further blocks end, evenly over the bytes that are left, before the fine block ``end``."""
        start, left = (cuts[-1] + 1) * self._width if cuts else 0, tokens - len(cuts) * self.block_size
        count = tokens // self.block_size - len(cuts)
        ends = start + (size - start) * self.block_size * np.arange(1, count + 1) / max(1, left)
        places = np.unique(np.minimum((ends / self._width).astype(np.int64), end) - 1)
        first = cuts[-1] if cuts else -1
        return [int(place) for place in places if place > first]


def _last(names: list[int], name: int, end: int) -> int:
    """Return where a name stands before ``end``: soon before, where cuts are as dense as they mostly are."""
    near = max(0, end - _NEAR)
    try:
        return names.index(name, near, end)
    except ValueError:
        return names.index(name, 0, near)
