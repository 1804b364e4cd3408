"""What every exact hash scheme has in common: a chain of states, one per block, and the number that is published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import index
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

from prefixroute.errors import ConfigError, TokensError
from prefixroute.validation import check_int, shown

State = TypeVar("State")
Reason = Literal[
    "algorithm",
    "seed",
    "legacy",
    "look_ahead",
    "format",
    "model",
    "block_size",
    "lora",
    "salt",
    "media",
    "extra_key",
    "parent",
    "tokenizer",
    "unknown",
]
"""Why hashes or prompts do not agree, see :class:`~prefixroute.hash_exact.Verification`."""
COMMON_SEEDS = ("", "0", "1", "42")
"""Hash seeds that deployments use."""


class NotReproducibleError(ConfigError):
    """A hash covers something that is not known outside of the engine.

    Attributes:
        reason: what it covers.

    Args:
        reason: what is not known.
        message: the sentence.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SchemeChoice(NamedTuple):
    """A field of a scheme that engines set in different ways.

    Attributes:
        reason: what is named when it is set otherwise.
        values: how it may be set, likeliest first.
        told: how it is told to people, with the value in it.
    """

    reason: Reason
    values: tuple[Any, ...]
    told: str


class Variant(NamedTuple):
    """Another setting of a scheme.

    Attributes:
        reasons: what is otherwise, most telling first.
        detail: the same for people.
        scheme: the scheme so set.
    """

    reasons: tuple[Reason, ...]
    detail: str
    scheme: HashScheme[Any]


@dataclass(frozen=True, slots=True)
class Media:
    """An image, an audio clip or another item whose content is not in the token ids.

    Attributes:
        identifier: the engine's name for the content, usually a digest; an integer where the scheme hashes integers.
        first: position of its first placeholder token in the prompt.
        tokens: number of placeholder tokens.
    """

    identifier: str | int
    first: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Content:
    """What besides the token ids enters the hashes of a prompt.

    Attributes:
        lora: name of the adapter.
        lora_path: where the engine loaded the adapter from (vLLM hashes it, and its events do not carry it).
        salt: the cache salt of the request.
        media: items in the prompt, in the order of their positions.
        embeds: digest of the prompt embeddings of each block that has some, by block number (vLLM).
    """

    lora: str | None = None
    lora_path: str = ""
    salt: str | None = None
    media: tuple[Media, ...] = ()
    embeds: tuple[tuple[int, bytes | str], ...] = ()

    def media_in(self, block: int, block_size: int) -> Iterator[Media]:
        """Yield the items that overlap a block.

        Args:
            block: its number, from 0.
            block_size: tokens in a block.
        """
        begin = block * block_size
        for item in self.media:
            if item.first < begin + block_size and item.first + item.tokens > begin:
                yield item


PLAIN = Content()
"""A prompt that is its token ids and nothing else."""


class HashScheme(ABC, Generic[State]):
    """A way of naming the blocks of a prompt by integers, equal to what an engine or another router computes.

    A scheme is a chain: :meth:`root` is the state before the first block, :meth:`step` adds a block, and
    :meth:`published` is the integer that events and indexes carry for a state. Immutable and thread-safe. Costs a few
    microseconds a block: this is for verification and for external stores. Routing matches token ids instead.
    """

    partial_tail = False
    """Whether a short last block is hashed too."""
    look_ahead = 0
    """Tokens after a block that enter its hash (EAGLE)."""
    choices: ClassVar[Mapping[str, SchemeChoice]] = {}
    """Fields that an engine may have set otherwise, most telling first."""
    root_inputs: ClassVar[tuple[Reason, ...]] = ()
    """What the root covers that no event carries."""
    hidden: ClassVar[tuple[Reason, ...]] = ("lora", "salt", "media")
    """What a hash covers and an event may leave out, as those of connectors do."""

    @abstractmethod
    def root(self, content: Content = PLAIN) -> State:
        """Return the state before the first block.

        Args:
            content: what the prompt has beside its token ids.
        """

    @abstractmethod
    def step(self, state: State, tokens: Sequence[int], block: int, block_size: int, content: Content = PLAIN) -> State:
        """Return the state after a block.

        Args:
            state: the state before it.
            tokens: its token ids, followed by ``look_ahead`` more.
            block: its number in the prompt, from 0.
            block_size: tokens of a full block.
            content: what else the prompt holds.
        """

    @abstractmethod
    def published(self, state: State, content: Content = PLAIN) -> int:
        """Return the integer by which the last block of a state is known outside.

        Args:
            state: behind a block.
            content: what the prompt has beside its token ids.
        """

    def resumed(self, published: int, digest: bytes | None) -> State | None:
        """Return the state that a published block stands for; ``None`` = what is published does not tell it.

        Args:
            published: the block's integer.
            digest: its whole digest, where the engine publishes bytes.
        """
        del published, digest
        return None

    def variants(self) -> Iterator[Variant]:
        """Yield the other settings of the scheme that engines use, fewest changes first."""
        names = list(self.choices)
        found = []
        for values in product(*(self.choices[name].values for name in names)):
            changed = {name: new for name, new in zip(names, values, strict=True) if new != getattr(self, name)}
            if changed:
                found.append(changed)
        for changed in sorted(found, key=len):
            told = ", ".join(self.choices[name].told.format(shown(value)) for name, value in changed.items())
            try:
                yield Variant(tuple(self.choices[name].reason for name in changed), told, self._with(changed))
            except ConfigError:
                continue  # a root that is random in every process, or a library that is not installed

    def _with(self, changed: Mapping[str, Any]) -> Self:
        return replace(self, **changed)  # type: ignore[type-var]  # every scheme is a dataclass

    def states(
        self,
        tokens: Any,
        block_size: int,
        content: Content = PLAIN,
        *,
        first_block: int = 0,
        state: State | None = None,
    ) -> list[State]:
        """Return the state after each block.

        Args:
            tokens: token ids; a sequence or an array of integers.
            block_size: tokens in a block.
            content: what else the prompt holds.
            first_block: number of the first block in the prompt, if the tokens continue a chain.
            state: the state that the tokens continue; ``None`` = the root.

        Raises:
            TokensError: something is not a token id.
            ConfigError: the block size is out of bounds, or the scheme cannot hash this content.
        """
        check_int("block_size", block_size, 1)
        ids = token_list(tokens)
        current = self.root(content) if state is None else state
        end = len(ids) - self.look_ahead
        if not self.partial_tail:
            end -= end % block_size
        states = []
        for begin in range(0, max(end, 0), block_size):
            last = min(begin + block_size, end) + self.look_ahead
            number = first_block + begin // block_size
            current = self.step(current, ids[begin:last], number, block_size, content)
            states.append(current)
        return states

    def hashes(self, tokens: Any, block_size: int, content: Content = PLAIN) -> list[int]:
        """Return the published integer of each block. Arguments and errors as for :meth:`states`.

        Args:
            tokens: ids of the prompt.
            block_size: tokens in a block.
            content: what the prompt has beside its token ids.
        """
        return [self.published(state, content) for state in self.states(tokens, block_size, content)]


def token_list(tokens: Any) -> list[int]:
    """Return token ids as plain non-negative integers; raise TokensError at the first that is none."""
    ids = []
    for position, token in enumerate(tokens.tolist() if hasattr(tokens, "tolist") else tokens):
        try:
            number = index(token)
        except TypeError:
            number = -1
        if number < 0 or isinstance(token, bool):
            raise TokensError(f"token ids must be non-negative integers, got {shown(token)} at position {position}")
        ids.append(number)
    return ids
