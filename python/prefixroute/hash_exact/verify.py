"""Compare an engine's published hashes with those computed from the token ids, and say why they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

from prefixroute.hash_exact.compare import HashComparison, HashedBlock, compare, continues
from prefixroute.hash_exact.scheme import Content, HashScheme, Reason, Variant, token_list
from prefixroute.hash_exact.sglang import SglangHashes
from prefixroute.hash_exact.stored import StoredEvent
from prefixroute.hash_exact.vllm import VllmHashes
from prefixroute.hash_exact.xxh import GatewayHashes, LlmdCborHashes, LlmdXxh64Hashes, Xxh3Local, Xxh3Sequence

_PROBES = 8
"""Prompts whose first blocks decide which other settings are tried on all events."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What comparing hashes gave.

    Attributes:
        matched: blocks whose hash was reproduced.
        mismatched: blocks whose hash was not.
        unchecked: blocks behind an unknown parent, without all of their tokens, or that hash what no event carries.
        reason: the likely reason why not everything was reproduced; ``None`` = everything that could be checked agrees.
            ``"unknown"`` = the evidence is equal for several, which ``remaining`` lists.
        detail: the reason with its figures, for people.
        remaining: the reasons that the evidence leaves, if they are several.
        scheme: the scheme that does reproduce the hashes, if one was found.
    """

    matched: int = 0
    mismatched: int = 0
    unchecked: int = 0
    reason: Reason | None = None
    detail: str = ""
    remaining: tuple[Reason, ...] = ()
    scheme: HashScheme[Any] | None = field(default=None, repr=False)

    @property
    def agrees(self) -> bool:
        """Whether at least one block was reproduced and none was not."""
        return self.matched > 0 and self.mismatched == 0


def verify(
    events: Iterable[StoredEvent],
    scheme: HashScheme[Any],
    *,
    prompts: Iterable[Any] = (),
    block_size: int | None = None,
    content: Content | None = None,
) -> Verification:
    """Recompute an engine's hashes from the token ids of its own events, then compare its tokens with those of prompts.

    Args:
        events: what the engine stored, oldest first, see :func:`stored_events`.
        scheme: how the engine should hash.
        prompts: token ids of prompts that the engine has computed, as the router sees them.
        block_size: tokens in a block by the router; ``None`` = the events' own.
        content: adapter, salt and media of the prompts.

    Returns:
        The counts, and the likely reason if nothing or not everything matches.
    """
    events = [event for event in events if event.hashes]
    found = compare(events, scheme)
    result = Verification(len(found.matched), found.mismatched, found.unchecked, scheme=scheme)
    if found.mismatched or not found.matched:
        return _explain(events, scheme, found, result)
    if reason := _prompt_reason(events, prompts, block_size, content):
        return replace(result, reason=reason[0], detail=reason[1])
    return replace(result, **_refused(found))


def _refused(found: HashComparison) -> dict[str, Any]:
    """Say why some blocks could not be computed."""
    reasons = list(dict.fromkeys(error.reason for error in found.refused))
    details = "; ".join(dict.fromkeys(str(error) for error in found.refused))
    return _told(reasons, details) if reasons else {}


def _told(reasons: Sequence[Reason], detail: str) -> dict[str, Any]:
    """Name a reason, or those that remain."""
    if len(reasons) == 1:
        return {"reason": reasons[0], "detail": detail}
    return {"reason": "unknown", "remaining": tuple(reasons), "detail": detail}


def _explain(
    events: list[StoredEvent], scheme: HashScheme[Any], found: HashComparison, result: Verification
) -> Verification:
    """Find what would have to be otherwise for the hashes to agree."""
    best, variant, best_unit = found, Variant((), "", scheme), None
    for other, unit in _alternatives(events, scheme):
        tried = compare(events, other.scheme, unit)
        if tried.agrees:
            return replace(result, reason=other.reasons[0], detail=other.detail, scheme=other.scheme)
        if len(tried.matched) > len(best.matched):
            best, variant, best_unit = tried, other, unit
    if best.matched:
        told = _differing(best, variant.scheme)
        if variant.reasons:
            told = {"reason": variant.reasons[0], "detail": f"{variant.detail}; then {told['detail']}"}
        return replace(result, scheme=variant.scheme, **told)
    if found.mismatched:
        return replace(result, **_nothing_matches(events, scheme, found, best_unit))
    return replace(result, **_nothing_checked(found))


def _alternatives(events: list[StoredEvent], scheme: HashScheme[Any]) -> Iterator[tuple[Variant, int | None]]:
    """Yield what reproduces the first block of a prompt, fewest changes first, with the unit of the chain."""
    roots = {event.contents[0]: event for event in reversed(events) if event.parent is None}
    probes = [_head(event) for event in list(roots.values())[:_PROBES]]
    given = Variant((), "", scheme)
    sizes = [event.block_size for event in events]
    units = [unit for unit in range(1, max(sizes, default=1)) if gcd(*sizes) % unit == 0]
    for unit in (None, *reversed(units)):
        for variant in (given, *scheme.variants(), *(_others(scheme) if unit is None else ())):
            if (unit, variant) == (None, given) or not compare(probes, variant.scheme, unit).matched:
                continue
            if unit is None:
                yield variant, unit
            else:
                told = f"the engine chains blocks of {unit}, its events have up to {max(sizes)}"
                detail = ", ".join(filter(None, (variant.detail, told)))
                yield Variant((*variant.reasons, "block_size"), detail, variant.scheme), unit


def _head(event: StoredEvent) -> StoredEvent:
    """Return the first block of an event; all of it if blocks before that were not stored."""
    if event.masked:
        return event
    ahead = event.token_ids[: 2 * event.block_size]
    return replace(
        event,
        hashes=event.hashes[:1],
        contents=event.contents[:1],
        after=event.after[:1] or (ahead[event.block_size :],),
        token_ids=ahead[: event.block_size],
        digests=event.digests[:1],
    )


def _others(scheme: HashScheme[Any]) -> Iterator[Variant]:
    """Yield the other schemes, as engines have them by default, and with their own variants."""
    model = getattr(scheme, "model", None)
    named: list[HashScheme[Any]] = [VllmHashes(), SglangHashes(), Xxh3Sequence(), Xxh3Local()]
    if model is not None:
        named += [LlmdCborHashes(model), LlmdXxh64Hashes(model), GatewayHashes(model)]
    for other in named:
        if type(other) is not type(scheme):
            detail = f"the hashes are those of {type(other).__name__}"
            yield Variant(("algorithm",), detail, other)
            for variant in other.variants():
                yield Variant(("algorithm", *variant.reasons), f"{detail}, {variant.detail}", variant.scheme)


def _differing(found: HashComparison, scheme: HashScheme[Any]) -> dict[str, Any]:
    """Name what the blocks that begin to differ have, and no block that agrees has."""
    fine = {pair for block in found.matched for pair in block.kinds.items()}
    causes: dict[Reason, int] = {}
    for block in found.first:
        kinds: list[Reason] = [kind for kind, value in block.kinds.items() if (kind, value) not in fine]
        for kind in kinds or _hidden(block, scheme):
            causes[kind] = causes.get(kind, 0) + 1
    blocks = len(found.first)
    if any(count == blocks for count in causes.values()):
        causes = {kind: count for kind, count in causes.items() if count == blocks}
    if not causes:
        return _told((), f"blocks differ ({blocks}), and no setting of the scheme explains it")
    return _told(list(causes), "; ".join(_DIFFERING[kind].format(count) for kind, count in causes.items()))


def _hidden(block: HashedBlock, scheme: HashScheme[Any]) -> tuple[Reason, ...]:
    """Return what a block's hash may cover that its event leaves out. Salts enter the first block alone."""
    return tuple(kind for kind in scheme.hidden if block.at_root or block.masked or kind in ("media", "extra_key"))


_DIFFERING: dict[Reason, str] = {
    "lora": "blocks of an adapter differ ({}): vLLM hashes its path, SGLang an id that no event carries",
    "salt": "salted blocks differ ({}), or blocks whose event leaves the salt out",
    "media": "blocks with media or embeddings differ ({}), or blocks whose event leaves them out",
    "extra_key": "blocks differ ({}) as if their requests had an extra_key, which no event carries",
}


def _nothing_matches(
    events: list[StoredEvent], scheme: HashScheme[Any], found: HashComparison, unit: int | None
) -> dict[str, Any]:
    """Name what is left if no known setting reproduces a single block."""
    left: list[Reason] = list(scheme.root_inputs)
    common = set.intersection(*(set(block.kinds) for block in found.first)) if found.first else set()
    left += [
        kind for kind in ("lora", "salt", "media") if kind in common and kind not in left and kind in scheme.hidden
    ]
    for variant in (Variant((), "", scheme), *scheme.variants()):
        if continues(events, variant.scheme, unit):
            where = "each block follows from the one before, so only the root differs"
            break
    else:
        variant, where = Variant((), "", scheme), "no known setting fits"
    told = _told(left, f"{where}; not known: {', '.join(_ROOTS[kind] for kind in left)}")
    if variant.reasons:
        told = {"reason": variant.reasons[0], "detail": f"{variant.detail}: {told['detail']}"}
    return told


_ROOTS: dict[Reason, str] = {
    "seed": "a hash seed that is none of the common ones, or random in every process",
    "model": "the name of the model as the other side has it",
    "extra_key": "an extra_key of the requests, which no event carries",
    "lora": "the path of the adapter",
    "salt": "the salt",
    "media": "the identifiers of media or embeddings",
}


def _nothing_checked(found: HashComparison) -> dict[str, Any]:
    """Say why not a single block could be computed."""
    if found.refused:
        return _refused(found)
    if found.orphans:
        told = "every event continues a block that no event names: begin with the first events of the engine"
        return {"reason": "parent", "detail": told}
    return _told((), "no event names a block together with its tokens")


def _prompt_reason(
    events: list[StoredEvent], prompts: Iterable[Any], block_size: int | None, content: Content | None
) -> tuple[Reason, str] | None:
    """Say why none of the prompts is among the blocks of an engine whose hashes are understood."""
    given = [token_list(prompt) for prompt in prompts]
    roots = [event for event in events if event.parent is None]
    if not given or not roots:
        return None
    sizes = sorted({event.block_size for event in roots})
    if block_size is not None and block_size not in sizes:
        return "block_size", f"the router has blocks of {block_size}, the engine of {', '.join(map(str, sizes))}"
    asked = content or Content()
    same = [(_shared(event.token_ids, prompt), event) for event in roots for prompt in given]
    whole = [event for shared, event in same if shared >= event.block_size]
    if not whole:
        longest = max(shared for shared, _ in same)
        return "tokenizer", f"no prompt's tokens are the engine's: at best they agree up to position {longest}"
    stored = [_kinds(event.contents[0], event.block_size) for event in whole]
    wanted = _kinds(asked, block_size or whole[0].block_size)
    for kind, value in wanted.items():
        if all(one[kind] != value for one in stored):
            return kind, f"the engine stored these tokens with {kind} {stored[0][kind]!r}, not {value!r}"
    return None


def _kinds(content: Content, block_size: int) -> dict[Reason, Any]:
    """Return what besides tokens is in the first block of a prompt."""
    items = [(item.identifier, item.first) for item in content.media_in(0, block_size)]
    embeds = [digest for number, digest in content.embeds if number == 0]
    return {"lora": content.lora, "salt": content.salt, "media": items + embeds}


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the length of the common start."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return min(len(left), len(right))
