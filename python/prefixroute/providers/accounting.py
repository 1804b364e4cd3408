"""What API calls cost, what they should have cost, and which calls missed a cache that they should have hit."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.document import figures
from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes, common_blocks, hash_blocks
from prefixroute.messages import CanonicalForm
from prefixroute.providers.catalog import Model
from prefixroute.providers.usage import Diagnosis, Usage, diagnosis_of, ideal_usd
from prefixroute.recent import Recent
from prefixroute.validation import check_float, check_instance, check_int

BLOCK_TOKENS = 16
"""Tokens of the blocks that prompts are compared by; 4 bytes of text stand for a token."""
EXPIRED, UNDER_MINIMUM, CHANGED, PARALLEL = "expired", "under minimum", "prefix changed", "too parallel"
OTHER_SCOPE, OTHER_KEY, UNKNOWN = "another workspace", "another key", "not promised, or not told"
_SPACES = 256
_SESSIONS = 10_000
_WORST = 100
_NOTHING: NDArray[np.uint64] = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One call: what it hit, what it should have hit, and why it did not.

    Attributes:
        id: the call's.
        usage: its tokens.
        usd: what it cost.
        expected_tokens: prompt tokens that an earlier call had in common with it.
        lost_tokens: expected and not read; 0 within the rounding of blocks.
        lost_usd: dollars above the cost with these tokens read.
        reason: empty where nothing was lost; otherwise the provider's word, or the likely one of this module.
        told_by_provider: whether the reason is the provider's.
        position: prompt token at which the prefix changed; None for other reasons.
    """

    id: str
    usage: Usage
    usd: float
    expected_tokens: int = 0
    lost_tokens: int = 0
    lost_usd: float = 0.0
    reason: str = ""
    told_by_provider: bool = False
    position: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return {
            "id": self.id,
            "prompt_tokens": self.usage.prompt_tokens,
            "read_tokens": self.usage.read_tokens,
            **figures(
                self, "expected_tokens", "lost_tokens", "usd", "lost_usd", "reason", "told_by_provider", "position"
            ),
        }


@dataclass(frozen=True, slots=True)
class _Call:
    """What one call says of itself; times in seconds, ``space`` is (workspace, key)."""

    prompt: BlockHashes
    told: Diagnosis | None
    started_s: float | None
    begun_s: float | None
    session: str | None
    space: tuple[str, str]


@dataclass(slots=True)
class _Entry:
    """One cached block: from when on it can be read, and the start of the last request that used it, in seconds."""

    readable_s: float
    used_s: float


@dataclass(slots=True)
class _Space:
    """Blocks of one workspace and routing key: an entry is found in its own space only."""

    entries: dict[int, _Entry] = field(default_factory=dict)

    def depth(self, hashes: list[int]) -> int:
        """Return how many leading blocks are here. Whoever has a block has those before it, so bisection finds it."""
        return bisect_left(hashes, x=True, key=lambda block: block not in self.entries)


class Account:
    """Adds up calls. Not safe for use by several threads at once.

    Memory: about 250 bytes for each distinct block of 16 tokens, up to ``max_blocks``; the least recently used half is
    forgotten then.

    Args:
        model: the model of calls that name none; its prices and rules.
        lifetime: lifetime that calls ask for; the default of the model unless given.
        max_blocks: distinct blocks remembered.

    Attributes:
        blocks: distinct blocks that are remembered now.
    """

    def __init__(self, model: Model, *, lifetime: str | None = None, max_blocks: int = 1_000_000) -> None:
        """Start with no call."""
        check_instance("model", model, Model)
        check_int("max_blocks", max_blocks, 1)
        self._model, self._lifetime, self._most = model, model.mode().lifetime(lifetime), max_blocks
        self._spaces: OrderedDict[tuple[str, str], _Space] = OrderedDict()
        self._before: Recent[str, NDArray[np.uint64]] = Recent(_SESSIONS)
        self.blocks = 0
        self.calls = self.prompt_tokens = self.read_tokens = self.written_tokens = self.output_tokens = 0
        self.usd = self.lost_usd = self.uncached_usd = 0.0
        self.lost: Counter[str] = Counter()
        self._lost_by_reason: dict[str, float] = {}
        self._worst: list[Verdict] = []

    def add(
        self,
        response: Any,
        *,
        prompt: Any = None,
        started_s: float | None = None,
        begun_s: float | None = None,
        session: str | None = None,
        scope: str = "",
        key: str = "",
        id: str | None = None,  # noqa: A002 - what every provider calls it
    ) -> Verdict:
        """Count a call and judge it against the calls before. Calls are added in order of their starts.

        Args:
            response: the provider's response or its usage object, a dict or an SDK's.
            prompt: what was sent: the request's body, its messages, text, or token ids. Without it nothing is expected.
            started_s: when the request was sent, in seconds; any zero, the same for all calls.
            begun_s: when its response began; ``started_s`` unless given.
            session: the conversation; the call is then compared with the one before in it.
            scope: workspace, project or organization within which the provider shares entries.
            key: the routing key (``prompt_cache_key``) it was sent with.
            id: the call's name; counted unless given.

        Returns:
            What the call hit, what it cost, and why it missed.

        Raises:
            ConfigError: no known usage object, times that are none, or a prompt that is none.
        """
        usage = response if isinstance(response, Usage) else Usage.of(response)
        for name, value in (("started_s", started_s), ("begun_s", begun_s)):
            if value is not None:
                check_float(name, value, -1e18, 1e18)
        hashed = None if prompt is None else _hashed(prompt)
        self.calls += 1
        usd = usage.usd(self._model, self._lifetime.name)
        verdict = Verdict(f"call-{self.calls}" if id is None else id, usage, usd)
        if hashed is not None and len(hashed):
            call = _Call(hashed, diagnosis_of(response), started_s, begun_s, session, (scope, key))
            verdict = self._judge(verdict, call)
            self._remember(call)
        self._count(verdict)
        return verdict

    def _judge(self, verdict: Verdict, call: _Call) -> Verdict:
        usage, hashes = verdict.usage, call.prompt.array.tolist()
        # The log's own count of tokens stands; blocks of text only say which share of it is in common.
        block = call.prompt.block_size * usage.prompt_tokens / max(1, call.prompt.token_count)
        depths = {name: one.depth(hashes) for name, one in self._spaces.items()}
        known = max(depths.values(), default=0)
        before = _NOTHING if call.session is None else self._before.get(call.session, _NOTHING)
        common = common_blocks(before, call.prompt.array)
        deepest = max(known, len(before) if 0 < common < len(before) else 0)
        expected = min(usage.prompt_tokens, round(deepest * block))
        lost = expected - usage.read_tokens
        slack = 2 * block + (self._model.mode().increment_tokens or 0)
        if lost <= slack:
            return Verdict(verdict.id, usage, verdict.usd, expected)
        told, position = call.told, None
        if told is not None:
            reason = told.reason
        elif expected < self._model.minimum_tokens:
            reason = UNDER_MINIMUM
        else:
            reason = self._why(call, hashes, depths, known)
            parted = common if 0 < common < len(before) else known
            # Where prompts part, an entry that ends behind that place cannot be hit, however live it is.
            if reason in (CHANGED, UNKNOWN) and parted < len(hashes):
                reason, position = CHANGED, round(parted * block)
        ideal = ideal_usd(usage, expected, self._model, self._lifetime.name)
        lost_usd = max(0.0, verdict.usd - ideal)
        return Verdict(verdict.id, usage, verdict.usd, expected, lost, lost_usd, reason, told is not None, position)

    def _why(self, call: _Call, hashes: list[int], depths: Mapping[tuple[str, str], int], known: int) -> str:
        """Return why blocks that some call had were not hit: whose they are, and whether they could be read."""
        if not known:
            return UNKNOWN
        holders = [name for name, depth in depths.items() if depth == known]
        if call.space not in holders:
            return OTHER_KEY if any(scope == call.space[0] for scope, _ in holders) else OTHER_SCOPE
        entry = self._spaces[call.space].entries[hashes[known - 1]]
        if call.started_s is None:
            return UNKNOWN
        if call.started_s < entry.readable_s:
            return PARALLEL
        return EXPIRED if call.started_s - entry.used_s > self._lifetime.seconds else UNKNOWN

    def _remember(self, call: _Call) -> None:
        hashes = call.prompt.array.tolist()
        start = 0.0 if call.started_s is None else call.started_s
        begun = start if call.begun_s is None else max(start, call.begun_s)
        entries = self._spaces.setdefault(call.space, _Space()).entries
        self._spaces.move_to_end(call.space)
        held = len(entries)
        for block in hashes:
            entry = entries.get(block)
            if entry is None or start - entry.used_s > self._lifetime.seconds:
                entries[block] = _Entry(begun, start)
            else:
                entry.readable_s = min(entry.readable_s, begun)
                entry.used_s = max(entry.used_s, start)
        self.blocks += len(entries) - held
        if call.session is not None:
            self._before[call.session] = call.prompt.array
        if self.blocks > self._most or len(self._spaces) > _SPACES:
            self._forget()

    def _forget(self) -> None:
        """Drop the spaces beyond the bound, then every block last used before the median."""
        while len(self._spaces) > _SPACES:
            self._spaces.popitem(last=False)
        uses = sorted(entry.used_s for space in self._spaces.values() for entry in space.entries.values())
        if len(uses) > self._most:
            since = uses[len(uses) // 2]
            for space in self._spaces.values():
                space.entries = {block: entry for block, entry in space.entries.items() if entry.used_s > since}
        self.blocks = sum(len(space.entries) for space in self._spaces.values())

    def _count(self, verdict: Verdict) -> None:
        usage = verdict.usage
        self.prompt_tokens += usage.prompt_tokens
        self.read_tokens += usage.read_tokens
        self.written_tokens += usage.written
        self.output_tokens += usage.output_tokens
        self.usd += verdict.usd
        self.uncached_usd += Usage(usage.prompt_tokens, 0, {}, usage.output_tokens, usage.tier).usd(self._model)
        if not verdict.reason:
            return
        self.lost_usd += verdict.lost_usd
        self.lost[verdict.reason] += 1
        self._lost_by_reason[verdict.reason] = self._lost_by_reason.get(verdict.reason, 0.0) + verdict.lost_usd
        self._worst.append(verdict)
        if len(self._worst) > 2 * _WORST:
            self._worst = self.worst

    @property
    def hit_ratio(self) -> float:
        """Share of all prompt tokens that were read from a cache."""
        return self.read_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def worst(self) -> list[Verdict]:
        """The calls that lost most, up to 100, the most expensive loss first."""
        return sorted(self._worst, key=lambda verdict: -verdict.lost_usd)[:_WORST]

    def to_dict(self) -> dict[str, object]:
        """Return every figure, ready for JSON."""
        return {
            "model": self._model.id,
            **figures(self, "calls", "prompt_tokens", "read_tokens", "written_tokens", "output_tokens", "hit_ratio"),
            **figures(self, "usd", "uncached_usd", "lost_usd"),
            "ideal_usd": self.usd - self.lost_usd,
            "reasons": {
                reason: {"calls": count, "lost_usd": self._lost_by_reason[reason]}
                for reason, count in self.lost.most_common()
            },
            "worst": [verdict.to_dict() for verdict in self.worst],
        }


def _hashed(prompt: Any) -> BlockHashes:
    """Return the block hashes of a body, messages, text or token ids."""
    if isinstance(prompt, BlockHashes):
        return prompt
    if isinstance(prompt, Mapping) or (isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping)):
        return hash_blocks(CanonicalForm()(prompt), BLOCK_TOKENS)
    if isinstance(prompt, (str, bytes, bytearray, Sequence)) or hasattr(prompt, "__array__"):
        return hash_blocks(prompt, BLOCK_TOKENS)
    raise ConfigError(f"a prompt is a request's body, messages, text or token ids, got {prompt!r:.80}")
