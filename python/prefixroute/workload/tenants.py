"""Chats of many tenants of unequal size, each behind a system prompt of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from prefixroute.errors import ConfigError, TraceError
from prefixroute.workload.arrivals import Arrivals
from prefixroute.workload.generator import generator
from prefixroute.workload.readers.lines import read_table
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.row import shown
from prefixroute.workload.readers.source import log_files
from prefixroute.workload.request import CacheEntry, Request
from prefixroute.workload.shape import Popularity, Shape, zipf_shares
from prefixroute.workload.streams import chain_key, stream
from prefixroute.workload.text import Text


@dataclass(frozen=True, slots=True)
class TenantsShape(Shape):
    """Sizes of the tenants workload. Planning figures.

    Attributes:
        tenants: how many tenants there are.
        zipf: exponent of their sizes: the tenant of rank r sends in proportion to ``r ** -zipf``.
        shares: what each tenant sends, in any unit, in place of ``tenants`` and ``zipf``.
        system_tokens: the system prompt of a tenant, which its chats share.
        user_tokens: a user's message.
        answer_tokens: an answer.
        turns: turns of a conversation.
        slots: conversations open at a time, over all tenants; each tenant has one at least.
    """

    KIND: ClassVar[str] = "tenants"
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"system_tokens", "answer_tokens"})

    tenants: int = 50
    zipf: float = 1.0
    shares: tuple[float, ...] = ()
    system_tokens: int = 2_000
    user_tokens: int = 200
    answer_tokens: int = 400
    turns: int = 8
    slots: int = 400

    def __post_init__(self) -> None:
        """Check that every size can be used."""
        Shape.__post_init__(self)
        shares = np.asarray(self.shares)
        if len(shares) and not ((shares >= 0).all() and 0 < shares.sum() < np.inf):
            raise ConfigError(f"tenants shares must be 0 or more, finite, and not all 0, got {self.shares}")

    @property
    def longest_tokens(self) -> int:
        """Tokens of a whole conversation."""
        return self.system_tokens + self.turns * (self.user_tokens + self.answer_tokens)

    def kept_tokens(self, requests: int) -> float:
        """Return the tokens of the system prompts, and of the conversations that are open."""
        senders = len(self.shares) or self.tenants
        return senders * self.system_tokens + min(self.slots + senders, requests) * self.longest_tokens


@dataclass(slots=True)
class _Slot:
    name: str
    text: Text
    turn: int


@generator(TenantsShape)
def tenants(seed: int, count: int, block_size: int, arrivals: Arrivals, shape: TenantsShape) -> Iterator[Request]:
    """Return the tenants workload: each request picks a tenant by its share, then one of the tenant's conversations."""
    given = np.asarray(shape.shares, dtype=float)
    shares = given / given.sum() if len(given) else zipf_shares(shape.tenants, shape.zipf)
    who = Popularity(stream(seed, "tenants.who"), shares)
    picks = stream(seed, "tenants.slots")
    times = arrivals.times(stream(seed, "tenants.arrivals"))
    keys = [chain_key(seed, "tenants.system", at) for at in range(len(shares))]
    systems = [Text.of(key, shape.system_tokens, block_size) for key in keys]
    open_slots = np.maximum(1, np.rint(shares * shape.slots).astype(int)).tolist()
    slots = [[_Slot("", systems[0], shape.turns)] * number for number in open_slots]
    opened = 0
    for _, time in zip(range(count), times, strict=False):
        tenant = who.draw()
        place = int(picks.random() * open_slots[tenant])
        slot = slots[tenant][place]
        if slot.turn == shape.turns:
            slot = slots[tenant][place] = _Slot(f"chat-{seed}-{tenant}-{opened}", systems[tenant], 0)
            opened += 1
        key = chain_key(seed, "tenants.turn", slot.name, slot.turn)
        prompt_tokens = slot.text.tokens + shape.user_tokens
        slot.text = slot.text.then(key, shape.user_tokens + shape.answer_tokens)
        slot.turn += 1
        entry = CacheEntry(slot.name, slot.text.tokens)
        yield slot.text.request(time, prompt_tokens, session=slot.name, tenant=f"tenant-{tenant}", entry=entry)


def read_shares(path: str | Path, model: str) -> tuple[float, ...]:
    """Return the mean rates of the clients of one model from a ServeGen table of client rates, the busiest first.

    Args:
        path: CSV, plain or gzip, with the columns ``model`` and ``mean_rate``.
        model: a name of the column ``model``.

    Raises:
        TraceError: naming file and line, or if the model is not in the file.
    """
    path = Path(path)
    rates = []
    for row in read_table(log_files(path)[0], LogPass()):
        if row.text("model") != model:
            continue
        text = row.text("mean_rate")
        try:
            rate = float(text or "")
        except ValueError:
            rate = math.nan
        if not 0 <= rate < math.inf:
            raise row.error(f"mean_rate must be a finite number, 0 or more, got {shown(text)}")
        rates.append(rate)
    if not rates:
        raise TraceError(f"{path}: no client of model {model!r}")
    return tuple(sorted(rates, reverse=True))
