"""The decision: where a request should go, and everything needed to say why, rank the others, and decide it again."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from prefixroute.errors import ConfigError
from prefixroute.policies.base import Scores, resolve
from prefixroute.validation import check_int, shown

if TYPE_CHECKING:
    from prefixroute.belief import Blocks
    from prefixroute.policies.base import Policy
    from prefixroute.policies.view import View


class Limits(NamedTuple):
    """What the caller allows.

    Attributes:
        candidates: the only candidates; ``None`` = every replica.
        exclude: replicas that may not take the request.
        hard: a bound session goes to its replica or nowhere.
        ignores_unknown: candidates that the fleet does not have are left out; else they are an error.
    """

    candidates: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    hard: bool = False
    ignores_unknown: bool = False


NO_LIMITS = Limits()


def limits_of(
    candidates: Iterable[str] | None, exclude: Iterable[str] | None, affinity: str, unknown_candidates: str
) -> Limits:
    """Return the caller's limits, kept for a retry; refuse a bare string, and words that are not known."""
    if affinity not in ("soft", "hard"):  # a tuple compares what cannot be hashed
        raise ConfigError(f"affinity must be 'soft' or 'hard', got {shown(affinity)}")
    if unknown_candidates not in ("raise", "ignore"):
        raise ConfigError(f"unknown_candidates must be 'raise' or 'ignore', got {shown(unknown_candidates)}")
    if candidates is None and exclude is None and affinity == "soft":
        return NO_LIMITS
    ignores = unknown_candidates == "ignore"
    return Limits(_names("candidates", candidates), _names("exclude", exclude), affinity == "hard", ignores)


def _names(what: str, names: Iterable[str] | None) -> tuple[str, ...] | None:
    if isinstance(names, str):
        raise ConfigError(f"{what} must be a collection of replica names, got the string {shown(names)}")
    if names is not None and not isinstance(names, Iterable):
        raise ConfigError(f"{what} must be a collection of replica names, got {shown(names)}")
    if names is None:
        return None
    names = tuple(names)
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"{what} must be a collection of replica names, got one that holds {shown(name)}")
    return names


class Decision:
    """The answer of :meth:`Router.choose`. Immutable; changes nothing until it is committed.

    ``ranked`` and ``scores`` are worked out when asked for, from the view that the decision was made of.

    Attributes:
        view: what the policy saw.
        slot: slot of the chosen replica in the view.
        reason: the policy's word for why.
        best_hit_tokens: the most that any candidate is believed to hold of the prompt.
        rule: the policy that decided.
        prompt: the prompt as the caller gave it.
        prompt_kind: its kind, if that is another than the router's; else ``None``.
        blocks: the prompt, hashed.
        branch: hash of the last block that some replica holds, if the prompt goes on behind it; else ``None``.
        limits: what the caller allowed.
        detour: the request goes elsewhere while its session stays bound.
        fleet_version: version of the fleet that was chosen from.
    """

    __slots__ = (
        "best_hit_tokens",
        "blocks",
        "branch",
        "detour",
        "fleet_version",
        "limits",
        "prompt",
        "prompt_kind",
        "reason",
        "rule",
        "slot",
        "view",
    )

    view: View
    slot: int
    reason: str
    best_hit_tokens: int
    rule: Policy
    prompt: Any
    prompt_kind: str | None
    blocks: Blocks
    branch: int | None
    limits: Limits
    detour: bool
    fleet_version: int

    @property
    def replica(self) -> str:
        """Name of the chosen replica."""
        return self.view.names[self.slot] or ""

    @property
    def hit_tokens(self) -> int:
        """Leading prompt tokens that the chosen replica is believed to hold."""
        return self.view.hits[self.slot]

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
        return self.view.prompt_tokens

    @property
    def policy(self) -> str:
        """Name of the policy that decided."""
        return self.rule.name

    @property
    def decision_id(self) -> int:
        """Number of the decision; with the router's seed it fixes every draw."""
        return self.view.decision_id

    @property
    def ranked(self) -> list[str]:
        """All candidates, best first: each next one is what the policy picks once those before it are gone."""
        return self.ranked_top(len(self.view.slots))

    def ranked_top(self, count: int) -> list[str]:
        """Return the first of :attr:`ranked`, without ranking the others.

        Args:
            count: how many names at most, 1 or more. Each behind the first costs one more decision of the policy.
        """
        check_int("count", count, 1)
        view, slot = self.view, self.slot
        names = [view.names[slot] or ""]
        while len(names) < count and len(view.slots) > 1:
            view = view.without(slot)
            slot = resolve(self.rule.decide(view), view, self.rule.name)[0]
            names.append(view.names[slot] or "")
        return names

    def keyed(self, key: str) -> Decision:
        """Return the same decision for a request that the caller calls ``key``.

        Args:
            key: the caller's name for the request.

        Returns:
            An equal decision with that key.
        """
        named = copy(self)
        named.view = self.view._replace(request=self.view.request._replace(key=key))
        return named

    @property
    def scores(self) -> dict[str, float] | None:
        """Score of each candidate, higher is better; ``None`` if the policy picks without scores."""
        choice = self.rule.decide(self.view)
        if not isinstance(choice, Scores):
            return None
        names = self.view.names
        return {names[slot] or "": value for slot, value in zip(self.view.slots, choice.values, strict=True)}

    def __repr__(self) -> str:
        """Show the answer in a line."""
        return (
            f"<Decision {self.replica!r} {self.reason} by {self.policy}: {self.hit_tokens} of {self.prompt_tokens} tokens "
            f"held, best {self.best_hit_tokens}, decision {self.decision_id}>"
        )
