"""Which group of prompts has the text that changes near their start: a log may have several applications in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from prefixroute.advise.heads import Head, Heads
from prefixroute.workload import Request, Workload

MOST_GROUPS = 3
"""Groups that are named, those with the most such prompts."""
ALMOST_ALL = 0.95
"""Share of a group's prompts with the text from which a model or a tenant names the group as well."""


@dataclass(frozen=True, slots=True)
class Affected:
    """A group of prompts of which some have the text.

    Attributes:
        head_tokens: length of the head that the group would share without the text; 0 where prompts begin with nothing
            in common.
        head: hash of the last block of that head, as hexadecimal digits: the same in the log and in no other place;
            empty without.
        prompts: how many of the group have the text.
        share_of_group: the same as a share of the group.
        share_of_affected: the same as a share of all prompts that have the text.
        first_request: number of the first of them in the log, from 1.
        session: its session, or None.
        tenant: the tenant of almost all of them, or None.
        model: the model of almost all of them, or None.
    """

    head_tokens: int
    head: str
    prompts: int
    share_of_group: float
    share_of_affected: float
    first_request: int
    session: str | None
    tenant: str | None
    model: str | None


def affected(workload: Workload) -> tuple[Affected, ...]:
    """Return the groups whose prompts have what is volatile, those with the most first; none where nothing is.

    Groups are those of :class:`~prefixroute.advise.heads.Heads` of the prompts without that text. Two passes.
    """
    masked = workload.masked
    if masked is None:
        return ()
    heads, groups = Heads.in_workload(masked), dict[Head | None, _Group]()
    for number, request in enumerate(workload.requests(), start=1):
        prompt = request.prompt if request.masked is None else request.masked.prompt
        groups.setdefault(heads.of(prompt.array), _Group()).add(number, request)
    every = sum(group.prompts for group in groups.values())
    found = [group.result(head, every) for head, group in groups.items() if group.prompts]
    return tuple(sorted(found, key=lambda one: (-one.prompts, one.first_request))[:MOST_GROUPS])


def is_affected(request: Request) -> bool:
    """Whether a prompt has the text: without it, its blocks are others."""
    if request.masked is None:
        return False
    own, without = request.prompt.array, request.masked.prompt.array
    last = min(len(own), len(without)) - 1
    return last >= 0 and bool(own[last] != without[last])  # chained: equal there is equal before


class _Group:
    """Prompts with one head."""

    def __init__(self) -> None:
        self.requests = self.prompts = 0
        self.first: tuple[int, Request] | None = None
        self.tenants: Counter[str | None] = Counter()
        self.models: Counter[str | None] = Counter()

    def add(self, number: int, request: Request) -> None:
        self.requests += 1
        if is_affected(request):
            self.prompts += 1
            self.first = self.first or (number, request)
            self.tenants[request.tenant] += 1
            self.models[request.model] += 1

    def result(self, head: Head | None, every: int) -> Affected:
        number, first = self.first or (0, None)
        tenant, model = (next(self._most(names), None) for names in (self.tenants, self.models))
        return Affected(
            head_tokens=0 if head is None else head.tokens,
            head="" if head is None else f"{head.last:016x}",
            prompts=self.prompts,
            share_of_group=self.prompts / self.requests,
            share_of_affected=self.prompts / every,
            first_request=number,
            session=None if first is None else first.session,
            tenant=tenant,
            model=model,
        )

    def _most(self, names: Counter[str | None]) -> Iterator[str | None]:
        yield from (name for name, count in names.most_common(1) if count >= ALMOST_ALL * self.prompts)
