"""The state of a router: everything that changes, in parts with public names."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from prefixroute.belief import Belief
from prefixroute.columns import Kernel, Lens
from prefixroute.errors import ConfigError
from prefixroute.index import PrefixIndex
from prefixroute.limits import FIXED_HASH_KEY
from prefixroute.policies import Policy, as_policy
from prefixroute.policies.base import kernel_of
from prefixroute.policies.view import Readers, kept_of, readers_of
from prefixroute.routing.config import RouterConfig
from prefixroute.routing.fleet import Fleet
from prefixroute.routing.ledger import Attempt, CommonHead, Ledger, Listener
from prefixroute.routing.loads import BOOKED
from prefixroute.routing.prompts import Prompts
from prefixroute.types import Caps, LoadReport, Namespace
from prefixroute.validation import shown

_LOG = logging.getLogger("prefixroute")
RECENT_NAMESPACES = 64
"""Prompts whose namespaces are remembered, to say why none of them matches what an engine reports."""
SWEEP_S = 1.0
"""Seconds between two looks for expired tickets, idle sessions and blocks past their lifetime."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy, and how a decision by it is made.

    Attributes:
        policy: the policy.
        kernel: its rule, compiled; ``None`` = it has to be asked.
        readers: how the signals that it reads are read that the sight does not have.
        kept: places of those that the sight has.
        lens: what the sight is read by.
    """

    policy: Policy
    kernel: Kernel | None
    readers: Readers
    kept: tuple[int, ...]
    lens: Lens

    @classmethod
    def of(cls, policy: Policy, placing: Policy, config: RouterConfig) -> Rule:
        """Return the rule of a policy of a router whose prompts are placed by the head that ``placing`` asks for."""
        required = policy.required_signals()
        kept, credits_ = kept_of(required), config.tier_credits
        plain = type(placing).head_length is Policy.head_length and not placing.boundaries
        lens = Lens(
            config.block_size,
            kept,
            placing.head_tokens if plain else placing.head_length,
            None if all(credit == 1.0 for credit in credits_) else np.asarray(credits_),
        )
        return cls(policy, kernel_of(policy), readers_of(required), kept, lens)


class RouterState:
    """One router's configuration, fleet, ledger and belief.

    Not thread-safe: whoever changes it holds a lock. A signal handler or finalizer may call between any two statements
    of a call, or raise there. What happens to requests is one compiled call of the ledger each. A change of the fleet
    takes several, so it is a *step*: :attr:`step` is set before it and cleared behind it. Who finds it set calls
    :meth:`repair`, which recomputes what follows from the fleet's members; who finds at the end that somebody else has
    cleared it does the same.

    Attributes:
        given: the configuration as it was given.
        config: the same with a preset's belief settings applied.
        notes: what a preset changed of the configuration, in words.
        policy: the policy that decides.
        rules: the policies that decide on each part of a request.
        belief: what each replica is believed to hold.
        booked_load: the load signal, if the ledger has it, by its place in ``Ledger.LOADS``; else ``None``.
        capped: whether there are admission caps.
        decision_id: number of the next decision.
        recent_namespaces: those of the last prompts, as they were given.
        epoch: counts changes of the weights.
        width: slots that the belief may write; at least those of the fleet.
        sweep_at: time of the next look for what has expired.
        learns_heads: whether the policy knows common heads.
        warned: whether a head that herds has been warned of.
        step: what is being changed; ``None`` = nothing.
        listener: hears of each step of requests, such as a commit feed.
        on_expired: hears of each attempt that is given up since nothing more was heard of it.
        on_cleared: hears of each replica whose belief is cleared by anybody but its own feed.
    """

    def __init__(self, config: RouterConfig, index: Belief | None = None) -> None:
        """Start without replicas. ``index``: the belief; ``None`` = a new ``PrefixIndex``.

        Args:
            config: of the router.
            index: the belief; ``None`` = a new :class:`~prefixroute.index.PrefixIndex`.
        """
        if index is not None and not isinstance(index, Belief):
            raise ConfigError(f"index must be a PrefixIndex or a belief with all its methods, got {shown(index)}")
        self.given = config
        self.config, self.notes = config.resolved(None if index is None else index.block_size)
        config, timing = self.config, self.config.timing
        self.policy, self.policy_name = as_policy(config.policy), config.policy_name
        self.belief = _new_index(config) if index is None else index
        rule = Rule.of(self.policy, self.policy, config)
        answers = Rule.of(as_policy(config.decode_policy), self.policy, config)
        self.rules = (rule, rule, answers)
        required = self.policy.required_signals() | answers.policy.required_signals()
        self.ledger = Ledger(
            window=config.recent_window,
            window_s=timing.window_s,
            ticket_s=timing.ticket_s,
            session_idle_s=timing.session_idle_s,
            session_capacity=config.session_capacity,
            recent=config.load == "recent" or "recent" in required,
            balances_recent=config.load == "recent",
            served=config.load == "requests",
            active_block_size=config.block_size if required & {"active", "active_hits"} else None,
            hash_key=self.belief.hash_key,
        )
        self.live = self.ledger.loads()
        self.fleet = Fleet(timing.slow_start_s, config.hash_seed, self.ledger)
        self.prompts = Prompts(config.prompt_kind, config.block_size, config.render, config.tokenizer)
        self.spends, self.learns_heads = "window_s" in required, "shared" in self.policy.required_signals()
        self.booked_load = BOOKED.index(config.load) if config.load in BOOKED else None
        self.seed, self.block_size = config.seed, config.block_size
        self.capped = config.caps != Caps(retry_after_s=config.caps.retry_after_s)
        self.decision_id = self.epoch = self.width = 0
        self.recent_namespaces: deque[Namespace | None] = deque(maxlen=RECENT_NAMESPACES)
        self.sweep_at = float("-inf")
        self.step: Any = None
        self.on_expired: Callable[[Attempt], object] | None = None
        self.on_cleared: Callable[[str], object] | None = None
        self.listener: Listener | None = None
        self.warned = False
        self.clamped_reports = 0

    @property
    def matches_text(self) -> bool:
        """Whether prompts are matched by their text, so that events about token ids say nothing about them."""
        return self.config.prompt_kind != "tokens" and self.config.tokenizer is None

    def herding(self) -> str | None:
        """Return a sentence about a head that the policy follows to few replicas; ``None`` = there is none."""
        head = CommonHead(*self.ledger.head)
        if self.learns_heads or not head.herds:
            return None
        return (
            f"{100 * head.share:.0f} % of new requests share a head of {head.tokens:,} tokens that {head.holders} of the "
            f"{head.replicas} replicas {'holds' if head.holders == 1 else 'hold'}: policy {self.policy_name!r} follows it "
            "there. policy='cache-aware' spreads it"
        )

    def reports(self, now: float) -> list[LoadReport | None]:
        """Return each replica's report by slot, ``None`` where it is stale or absent.

        Args:
            now: time on the router's clock, in seconds.
        """
        if not self.fleet.reporting:
            return [None] * len(self.fleet.by_slot)
        fresh_s = self.config.timing.report_fresh_s
        return [None if m is None or m.has_lapsed(now, fresh_s) else m.report for m in self.fleet.by_slot]

    def repair(self) -> None:
        """Recompute what follows from the fleet's members."""
        while True:
            mine = self.step = object()
            self.width = max(self.width, len(self.fleet.by_slot))
            self.fleet.refresh()
            if self.step is mine:  # else somebody has changed the state meanwhile
                self.step = None
                return

    def sweep(self, now: float) -> None:
        """Once a second: forget idle sessions and blocks past their lifetime, and end suspensions that are over.

        Args:
            now: time on the router's clock, in seconds.
        """
        if 0.0 < self.sweep_at - now <= SWEEP_S:  # more than that: the clock went back
            return
        step = self.begin()
        self.ledger.sweep(now)
        self.belief.expire(now)
        self.fleet.sweep(now)
        if self.listener is not None:
            self.listener.tick(now)
        ends = [member.resume_at for member in list(self.fleet.members.values())]
        if not self.warned and not self.learns_heads and (herding := self.herding()) is not None:
            self.warned = True
            _LOG.warning("%s", herding)
        self.sweep_at = min([now + SWEEP_S, *(end for end in ends if end is not None)])
        self.end(step)

    def begin(self) -> object:
        """Begin a step; :meth:`end` takes what this returns."""
        step = self.step = object()
        return step

    def end(self, step: object) -> None:
        """End a step; repair the state if something was changed in the middle of it.

        Args:
            step: what :meth:`begin` has returned.
        """
        if self.step is step:
            self.step = None
        else:
            self.repair()


def _hash_key(config: RouterConfig) -> int | None:
    """Return the key of the index, ``None`` for a random one: routers that place by the prompt's head must agree."""
    placed = "head" in as_policy(config.policy).required_signals()
    return FIXED_HASH_KEY if config.hash_key is None and placed else config.hash_key


def _new_index(config: RouterConfig) -> Belief:
    provisional_s = config.timing.provisional_s
    return PrefixIndex(
        block_size=config.block_size,
        max_bytes=config.max_bytes,
        ttl_s=config.ttl_s,
        hash_key=_hash_key(config),
        provisional_s=provisional_s if isfinite(provisional_s) else None,
    )
