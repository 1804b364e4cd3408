"""Conversations that grow turn by turn behind one shared system prompt: the article's chat workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prefixroute.draws import chain
from prefixroute.hashing import BlockHashes
from prefixroute.types import EMPTY_ATTRS, new_tuple
from prefixroute.workload.arrivals import Arrivals
from prefixroute.workload.generator import generator
from prefixroute.workload.request import CacheEntry, Request, cached_tokens
from prefixroute.workload.shape import Shape
from prefixroute.workload.streams import chain_key, stream

_BATCH = 4096


@dataclass(frozen=True, slots=True)
class ChatShape(Shape):
    """Sizes of the chat workload in tokens. The defaults are the article's.

    Prompt of turn k = system + user + (user + answer) * (k - 1). ``slots`` conversations are open at any time.
    """

    KIND: ClassVar[str] = "chat"
    SOURCE: ClassVar[str] = "reference article's chat scenario, 2026-11"
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"system_tokens", "answer_tokens"})

    system_tokens: int = 2_000
    user_tokens: int = 200
    answer_tokens: int = 400
    turns: int = 12
    slots: int = 200

    def prompt_tokens(self, turn: int) -> int:
        """Return the prompt's length at the given turn, counted from 0.

        Args:
            turn: of the conversation.
        """
        return self.system_tokens + self.user_tokens + turn * (self.user_tokens + self.answer_tokens)

    @property
    def longest_tokens(self) -> int:
        """Tokens of a whole conversation."""
        return self.prompt_tokens(self.turns - 1) + self.answer_tokens

    def kept_tokens(self, requests: int) -> float:
        """Return the tokens of the conversations that are open."""
        return min(self.slots, requests) * self.longest_tokens


@dataclass(slots=True)
class _Slot:
    """The conversation that a slot is at."""

    name: str
    text: BlockHashes
    turn: int


@generator(ChatShape)
def chat(seed: int, count: int, block_size: int, arrivals: Arrivals, shape: ChatShape) -> Iterator[Request]:
    """Return the chat workload: each request picks a slot uniformly at random and advances its conversation one turn.

    After its last turn a slot gets a new conversation at its next pick. A replica that served a request holds prompt
    and answer. Requests cost a few microseconds each to make and are not kept.
    """
    picks = _picks(stream(seed, "chat.slots"), shape.slots, count)
    times = arrivals.times(stream(seed, "chat.arrivals"))
    system = chain(chain_key(seed, "chat.system"), 0, shape.system_tokens // block_size)
    answer, shared = shape.answer_tokens, shape.system_tokens
    prompts = [shape.prompt_tokens(turn) for turn in range(shape.turns)]
    caches = [cached_tokens(prompt, answer) for prompt in prompts]
    turns = [
        (prompt // block_size, prompt, cached // block_size, cached)
        for prompt, cached in zip(prompts, caches, strict=True)
    ]
    whole = prompts[-1] + answer
    finished = _Slot("", BlockHashes(system, token_count=len(system) * block_size, block_size=block_size), shape.turns)
    slots = [finished] * shape.slots
    opened = 0
    for pick, time in zip(picks, times, strict=False):
        slot = slots[pick]
        if slot.turn == shape.turns:
            own = chain(chain_key(seed, "chat.conversation", opened), len(system), whole // block_size)
            text = BlockHashes(np.concatenate([system, own]), token_count=whole, block_size=block_size)
            slot = slots[pick] = _Slot(f"chat-{seed}-{opened}", text, 0)
            opened += 1
        blocks, prompt, cached_blocks, cached = turns[slot.turn]
        slot.turn += 1
        name, head = slot.name, slot.text.head
        heads = head(blocks, prompt), head(cached_blocks, cached)
        entry = new_tuple(CacheEntry, (name, prompt + answer, shared))
        yield new_tuple(Request, (time, *heads, prompt, answer, name, None, None, None, entry, None, EMPTY_ATTRS, None))


def _picks(rng: np.random.Generator, slots: int, count: int) -> Iterator[int]:
    for first in range(0, count, _BATCH):
        yield from rng.integers(0, slots, min(_BATCH, count - first)).tolist()
