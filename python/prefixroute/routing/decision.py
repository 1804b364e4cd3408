"""The decision: where a request should go, and everything needed to say why, rank the others, and decide it again."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from prefixroute.belief import Blocks
from prefixroute.columns import Sight
from prefixroute.policies import RequestInfo
from prefixroute.policies.base import Scores, resolve
from prefixroute.policies.view import View
from prefixroute.routing.fleet import Snapshot
from prefixroute.routing.state import Rule
from prefixroute.types import new_tuple
from prefixroute.validation import check_choice, check_int, check_texts

if TYPE_CHECKING:
    from prefixroute.routing.decide import Query


class DecisionLimits(NamedTuple):
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


NO_LIMITS = DecisionLimits()


def limits_of(
    candidates: Iterable[str] | None, exclude: Iterable[str] | None, affinity: str, unknown_candidates: str
) -> DecisionLimits:
    """Return the caller's limits, kept for a retry; refuse a bare string, and words that are not known."""
    check_choice("affinity", affinity, ("soft", "hard"))
    check_choice("unknown_candidates", unknown_candidates, ("raise", "ignore"))
    if candidates is None and exclude is None and affinity == "soft":
        return NO_LIMITS
    wanted = None if candidates is None else check_texts("candidates", candidates, "replica names")
    unwanted = None if exclude is None else check_texts("exclude", exclude, "replica names")
    return DecisionLimits(wanted, unwanted, affinity == "hard", unknown_candidates == "ignore")


class Decision:
    """The answer of :meth:`Router.choose`. Immutable; changes nothing until it is committed.

    ``view``, ``ranked`` and ``scores`` are worked out when asked for, from what the decision keeps.

    Attributes:
        query: what was to be decided.
        prompt: the prompt as the caller gave it; ``None`` once a request with a key has finished.
        blocks: the prompt, hashed.
        prompt_tokens: length of the prompt in tokens.
        fleet: the fleet that was chosen from.
        sight: what was known of each slot: hits, loads, binding.
        slots: the candidates, ascending.
        signals: what the policy asked for beside, in the order of a view's fields.
        decision_id: number of the decision; with the seed it fixes every draw.
        seed: of the draws.
        rule: the policy that decided.
        slot: slot of the chosen replica.
        reason: the policy's word for why.
    """

    __slots__ = (
        "_view", "blocks", "decision_id", "fleet", "prompt", "prompt_tokens", "query", "reason", "rule", "seed", "sight",
        "signals", "slot", "slots",
    )  # fmt: skip

    _view: View | None
    blocks: Blocks
    decision_id: int
    fleet: Snapshot
    prompt: Any
    prompt_tokens: int
    query: Query
    reason: str
    rule: Rule
    seed: int
    sight: Sight
    signals: tuple[Any, ...]
    slot: int
    slots: tuple[int, ...]

    def __init__(self, query: Query) -> None:
        """Begin with what is to be decided; :func:`~prefixroute.routing.decide.decide` sets the rest.

        Args:
            query: the request and what was gathered for it.
        """
        self.query, self._view = query, None

    @property
    def view(self) -> View:
        """What the policy sees."""
        if self._view is not None:
            return self._view
        fleet, sight, signals = self.fleet, self.sight, list(self.signals)
        for place in self.rule.kept:
            signals[place] = sight.signal(place)
        named = self.slots, fleet.names, fleet.hashes, fleet.weights, self.decision_id, self.seed, self.prompt_tokens
        view: View = new_tuple(View, (*named, *sight.columns(), self.query.info, *signals))
        self._view = view
        return view

    @property
    def replica(self) -> str:
        """Name of the chosen replica."""
        return self.fleet.names[self.slot] or ""

    @property
    def hit_tokens(self) -> int:
        """Leading prompt tokens that the chosen replica is believed to hold."""
        return self.sight.hit(self.slot)

    @property
    def best_hit_tokens(self) -> int:
        """The most that any candidate is believed to hold of the prompt."""
        return self.sight.best_hit(self.slots)

    @property
    def policy(self) -> str:
        """Name of the policy that decided."""
        return self.rule.policy.name

    @property
    def request(self) -> RequestInfo:
        """What the caller said about the request."""
        return self.query.info

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
        view, slot, policy = self.view, self.slot, self.rule.policy
        names = [view.names[slot] or ""]
        while len(names) < count and len(view.slots) > 1:
            view = view.without(slot)
            slot = resolve(policy.decide(view), view, policy.name)[0]
            names.append(view.names[slot] or "")
        return names

    def keyed(self, key: str | None) -> Decision:
        """Return the same decision for a request that the caller calls ``key``, to be committed.

        Args:
            key: the caller's name for the request; ``None`` = the name that it was chosen with, if it has one.

        Returns:
            An equal decision. One with a key is another object: a commit lets go of its prompt, and the caller's own
            decision may be committed again.
        """
        if key is not None:
            return self.about(self.request._replace(key=key))
        return self if self.query.info.key is None else copy(self)

    def about(self, request: RequestInfo) -> Decision:
        """Return the same decision for a request of which the caller says this.

        Args:
            request: what the caller says.

        Returns:
            An equal decision about that request.
        """
        same = copy(self)
        same.query = self.query._replace(info=request)
        same._view = self.view._replace(request=request)  # noqa: SLF001  # its own class's
        return same

    def forget_prompt(self) -> None:
        """Let go of the prompt: the request is over, and only what was decided of it is remembered."""
        self.prompt, self.query = None, self.query._replace(prompt=self.blocks)

    @property
    def scores(self) -> dict[str, float] | None:
        """Score of each candidate, higher is better; ``None`` if the policy picks without scores."""
        choice = self.rule.policy.decide(self.view)
        if not isinstance(choice, Scores):
            return None
        names = self.fleet.names
        return {names[slot] or "": value for slot, value in zip(self.slots, choice.values, strict=True)}

    def __repr__(self) -> str:
        """Show the answer in a line."""
        return (
            f"<Decision {self.replica!r} {self.reason} by {self.policy}: {self.hit_tokens} of {self.prompt_tokens} tokens "
            f"held, best {self.best_hit_tokens}, decision {self.decision_id}>"
        )
