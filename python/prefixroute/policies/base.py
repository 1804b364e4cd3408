"""The policy: a small frozen object, one pure function of a view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import inf, isnan
from numbers import Real
from operator import index
from typing import Any, ClassVar, NamedTuple, SupportsIndex, TypeAlias, TypeGuard

import numpy as np

from prefixroute.columns import Column, Kernel, Roster, Sight, best_of
from prefixroute.errors import ConfigError
from prefixroute.policies.view import SIGNALS, View, is_candidate
from prefixroute.validation import check_float, check_instance, check_int, shown

MOST_TOKENS = (1 << 63) - 1
"""The largest count of tokens that a parameter may be."""
Pick: TypeAlias = tuple[int, str]
"""One slot, and why."""


class Scores(NamedTuple):
    """One number per candidate slot, in the order of ``view.slots``: the highest wins (a cost is given negated).

    With a ``temperature`` above 0 the winner is drawn by softmax of ``value / temperature``.
    """

    values: Column
    reason: str
    temperature: float = 0.0


class Policy:
    """Decides where a request goes. Subclass it, give it a name, and write :meth:`decide`.

    A policy is stateless and pure: it sees one frozen :class:`~prefixroute.policies.View` and returns a slot with a
    reason, or :class:`Scores`. Everything it may want to remember is a signal of the view, kept by the router.
    It need not care for caps, ranking or excluded replicas: the router asks again with fewer candidates.
    """

    __slots__ = ()
    name: ClassVar[str] = "custom"
    signals: ClassVar[frozenset[str]] = SIGNALS
    """Optional signals that the view must carry. What is not needed is not gathered."""
    matches: ClassVar[bool] = True
    """Whether it looks at what replicas hold. One that does not gains nothing from a router that knows caches
    better."""
    head_tokens: int = 256
    """Length of the prompt's head that ``view.head`` stands for, rounded down to full blocks (at least one)."""
    boundaries: tuple[int, ...] = ()
    """Lengths at which shared prefixes end: the longest one inside the prompt replaces ``head_tokens``."""

    def required_signals(self) -> frozenset[str]:
        """Signals of this object: its ``signals`` and those of policies inside of it."""
        return self.signals

    def reads_hits(self) -> bool:
        """Return whether decisions of this object, or of a fallback inside of it, look at what replicas hold."""
        fallback = getattr(self, "fallback", None)
        return self.matches or (isinstance(fallback, Policy) and fallback.reads_hits())

    def kernel(self) -> Kernel | None:
        """Return a compiled function that decides as :meth:`decide` does, without a view; ``None`` = there is none."""
        return None

    def head_length(self, prompt_tokens: int) -> int:
        """Return the tokens that ``view.head`` stands for, given the prompt's length.

        Args:
            prompt_tokens: length of the prompt.

        Returns:
            Tokens of the head, by which prompts are told apart.
        """
        lengths = [length for length in self.boundaries if length <= prompt_tokens]
        return max(lengths) if lengths else self.head_tokens

    def decide(self, view: View) -> Pick | Scores:
        """Return the chosen slot with a reason, or a score for each candidate slot.

        Args:
            view: all that may be known of the request and the replicas.

        Raises:
            NotImplementedError: the policy has no rule of its own.
        """
        raise NotImplementedError(f"policy {self.name!r} does not override decide()")


def check_parameters(policy: Policy) -> None:
    """Raise :class:`ConfigError` unless each parameter is of the kind that its policy declares.

    Checked are parameters declared as ``bool``, ``int``, ``float``, ``str`` or ``Policy``, and costs, which may be of
    any class that prices a prefill. A float may be infinite here; ranges are for the policy to check.

    Args:
        policy: an object of a dataclass whose annotations are kept as text.
    """
    for parameter in fields(policy):  # type: ignore[arg-type]  # every policy is a dataclass
        check = _CHECKS.get(str(parameter.type))
        if check is not None:
            check(f"{policy.name} {parameter.name}", getattr(policy, parameter.name))


def check_number(name: str, value: Any) -> None:
    """Raise :class:`ConfigError` unless ``value`` is a number, which may be infinite."""
    if isinstance(value, float) and isnan(value):
        _refuse(name, "a number", value)
    check_float(name, value, -inf, endless=True)


def _check_cost(name: str, value: Any) -> None:
    if not callable(getattr(value, "prefill_seconds", None)):
        _refuse(name, "a CostModel", value)


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        _refuse(name, "true or false", value)


def _refuse(name: str, allowed: str, value: Any) -> None:
    raise ConfigError(f"{name} must be {allowed}, got {shown(value)}")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "bool": _check_bool,
    "int": lambda name, value: check_int(name, value, 0, MOST_TOKENS),
    "float": check_number,
    "str": lambda name, value: check_instance(name, value, str),
    "Policy": lambda name, value: check_instance(name, value, Policy),
    "CostModel": _check_cost,
}
"""What checks a parameter, by the text of its annotation."""


def kernel_of(policy: Policy) -> Kernel | None:
    """Return a policy's kernel; ``None`` if it has none, or is of a class that decides otherwise than the kernel's."""
    for kind in type(policy).__mro__:
        if "kernel" in vars(kind):
            return policy.kernel()
        if "decide" in vars(kind):
            break
    return None


_START = View._fields.index(Kernel.SIGNALS[0])
_SIGNALS = slice(_START, _START + len(Kernel.SIGNALS))
"""The signals of a view that kernels read; those behind them are for policies in Python alone."""


def seen(view: View) -> tuple[Any, ...]:
    """Return a view as what a kernel is asked about."""
    sight = Sight(view.hits, view.loads, binding=view.binding, shared=view.shared)
    roster, signals = Roster(view.hashes, view.weights), view[_SIGNALS]
    return sight, view.slots, view.seed, view.decision_id, view.prompt_tokens, view.request, roster, signals


class CompiledRule(Policy):
    """A policy whose rule is a kernel, and whose fields are its parameters."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_parameters(self)

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        raise NotImplementedError(f"policy {self.name!r} does not override kernel()")


class Compiled(CompiledRule):
    """A policy whose rule is a kernel that picks."""

    __slots__ = ()
    signals: ClassVar[frozenset[str]] = frozenset()
    """Those that its own rule reads; its fallback reads others."""
    fallback: Policy

    def required_signals(self) -> frozenset[str]:
        """Return its own signals and those of its fallback, if it has one."""
        fallback: Policy | None = getattr(self, "fallback", None)
        return self.signals if fallback is None else self.signals | fallback.required_signals()

    def decide(self, view: View) -> Pick:
        """Return the kernel's pick, or that of the policy that it leaves the decision to."""
        slot, reason = self.kernel().decide(*seen(view))
        if slot < 0:
            other = self.otherwise(reason)
            slot = resolve(other.decide(view), view, other.name)[0]
        return slot, reason

    def otherwise(self, reason: str) -> Policy:
        """Return the policy that decides where the rule has nothing to go by, for a reason."""
        del reason
        return self.fallback


class Scored(CompiledRule):
    """A policy whose rule is a kernel that takes the highest of scores."""

    __slots__ = ()

    def decide(self, view: View) -> Scores:
        """Return the scores of the kernel."""
        return Scores(*self.kernel().scores(*seen(view)))


Answer: TypeAlias = int | Pick | Column | Scores
"""What a user's function may return: a slot, a slot and a reason, or one score per candidate slot."""


@dataclass(frozen=True, slots=True)
class FunctionPolicy(Policy):
    """A plain function ``view -> slot | (slot, reason) | scores`` as a policy. Sees every signal."""

    function: Callable[[View], Answer]
    name: str = "custom"  # type: ignore[misc]  # a class variable of Policy, a field here

    def decide(self, view: View) -> Pick | Scores:
        """Call the function and bring its answer into one of the two forms."""
        return as_choice(self.function(view), self.name)


def is_pick(answer: Any) -> TypeGuard[Pick]:
    """Return whether an answer is a plain slot and reason; to ask abstract classes takes its time."""
    return type(answer) is tuple and len(answer) == 2 and type(answer[0]) is int and type(answer[1]) is str  # noqa: PLR2004


def is_column(values: Any) -> TypeGuard[Column]:
    """Return whether these may be one number per slot: a list or another sequence, or an array of one dimension."""
    if isinstance(values, np.ndarray):
        return values.ndim == 1
    return type(values) is list or (isinstance(values, Sequence) and not isinstance(values, (str, bytes)))


def as_choice(answer: Answer, name: str) -> Pick | Scores:
    """Return ``answer`` as a slot with a reason, or as :class:`Scores`; raise :class:`ConfigError` if it is neither."""
    if isinstance(answer, Scores) or is_pick(answer):
        return answer
    if isinstance(answer, np.ndarray) and answer.ndim:
        return Scores(answer, name)
    slot: Any
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        is_pair = isinstance(answer, tuple) and len(answer) == 2 and not isinstance(answer[1], Real)  # noqa: PLR2004
        if not is_pair and (len(answer) != 2 or not isinstance(answer[1], str)):  # noqa: PLR2004  # (slot, reason)
            return Scores(answer, name)  # type: ignore[arg-type]  # a sequence of numbers, as far as types can tell
        slot, reason = answer[0] if isinstance(answer[1], str) else None, str(answer[1])
    else:
        slot, reason = answer, name
    if isinstance(slot, SupportsIndex) and not isinstance(slot, bool):
        try:
            return index(slot), reason
        except TypeError:  # an array has the method, and no index
            pass
    raise ConfigError(
        f"policy {shown(name)} must return a slot, (slot, reason) or a score per candidate slot, got {shown(answer)}"
    )


def resolve(answer: Answer, view: View, name: str) -> tuple[int, str]:
    """Return (slot, reason) of a policy's answer: ties of scores are broken by draw, a foreign slot is refused."""
    choice = as_choice(answer, name)
    if not isinstance(choice, Scores):
        if is_candidate(choice[0], view.slots):
            return choice
        raise ConfigError(f"policy {shown(name)} picked slot {choice[0]}, candidates are {view.slots}")
    (values, reason, temperature), slots = choice, view.slots
    if not isinstance(reason, str):
        raise ConfigError(f"policy {shown(name)} must give its scores a reason that is text, got {shown(reason)}")
    if temperature != 0.0:
        check_float(f"temperature of policy {shown(name)}", temperature, 0)
    if not is_column(values):
        raise ConfigError(f"policy {shown(name)} must return a score per candidate slot, got {shown(values)}")
    if len(values) != len(slots):
        raise ConfigError(f"policy {shown(name)} returned {len(values)} scores for {len(slots)} candidate slots")
    try:
        best = best_of(values, temperature, view.seed, view.decision_id)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"policy {shown(name)} returned a score that is not a number: {shown(values)}") from error
    return slots[best], reason
