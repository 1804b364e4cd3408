"""Where the breakpoints of a set of prompts belong, and what in their heads changes and spoils them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.limits import BYTES_PER_TOKEN
from prefixroute.plan.prompts import Prompt
from prefixroute.providers.catalog import Mode, Model
from prefixroute.volatile import MOST_PROMPTS as MOST_COMPARED
from prefixroute.volatile import Changes, Span

ROLLING = "end of the prompt"
MOST_PROMPTS = 10_000
KEPT_CHARACTERS = 1 << 20
"""Characters of a prompt up to which what is lost behind a changing text is counted."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One breakpoint.

    Attributes:
        where: the block that it stands on, ``end of the prompt`` for one that moves with the conversation.
        tokens: prompt tokens up to it, in the median prompt.
        share: prompts that have a prefix up to it in common with another.
        gain_tokens: tokens that all prompts together read more because of it.
    """

    where: str
    tokens: int
    share: float
    gain_tokens: int


@dataclass(frozen=True, slots=True)
class Change:
    """A short text in the head of prompts that differs from prompt to prompt, with equal text behind it.

    Attributes:
        where: the block that it stands in.
        kind: ``date``, ``id``, ``number`` or ``text``.
        character: its place in the block's text, in the first prompt that has it.
        tokens: prompt tokens before it there.
        lost_tokens: tokens behind it that a prompt shares with the nearest earlier one, in the median: not reused
            because of it.
        share: prompts that have it.
        examples: what stands there, up to three.
    """

    where: str
    kind: str
    character: int
    tokens: int
    lost_tokens: int
    share: float
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Breakpoints for a set of prompts, in the order of the prompt.

    Attributes:
        model: the model's id.
        prompts: how many prompts were looked at.
        prompt_tokens: about how many tokens they have together.
        reused_tokens: of these, read from the cache with the marks.
        reused_as_marked: the same with the marks that the prompts carry; None where none carries one.
        marks: where they belong.
        rolling_blocks: distance of further marks where a turn adds more blocks than the look-back reaches; None where
            none does.
        longest_turn_blocks: most blocks that a prompt adds to the one it continues.
        changes: what spoils heads, the most expensive first.
    """

    model: str
    prompts: int
    prompt_tokens: int
    reused_tokens: int
    reused_as_marked: int | None
    marks: tuple[Mark, ...]
    rolling_blocks: int | None
    longest_turn_blocks: int
    changes: tuple[Change, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return asdict(self)


def place_breakpoints(bodies: Iterable[Any], model: Model, *, mode: str | None = None) -> Placement:
    """Choose the breakpoints with which these prompts, sent in this order, read most from the cache.

    Candidates are the ends of blocks up to which two prompts are equal and behind which some part ways, and the end of
    each prompt. They are chosen one after another, the one that adds most first, up to the provider's number of marks.
    An entry is looked for at each mark and at as many blocks before it as the look-back allows. Lifetimes are not
    looked at.

    Args:
        bodies: request bodies, in the order in which they are sent; at most 10,000.
        model: minimum, marks and look-back.
        mode: way of caching; the model's default unless given.

    Returns:
        The breakpoints of each prompt, and the tokens that are read and written.

    Raises:
        ConfigError: no prompt, too many, or one that is none.
    """
    prompts = [Prompt.of(body) for body in bodies]
    if not 1 <= len(prompts) <= MOST_PROMPTS:
        raise ConfigError(f"breakpoints need 1 to {MOST_PROMPTS:,} prompts, got {len(prompts)}")
    used = model.mode(mode)
    search = _Search(prompts, used, model.minimum_tokens)
    chosen: list[int | None] = []
    marks, reused = [], 0.0
    for _ in range(used.max_marks or 1):
        options = [(search.reused([*chosen, depth]), depth) for depth in search.candidates if depth not in chosen]
        best, depth = max(options, key=lambda option: option[0], default=(0.0, None))
        if best - reused < max(1.0, model.minimum_tokens):
            break
        chosen.append(depth)
        marks.append((search.order(depth), search.mark(depth, best - reused)))
        reused = best
    longest = search.longest_turn
    reach = used.lookback_blocks
    carries = any(block.marked for prompt in prompts for block in prompt.blocks)
    return Placement(
        model.id,
        len(prompts),
        round(sum(prompt.ends[-1] for prompt in prompts)),
        round(reused),
        round(search.reused(None)) if carries else None,
        tuple(mark for _, mark in sorted(marks, key=lambda pair: pair[0])),
        used.rolling_blocks if reach is not None and longest > reach else None,
        longest,
        find_changes(prompts),
    )


class _Search:
    """Prompts, and what sets of marks would reuse of them. A mark is a depth in blocks; None is the end of a prompt."""

    def __init__(self, prompts: Sequence[Prompt], mode: Mode, minimum: int) -> None:
        self.prompts, self._mode, self._minimum = prompts, mode, minimum
        self._counts: Counter[tuple[int, str]] = Counter(
            (depth, hashed) for prompt in prompts for depth, hashed in enumerate(prompt.chain)
        )

    @property
    def candidates(self) -> list[int | None]:
        """Depths at which prompts that were equal part ways, and the end of the prompt."""
        found: set[int] = set()
        for prompt in self.prompts:
            counts = [self._counts[depth, hashed] for depth, hashed in enumerate(prompt.chain)]
            found |= {
                at for at, count in enumerate(counts) if count > 1 and (at + 1 == len(counts) or counts[at + 1] < count)
            }
        return [None, *sorted(found)]

    @property
    def longest_turn(self) -> int:
        """Most blocks that a prompt adds to an earlier prompt that it begins with."""
        ends: set[str] = set()
        longest = 0
        for prompt in self.prompts:
            at = next((at for at in range(len(prompt.chain) - 1, -1, -1) if prompt.chain[at] in ends), None)
            if at is not None:
                longest = max(longest, len(prompt.chain) - 1 - at)
            ends.add(prompt.chain[-1])
        return longest

    def reused(self, depths: Sequence[int | None] | None) -> float:
        """Return the tokens that all prompts read with marks at these depths; with their own marks for None."""
        entries: set[str] = set()
        total = 0.0
        reach = self._mode.lookback_blocks
        exact = self._mode.match == "breakpoint"
        for prompt in self.prompts:
            last = len(prompt.chain) - 1
            places = (
                sorted({last if depth is None else depth for depth in depths})
                if depths is not None
                else [at for at, block in enumerate(prompt.blocks) if block.marked]
            )
            places = [place for place in places if place <= last]
            best = 0.0
            for place in places:
                back = 0 if exact and place != last else place if reach is None else reach
                near = range(place, max(-1, place - back - 1), -1)
                at = next((at for at in near if prompt.chain[at] in entries), None)
                if at is not None and prompt.ends[at] >= self._minimum:
                    best = max(best, prompt.ends[at])
            entries |= {prompt.chain[place] for place in places}
            total += best
        return total

    def order(self, depth: int | None) -> float:
        """Return the depth as a number; the end of the prompt comes last."""
        return float("inf") if depth is None else depth

    def mark(self, depth: int | None, gain: float) -> Mark:
        """Return a depth as a mark."""
        places = [(prompt, len(prompt.chain) - 1 if depth is None else depth) for prompt in self.prompts]
        places = [(prompt, at) for prompt, at in places if at < len(prompt.chain)]
        tokens = sorted(prompt.ends[at] for prompt, at in places)[len(places) // 2]
        shared = sum(self._counts[at, prompt.chain[at]] > 1 for prompt, at in places)
        names = Counter(prompt.blocks[at].where for prompt, at in places)
        where = ROLLING if depth is None else names.most_common(1)[0][0]
        return Mark(where, round(tokens), shared / len(self.prompts), round(gain))


def find_changes(prompts: Sequence[Prompt]) -> tuple[Change, ...]:
    """Return short texts that differ between a prompt and the nearest earlier one, with equal text behind them."""
    found = Changes(kept=KEPT_CHARACTERS)
    for prompt in prompts[:MOST_COMPARED]:
        found.add(prompt.text)
    changes = [_change(span, prompts[span.prompt]) for span in found.spans()]
    return tuple(sorted(changes, key=lambda change: -change.lost_tokens * change.share))


def _change(span: Span, prompt: Prompt) -> Change:
    """Return a volatile text with its place in the first prompt that has it."""
    at, character = prompt.place(span.start)
    block = prompt.blocks[at]
    before = (prompt.ends[at - 1] if at else 0.0) + _tokens(block.text[:character])
    lost = round(span.gain / BYTES_PER_TOKEN)
    return Change(block.where, span.kind, character, round(before), lost, span.share, span.values)


def _tokens(text: str) -> float:
    return len(text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN
