"""Random histories of events of engines of any shape: what matches is what the engine could use again."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from math import lcm
from typing import Any

import msgpack
import pytest

from prefixroute.index import PrefixIndex
from prefixroute.types import Namespace

BLOCK = 4
STEPS = 40
TIERS = {"CPU_PINNED": "CPU", "STORAGE": "DISK"}
IMAGE = ("image", 2, 6)  # its digest, where it begins, its tokens

Residence = tuple[str, str | None]


@dataclass(frozen=True)
class Space:
    """What keeps equal tokens apart."""

    lora: str = ""
    salt: str = ""
    image: bool = False

    def namespace(self) -> Namespace:
        return Namespace(lora=self.lora, salt=self.salt, extra=((IMAGE[1], IMAGE[0]),) if self.image else ())

    def keys(self, start: int, end: int) -> list[Any] | None:
        digest, begin, tokens = IMAGE
        image = [[digest, begin - start]] if self.image and begin < end and begin + tokens > start else []
        salt = [self.salt] if self.salt and start == 0 else []
        return [*([self.lora] if self.lora else []), *image, *salt] or None


SPACES = [
    Space(),
    Space(lora="x"),
    Space(salt="x"),
    Space(lora="x", salt="x"),
    Space(image=True),
    Space(lora="y", salt="z", image=True),
]


@dataclass(frozen=True)
class Prompt:
    """Token ids, and what keeps them apart."""

    ids: tuple[int, ...]
    space: Space

    @cache  # noqa: B019 - a test has few prompts, and they live as long as it
    def name(self, end: int) -> int:
        """The engine's hash of the prompt up to there: the same in each of its groups."""
        return int.from_bytes(hashlib.sha256(repr((self.space, self.ids[:end])).encode()).digest()[-8:], "big")


@dataclass(frozen=True)
class Group:
    """An attention group; full attention has no window."""

    index: int
    size: int
    window: int = 0


class Engine:
    """What an engine holds, one block of one group at a time, and the events that say so."""

    def __init__(self, draw: random.Random, mode: str) -> None:
        self.draw, self.mode = draw, mode
        self.reuse_reports = "R" in mode and draw.random() < 0.7
        self.full = Group(draw.randrange(3), draw.choice([4, 4, 8, 8, 1, 2, 3, 6, 12]))
        places = [index for index in range(3) if index != self.full.index]
        sliding = places[: draw.randrange(1, 3)] if "W" in mode else []
        self.windows = [
            Group(index, draw.choice([2, 3, 4, 4, 6, 8, 12]), draw.choice([3, 5, 8, 9, 17])) for index in sliding
        ]
        self.copies: Counter[tuple[int, int, Residence]] = Counter()
        self.spoken: set[int] = set()
        self.above: dict[int, int] = {}
        spaces = [space for space in SPACES if self.full.size % BLOCK == 0 or not space.image]
        spaces = draw.sample(spaces, 3)
        self.step = lcm(BLOCK, *(group.size for group in (self.full, *self.windows)))
        tokens: list[tuple[int, ...]] = []
        whole = lcm(BLOCK, self.full.size)
        for _ in range(4):
            shared = draw.randrange(1, self.step // whole + 1) * whole if tokens and draw.random() < 0.7 else 0
            head = draw.choice(tokens)[:shared] if shared else ()
            fresh = (draw.randrange(1, 90_000) for _ in range(draw.randrange(self.step, 2 * self.step + 9)))
            tokens.append((*head, *fresh))
        self.prompts = [Prompt(ids, space) for ids in tokens for space in spaces]

    def holds(self, group: Group, name: int) -> bool:
        return any(self.copies[group.index, name, residence] > 0 for residence in self.residences())

    def residences(self) -> Iterator[Residence]:
        media = ["GPU", *(["CPU", "DISK", "EXTERNAL", "TAPE"] if "M" in self.mode else [])]
        return ((medium, owner) for medium in media for owner in ([None, "o", "p"] if "O" in self.mode else [None]))

    def residence(self) -> Residence:
        return self.draw.choice(list(self.residences())) if self.draw.random() < 0.5 else ("GPU", None)

    def store(self) -> Iterator[dict[str, Any]]:
        """A prompt, in all groups, each behind a block that it has."""
        prompt, where = self.draw.choice(self.prompts), self.residence()
        length = len(prompt.ids)
        groups = [self.full, *self.windows]
        self.draw.shuffle(groups)
        for group in groups:
            begins = [at for at in range(group.size, length, group.size) if self.holds(group, prompt.name(at))]
            masked = group.window and "C" in self.mode and self.draw.random() < 0.5
            begin = self.draw.choice([0, *(at for at in begins if not masked or at % self.step == 0)])
            ends = list(range(begin + group.size, length + 1, group.size))
            ends = ends[: self.draw.randrange(1, len(ends) + 1)] if ends else []
            kept = [end for end in ends if not masked or self.is_kept(group, end)]
            if kept:
                event = self.stored(group, prompt, kept, where)
                parent = prompt.name(begin) if begin else None
                yield {**event, "parent_block_hash": parent, "token_ids": prompt.ids[begin : ends[-1]]}

    def is_kept(self, group: Group, end: int) -> bool:
        """Engines that leave out blocks keep those of the windows before the ends that all groups have."""
        return -end % self.step < max(group.window - 1, 1)

    def stored(self, group: Group, prompt: Prompt, ends: list[int], where: Residence) -> dict[str, Any]:
        names = [prompt.name(end) for end in ends]
        self.spoken.add(group.index)
        for end, name in zip(ends, names, strict=True):
            held = self.copies[group.index, name, where]
            self.copies[group.index, name, where] = 1 if self.reuse_reports else held + 1
            if not group.window:
                self.above[name] = prompt.name(end - group.size)
        kind = "sliding_window" if group.window else "full_attention"
        return {
            "type": "BlockStored",
            "block_hashes": names,
            "block_size": group.size,
            "lora_name": prompt.space.lora or None,
            "extra_keys": [prompt.space.keys(end - group.size, end) for end in ends],
            "group_idx": group.index,
            "kv_cache_spec_kind": kind,
            "kv_cache_spec_sliding_window": group.window or None,
            "medium": where[0],
            "ownership": where[1],
        }

    def remove(self) -> Iterator[dict[str, Any]]:
        """A copy of any block; of pages the end of a chain, as engines do."""
        held = sorted((key for key, copies in self.copies.items() if copies > 0), key=repr)
        if self.full.size % BLOCK:
            inner = {self.above[name] for group, name, _ in held if group == self.full.index}
            held = [key for key in held if key[0] != self.full.index or key[1] not in inner]
        if held:
            group, name, (medium, owner) = key = self.draw.choice(held)
            self.copies[key] -= 1
            removed = {"type": "BlockRemoved", "block_hashes": [name], "group_idx": group}
            yield {**removed, "medium": medium, "ownership": owner}

    def usable(self, prompt: Prompt, step: int) -> int:
        """Leading tokens in whole blocks of the index that all groups have, at an end that is a multiple of the step."""
        ends = range(self.full.size, len(prompt.ids) + 1, self.full.size)
        prefix = sum(self.full.size for _ in takewhile(lambda end: self.holds(self.full, prompt.name(end)), ends))
        windows = [group for group in self.windows if group.index in self.spoken]
        every = lcm(BLOCK, *([step] if windows else []), *(group.size for group in windows))

        def has(group: Group, end: int) -> bool:
            needed = range(end, max(0, end - max(group.window - 1, 1)), -group.size)
            return all(self.holds(group, prompt.name(at)) for at in needed)

        fits = (end for end in range(prefix // every * every, 0, -every) if all(has(group, end) for group in windows))
        return next(fits, 0)


@pytest.mark.parametrize("mode", ["", "M", "RO", "RMO", "W", "WM", "WR", "WMO", "WRM", "WC", "WCM", "WRC"])
@pytest.mark.parametrize("seed", range(12))
def test_what_matches_is_what_the_engine_could_use(mode: str, seed: int) -> None:
    """An engine uses a prefix up to an end that all of its groups have. Inside a block of full attention, the index may see
    such an end of the windows too: there it may give either."""
    engine = Engine(random.Random(f"{mode} {seed}"), mode)  # noqa: S311 - a test
    index = PrefixIndex(block_size=BLOCK)
    index.add_replica("a", reuse_reports=engine.reuse_reports)
    for step in range(STEPS):
        changes = [engine.store, engine.remove, engine.remove]
        events = [event for _ in range(2) for event in engine.draw.choice(changes)()]
        done = index.apply("a", msgpack.packb([1.0, events, None]))
        assert (done.refused, done.unknown, done.orphaned, done.placeless) == (0, 0, 0, 0)
        for prompt in engine.prompts:
            found = int(index.match(prompt.ids, namespace=prompt.space.namespace())[0])
            usable = engine.usable(prompt, engine.full.size), engine.usable(prompt, 1)
            assert usable[0] <= found <= usable[1], (step, engine.full, engine.windows)
