"""How many routing keys a rate needs, and what hit ratio to expect with more or fewer of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from prefixroute.errors import ConfigError
from prefixroute.providers.catalog import STANDARD, Model
from prefixroute.providers.keys import shard_of, shards_for
from prefixroute.validation import check_fields, check_float, check_int, shown

LIMIT = 15.0
"""Requests a minute for one head and key where a provider names none (ASSUMED: OpenAI's guidance before GPT-5.6)."""
MINUTE_S = 60.0
SIMULATED = 20_000
"""Requests of one simulation unless given; a minute of 1,000 requests is the most that is run through fewer than 20
times."""
MOST_SIMULATED = 2_000_000
MOST_USERS = 1_000_000
MOST_TOKENS = 10**9
MOVED_USERS = 10_000
"""Users whose moves are counted; a share of so many is within a point."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests behind one shared head.

    Attributes:
        requests_per_minute: of all users.
        users: how many users they come from, evenly; or each user's share of the requests by id.
        shared_tokens: prompt tokens that all requests share.
        user_tokens: prompt tokens behind those that the requests of one user share.
        own_tokens: prompt tokens of each request behind those.
    """

    requests_per_minute: float
    users: int | Mapping[str, float] = 1_000
    shared_tokens: int = 2_000
    user_tokens: int = 0
    own_tokens: int = 200

    def __post_init__(self) -> None:
        """Check every figure."""
        check_float("requests_per_minute", self.requests_per_minute, 0, 1e9, above=True)
        if isinstance(self.users, Mapping):
            if not self.users:
                raise ConfigError("users must be at least one, got none")
            for user, share in self.users.items():
                check_float(f"the share of {shown(user)}", share, 0)
            check_float("the sum of all users' shares", sum(self.users.values()), 0, above=True)
        else:
            check_int("users", self.users, 1, MOST_USERS)
        check_int("shared_tokens", self.shared_tokens, 1, MOST_TOKENS)
        check_fields(self, check_int, "user_tokens", "own_tokens", low=0, high=MOST_TOKENS)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of a prompt."""
        return self.shared_tokens + self.user_tokens + self.own_tokens

    @property
    def shares(self) -> dict[str, float]:
        """Each user's share of the requests, 1 in total."""
        if isinstance(self.users, int):
            return {f"user-{number}": 1 / self.users for number in range(self.users)}
        total = sum(self.users.values())
        return {user: share / total for user, share in self.users.items()}


@dataclass(frozen=True, slots=True)
class ShardRow:
    """What to expect with a number of keys.

    Attributes:
        shards: keys.
        busiest_per_minute: requests a minute of the busiest key, on average.
        overflow_ratio: share of requests above the limit of their key, which other machines take.
        hit_ratio: expected share of prompt tokens read from a cache, in the model of :func:`simulate_shards`.
        usd_per_thousand: US dollars of the prompts of a thousand requests at that ratio.
    """

    shards: int
    busiest_per_minute: float
    overflow_ratio: float
    hit_ratio: float
    usd_per_thousand: float


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Keys for a load.

    Attributes:
        model: the model's id.
        load: what was planned for.
        limit: requests a minute for one head and key.
        limit_assumed: whether the provider names no limit for this model.
        shards: the least number of keys whose mean is within the limit: rate / limit, rounded up. Keys differ, so that
            the busiest may be above it.
        rows: expectations by number of keys.
        over_limit: users who exceed the limit alone, with their requests a minute: no mapping helps them.
        moved_by_one_more: share of users whose key changes with one key more.
        is_promised: whether the provider promises hits; it does not where keys are guidance.
        note: what else the provider says of keys.
    """

    model: str
    load: Load
    limit: float
    limit_assumed: bool
    shards: int
    rows: tuple[ShardRow, ...]
    over_limit: tuple[tuple[str, float], ...]
    moved_by_one_more: float
    is_promised: bool
    note: str

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        load = self.load
        tokens = {name: getattr(load, name) for name in ("shared_tokens", "user_tokens", "own_tokens")}
        asked = {"requests_per_minute": load.requests_per_minute, "users": len(load.shares), **tokens}
        return {**asdict(self), "load": asked, "over_limit": dict(self.over_limit)}


def plan_shards(
    model: Model,
    load: Load,
    *,
    limit: float | None = None,
    lifetime: str | None = None,
    mode: str | None = None,
    tier: str = STANDARD,
    requests: int = SIMULATED,
    seed: int = 0,
) -> ShardPlan:
    """Return how many keys a load needs, and expectations around that number.

    Args:
        model: prices and rules.
        load: rate, users and lengths.
        limit: requests a minute for one head and key; the provider's unless given.
        lifetime: how long entries are kept; the mode's default unless given.
        mode: way of caching; the model's default unless given.
        tier: service tier.
        requests: simulated for each number of keys.
        seed: of arrivals and users.
    """
    used = model.mode(mode)
    known = used.key_requests_per_minute
    most = limit if limit is not None else known or LIMIT
    check_float("limit", most, 0, above=True)
    check_int("requests", requests, 1, MOST_SIMULATED)
    wanted = shards_for(load.requests_per_minute, most)
    counts = sorted({1, *(max(1, round(wanted * share)) for share in (0.5, 1, 1.5, 2, 4))})
    seconds, price = used.lifetime(lifetime), model.price(load.prompt_tokens, tier)
    rows = []
    for count in counts:
        busiest, overflow, hits = simulate_shards(
            model, load, count, limit=most, lifetime_s=seconds.seconds, requests=requests, seed=seed
        )
        paid = hits * price.read + (1 - hits) * price.writing(seconds.name)
        rows.append(ShardRow(count, busiest, overflow, hits, 1000 * load.prompt_tokens * paid / 1e6))
    heavy = [(user, share * load.requests_per_minute) for user, share in load.shares.items()]
    over = sorted((one for one in heavy if one[1] > most), key=lambda one: -one[1])
    assumed = limit is None and (known is None or "key_requests_per_minute" in used.assumed)
    return ShardPlan(
        model.id, load, most, assumed, wanted, tuple(rows), tuple(over),
        moved(list(load.shares)[:MOVED_USERS], wanted, wanted + 1),
        used.promised, used.note,
    )  # fmt: skip


def moved(users: Sequence[str], before: int, after: int) -> float:
    """Return the share of users whose key changes when the number of keys does."""
    if not users:
        raise ConfigError("users must be at least one, got none")
    return sum(shard_of(user, before) != shard_of(user, after) for user in users) / len(users)


def simulate_shards(
    model: Model, load: Load, shards: int, *, limit: float, lifetime_s: float, requests: int, seed: int
) -> tuple[float, float, float]:
    """Return the busiest key's requests a minute, the overflow ratio and the expected hit ratio of a number of keys.

    A model of what providers describe, and no promise of theirs (ASSUMED): requests come at random (Poisson), each
    user's with the key of :func:`~prefixroute.providers.shard_of`. Requests of one key within the last minute fill one
    machine after another, ``limit`` each. A machine holds the shared head and the users' prefixes that it has seen
    within the lifetime. The first lifetime, or half of the run if that is less, warms up and is not counted.
    """
    rng = np.random.default_rng([seed, shards])
    shares = load.shares
    users = list(shares)
    times = np.cumsum(rng.exponential(MINUTE_S / load.requests_per_minute, requests))
    who = rng.choice(len(users), size=requests, p=list(shares.values()))
    keys = {number: shard_of(users[number], shards) for number in np.unique(who).tolist()}
    recent: dict[int, deque[float]] = {}
    seen: dict[tuple[object, ...], float] = {}
    warm = min(lifetime_s, float(times[-1]) / 2)
    hit = total = over = counted = 0
    per_key: Counter[int] = Counter()
    for now, user in zip(times.tolist(), who.tolist(), strict=True):
        key = keys[user]
        window = recent.setdefault(key, deque())
        while window and window[0] <= now - MINUTE_S:
            window.popleft()
        machine = (key, int(len(window) // limit))
        window.append(now)
        found = _found(model, load, seen, (machine, user), since=now - lifetime_s)
        seen[machine] = seen[*machine, user] = now
        if now < warm:
            continue
        per_key[key] += 1
        counted += 1
        over += machine[1] > 0
        hit += found
        total += load.prompt_tokens
    span_minutes = max(float(times[-1]) - warm, 1e-9) / MINUTE_S
    return max(per_key.values(), default=0) / span_minutes, over / max(1, counted), hit / max(1, total)


def _found(
    model: Model,
    load: Load,
    seen: Mapping[tuple[object, ...], float],
    place: tuple[tuple[int, int], int],
    *,
    since: float,
) -> int:
    """Return the tokens that a machine holds of a user's request."""
    machine, user = place
    found = 0
    if seen.get(machine, -np.inf) >= since:
        found = load.shared_tokens
        if seen.get((*machine, user), -np.inf) >= since:
            found += load.user_tokens
    return found if model.is_cacheable(found) else 0
