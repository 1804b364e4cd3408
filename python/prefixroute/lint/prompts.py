"""Checks of prompts: what changes in their heads, how long the shared part is, whether parts change their order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from prefixroute.lint.case import Case
from prefixroute.lint.log import LogEntry
from prefixroute.lint.rules import LintFinding, found
from prefixroute.plan.breakpoints import find_changes


def volatile_head(case: Case) -> Iterator[LintFinding]:
    """Yield each short text that changes from prompt to prompt with equal text behind it."""
    requests = case.statistics.requests
    for change in find_changes([entry.prompt for entry in case.entries]):
        if change.where.startswith(("messages", "input")) and not change.where.startswith(("messages[0]", "input[0]")):
            continue  # what later messages say is no head
        yield found(
            "volatile-head",
            usd_per_month=case.monthly(change.lost_tokens * change.share * requests),
            line=next((entry.line for entry in case.entries[1:]), None),
            where=change.where,
            kind=change.kind,
            character=change.character,
            tokens=change.tokens,
            lost_tokens=change.lost_tokens,
            share=change.share,
            examples=list(change.examples),
        )
    volatile = case.workload.volatile
    if not case.entries and volatile is not None:
        after = volatile.gain
        yield found(
            "volatile-head",
            usd_per_month=case.monthly(after * volatile.share * requests),
            where="the prompt",
            kind=volatile.kind,
            character=4 * volatile.tokens,
            tokens=volatile.tokens,
            lost_tokens=after,
            share=volatile.share,
            examples=[],
        )


def prefix_too_short(case: Case) -> Iterator[LintFinding]:
    """Yield whether the shared head is below what is cached at least, and how many prompts are."""
    head = case.workload.head_tokens
    sizes = [engine.block_size for engine in case.settings.engines if engine.block_size is not None]
    minimum = case.model.minimum_tokens if case.model is not None else max(sizes, default=case.workload.block_size)
    what = case.model.id if case.model is not None else "one block"
    if head is not None and 0 < head < minimum:
        lost = head * case.statistics.requests
        yield found("prefix-too-short", usd_per_month=case.monthly(lost), head_tokens=head, minimum=minimum, what=what)
    if case.plan is not None and case.model is not None and case.plan.total.short:
        share = case.plan.total.short / case.plan.total.requests
        yield found("prompts-below-minimum", share=share, minimum=minimum, model=case.model.id)


def reordered(case: Case) -> Iterator[LintFinding]:
    """Yield whether the same tools, or system blocks, stand in another order than in most prompts that have them."""
    yield from _reordered(case, "tools-reordered", ("tools[",))
    yield from _reordered(case, "system-reordered", ("system[", "instructions["))


def _reordered(case: Case, name: str, places: tuple[str, ...]) -> Iterator[LintFinding]:
    orders: dict[tuple[str, ...], Counter[tuple[str, ...]]] = defaultdict(Counter)
    parts_of = [
        tuple(block.text for block in entry.prompt.blocks if block.where.startswith(places)) for entry in case.entries
    ]
    for parts in parts_of:
        orders[tuple(sorted(parts))][parts] += 1
    usual = {parts: counted.most_common(1)[0][0] for parts, counted in orders.items()}
    others = [
        (entry, _lost(entry, parts, most))
        for entry, parts in zip(case.entries, parts_of, strict=True)
        if parts != (most := usual[tuple(sorted(parts))])
    ]
    if others:
        lost = sum(tokens for _, tokens in others) * case.statistics.requests / len(case.entries)
        line = others[0][0].line
        yield found(name, usd_per_month=case.monthly(lost), line=line, count=len(others), prompts=len(case.entries))


def _lost(entry: LogEntry, parts: tuple[str, ...], usual: tuple[str, ...]) -> float:
    """Return the tokens of a prompt from the first part on that is not where it usually is."""
    kept = next(at for at, (one, other) in enumerate(zip(parts, usual, strict=True)) if one != other)
    first = next(at for at, block in enumerate(entry.prompt.blocks) if block.text == parts[kept])
    ends = entry.prompt.ends
    return ends[-1] - (ends[first - 1] if first else 0.0)
