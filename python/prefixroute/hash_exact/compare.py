"""Recompute the hashes of store events under one scheme, and keep where the first difference of each chain lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from prefixroute.errors import ConfigError
from prefixroute.hash_exact.scheme import Content, HashScheme, NotReproducibleError, Reason
from prefixroute.hash_exact.stored import U64, StoredEvent


class HashedBlock(NamedTuple):
    """One block of an event.

    Attributes:
        content: what entered its hash beside tokens.
        number: its number in the event.
        size: its tokens.
        at_root: whether it is the prompt's first.
        masked: whether blocks before it were not stored, so that their content is not known.
    """

    content: Content
    number: int
    size: int
    at_root: bool
    masked: bool

    @property
    def kinds(self) -> dict[Reason, Any]:
        """What besides tokens entered its hash, by the reason that it may be of a difference."""
        media = (
            *self.content.media_in(self.number, self.size),
            *(d for n, d in self.content.embeds if n == self.number),
        )
        found: dict[Reason, Any] = {"lora": self.content.lora, "salt": self.content.salt, "media": media or None}
        return {kind: value for kind, value in found.items() if value is not None}


@dataclass(slots=True)
class HashComparison:
    """What a scheme makes of events.

    Attributes:
        matched: blocks whose hash it reproduces.
        mismatched: number of blocks whose hash it does not.
        first: of these the ones that begin to differ: all before them in their chain agrees.
        unchecked: number of blocks that could not be computed.
        orphans: number of these that are behind a block that no event names.
        refused: why others were not computed.
    """

    matched: list[HashedBlock] = field(default_factory=list)
    mismatched: int = 0
    first: list[HashedBlock] = field(default_factory=list)
    unchecked: int = 0
    orphans: int = 0
    refused: list[NotReproducibleError] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether at least one block was reproduced and none was not."""
        return bool(self.matched) and not self.mismatched


def compare(events: Iterable[StoredEvent], scheme: HashScheme[Any], unit: int | None = None) -> HashComparison:
    """Recompute events from the root of their prompts.

    Args:
        events: oldest first.
        scheme: how to hash.
        unit: tokens in a block of the chain, where events have longer ones; ``None`` = as events have.
    """
    found = HashComparison()
    known: dict[int, Any] = {}
    for event in events:
        state = _begin(event, scheme, known)
        if state is None:
            found.unchecked += len(event.hashes)
            found.orphans += len(event.hashes)
            continue
        sound, done = True, 0
        try:
            for number, after, agrees in _walk(event, scheme, state, unit):
                done = number + 1
                if agrees is None:
                    found.unchecked += 1
                    continue
                block = _block(event, number)
                if agrees:
                    found.matched.append(block)
                    known[event.hashes[number]] = after
                else:
                    found.mismatched += 1
                    found.first += [block] if sound else []
                    sound = False
        except ConfigError as error:
            found.unchecked += len(event.hashes) - done
            found.refused += [error] if isinstance(error, NotReproducibleError) else []
    return found


def continues(events: Iterable[StoredEvent], scheme: HashScheme[Any], unit: int | None = None) -> bool:
    """Return whether each block follows from what is published of the one before, whatever the root is.

    ``False`` also if what the scheme publishes does not tell the state that the next block needs.
    """
    checked = 0
    for event in events:
        digests = event.digests or (None,) * len(event.hashes)
        before = [(event.parent, event.parent_digest), *zip(event.hashes, digests, strict=True)]
        for number, (published, digest) in enumerate(before[: len(event.hashes)]):
            state = None if published is None or event.masked else scheme.resumed(published, digest)
            tokens = event.block(number, scheme.look_ahead)
            if state is None or len(tokens) < event.block_size + scheme.look_ahead:
                continue
            try:
                after = _stepped(scheme, state, tokens, _block(event, number), unit)
                if scheme.published(after, event.contents[number]) % U64 != event.hashes[number]:
                    return False
            except ConfigError:
                continue
            checked += 1
    return checked > 0


def _block(event: StoredEvent, number: int) -> HashedBlock:
    return HashedBlock(
        event.contents[number], number, event.block_size, not number and event.parent is None, event.masked
    )


def _begin(event: StoredEvent, scheme: HashScheme[Any], known: dict[int, Any]) -> Any:
    """Return the state before an event; ``None`` = behind a block that is not known."""
    if event.parent is None:
        return scheme.root(event.contents[0])
    state = known.get(event.parent)
    return scheme.resumed(event.parent, event.parent_digest) if state is None else state


def _walk(
    event: StoredEvent, scheme: HashScheme[Any], state: Any, unit: int | None
) -> Iterator[tuple[int, Any, bool | None]]:
    """Yield each block's number, the state after it, and whether its hash agrees; ``None`` = tokens are missing."""
    if event.masked:
        yield from _walk_masked(event, scheme, state, unit)
        return
    for number, told in enumerate(event.hashes):
        tokens, content = event.block(number, scheme.look_ahead), event.contents[number]
        short = len(tokens) < event.block_size + scheme.look_ahead
        if short and not (scheme.partial_tail and len(tokens) > scheme.look_ahead):
            yield number, state, None
            continue
        state = _stepped(scheme, state, tokens, _block(event, number), unit)
        yield number, state, scheme.published(state, content) % U64 == told


def _walk_masked(
    event: StoredEvent, scheme: HashScheme[Any], state: Any, unit: int | None
) -> Iterator[tuple[int, Any, bool]]:
    """Find which blocks of the prompt the hashes are of. What the other blocks hold besides tokens is not told."""
    number = 0
    for position in range(len(event.token_ids) // event.block_size):
        if number == len(event.hashes):
            return
        tokens, block = event.block(position, scheme.look_ahead), _block(event, number)
        after = _stepped(scheme, state, tokens, block, unit)
        if scheme.published(after, block.content) % U64 == event.hashes[number]:
            yield number, after, True
            state, number = after, number + 1
        else:
            bare = replace(block.content, salt=None, media=(), embeds=())
            state = _stepped(scheme, state, tokens, block._replace(content=bare), unit)
    for missing in range(number, len(event.hashes)):
        yield missing, state, False


def _stepped(scheme: HashScheme[Any], state: Any, tokens: tuple[int, ...], block: HashedBlock, unit: int | None) -> Any:
    """Add a block, whole or in parts, to a chain."""
    size = unit or block.size
    parts = max(1, (len(tokens) - scheme.look_ahead) // size)
    for part in range(parts):
        chunk = tokens[part * size : (part + 1) * size + scheme.look_ahead]
        state = scheme.step(state, chunk, block.number * parts + part, size, block.content)
    return state
