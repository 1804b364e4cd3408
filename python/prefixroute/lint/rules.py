"""What is checked before routing or caching is bought, as a table, and one finding of a check."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

NOTE, WARNING, ERROR = "note", "warning", "error"
LEVELS = (NOTE, WARNING, ERROR)
"""How grave a finding is, the gravest last."""


@dataclass(frozen=True, slots=True)
class LintRule:
    """One check.

    Attributes:
        id: for programs, ``PR101``; it never changes.
        name: for people, in kebab case.
        level: how grave a finding is.
        title: what the check looks for.
        text: a finding's sentence; its evidence fills the braces.
        remedy: how to fix it.
    """

    id: str
    name: str
    level: str
    title: str
    text: str
    remedy: str


_TABLE = (
    LintRule(
        "PR101", "volatile-head", ERROR, "a date, id or counter near the start of prompts",
        "{where}, character {character:,}: a {kind} that changes in {share:.0%} of the prompts, after {tokens:,} "
        "tokens; {lost_tokens:,} tokens behind it are not reused",
        "Move it behind everything that is shared, or leave it out.",
    ),
    LintRule(
        "PR102", "prefix-too-short", WARNING, "a shared prefix below a block or below the provider's minimum",
        "prompts begin with {head_tokens:,} tokens in common, less than the {minimum:,} that are cached at least "
        "({what})",
        "Put instructions, tools and examples that all prompts share in front, until the minimum is reached.",
    ),
    LintRule(
        "PR103", "prompts-below-minimum", NOTE, "prompts below the provider's minimum",
        "{share:.0%} of the prompts have fewer than the {minimum:,} tokens that {model} caches at least",
        "Nothing is cached for these, silently: a model with a lower minimum would.",
    ),
    LintRule(
        "PR104", "tools-reordered", ERROR, "the same tools in another order",
        "in {count:,} of {prompts:,} prompts the same tools stand in another order than in most",
        "Sort tools by name before they are sent: they are the first part of every prompt.",
    ),
    LintRule(
        "PR105", "system-reordered", ERROR, "the same system blocks in another order",
        "in {count:,} of {prompts:,} prompts the same system blocks stand in another order than in most",
        "Render the parts of the system prompt in a fixed order.",
    ),
    LintRule(
        "PR201", "lifetime", WARNING, "a lifetime that does not fit the gaps between uses",
        "entries of {lifetime} reuse {ratio:.1%} of the prompt tokens, {best} would be cheapest with {best_ratio:.1%}",
        "Ask for the lifetime {best}.",
    ),
    LintRule(
        "PR202", "cache-off", ERROR, "a prefix cache that is switched off",
        "{engine}: prefix caching is off, where {ratio:.1%} of the prompt tokens could be reused",
        "Switch it on: enable_prefix_caching for vLLM; no disable_radix_cache for SGLang.",
    ),
    LintRule(
        "PR203", "no-marks", ERROR, "prompts without breakpoints at a provider that needs them",
        "none of {bodies:,} request bodies carries a breakpoint, and {model} caches nothing without; {best} would "
        "reuse {ratio:.1%}",
        "Set cache_control on the last block that calls share, or at the top of the request.",
    ),
    LintRule(
        "PR204", "cache-too-small", WARNING, "a cache that holds less than is reused",
        "{capacity:,} tokens of cache over {engines} engines reuse {ratio:.1%} of the prompt tokens, one without a "
        "bound {ideal:.1%}",
        "Give the cache more memory, or route each prefix to one replica: `prefixroute advise` says which.",
    ),
    LintRule(
        "PR205", "reuse-not-reached", WARNING, "far fewer cached tokens than could be",
        "the log reports {reported:.1%} of the prompt tokens as cached, where {ideal:.1%} could be",
        "`prefixroute trace LOG` says where the rest is lost: new to all replicas, held by another, or evicted.",
    ),
    LintRule(
        "PR206", "written-for-nothing", WARNING, "entries that are written at a fee and hardly read",
        "entries of {lifetime} are written at a fee and reuse {ratio:.1%} of the prompt tokens: no cache would cost "
        "less",
        "Set no breakpoints until the other findings are fixed.",
    ),
    LintRule(
        "PR207", "miss-diagnosed", WARNING, "misses that the provider itself explains",
        "{count:,} of {responses:,} responses say {reason}; about {missed_tokens:,} tokens were not read",
        "Send that part of the request as in the one before; the provider compared the two.",
    ),
    LintRule(
        "PR208", "no-hits-reported", WARNING, "a log whose cached tokens are 0 throughout",
        "all {requests:,} reports say 0 cached tokens, where {ideal:.1%} of the prompt tokens could be: caches are "
        "off, or hits are not reported",
        "Turn the prefix caches on (at a provider: set breakpoints), and let engines report hits (vLLM: "
        "--enable-prompt-tokens-details).",
    ),
    LintRule(
        "PR301", "hash-seeds-differ", ERROR, "engines whose block hashes differ",
        "engines have {count} different hash seeds or algorithms ({seeds}): equal prompts have unequal block hashes",
        "Set one PYTHONHASHSEED and one prefix_caching_hash_algo for all engines.",
    ),
    LintRule(
        "PR302", "routers-not-sticky", ERROR, "several routers without a sticky front",
        "{processes} routers share nothing behind a front that is not sticky: a session meets another router each time",
        "Make the front send a session to one router, or use a policy without state, such as rendezvous.",
    ),
    LintRule(
        "PR303", "capacity-told-wrongly", WARNING, "a router that is told another cache size than engines have",
        "the router believes in {told:,} tokens a replica, the engines have {real:,}",
        "Give the router the engines' own figure.",
    ),
    LintRule(
        "PR304", "block-size-differs", WARNING, "a router whose blocks are not the engines'",
        "the router counts blocks of {router} tokens, the engines have blocks of {engines}",
        "Give the router the engines' block size.",
    ),
    LintRule(
        "PR401", "key-over-rate", WARNING, "a routing key above its rate",
        "{share:.0%} of the requests come while their key has had {limit:g} in the last minute; the busiest has "
        "{busiest:.0f}",
        "Split keys by user: prefixroute.cache_key(user_id, {shards}) keeps each under it on average.",
    ),
    LintRule(
        "PR402", "workspaces", WARNING, "one prefix in several workspaces",
        "a prefix of {tokens:,} tokens is used from {workspaces} workspaces, each of which writes it for itself",
        "Send requests with one prefix from one workspace.",
    ),
    LintRule(
        "PR403", "binding-shorter-than-lifetime", WARNING, "a binding that ends before the cache entry does",
        "sessions are bound for {binding:g} s, entries live {seconds:g} s ({lifetime}): who comes back in between is "
        "sent elsewhere",
        "Bind sessions at least as long as entries live.",
    ),
)  # fmt: skip
PERCENT = re.compile(r"(?<=\d)%")
RULES: Mapping[str, LintRule] = MappingProxyType({rule.name: rule for rule in _TABLE})
"""Every check by its name."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """What one check found.

    Attributes:
        rule: the check.
        evidence: the figures that fill its sentence.
        usd_per_month: US dollars a month that it costs, None where that cannot be told.
        line: line of the log that shows it, from 1; None where no single line does.
    """

    rule: LintRule
    evidence: Mapping[str, Any] = field(default_factory=dict)
    usd_per_month: float | None = None
    line: int | None = None

    @property
    def message(self) -> str:
        """The sentence, with its percentages as everywhere: ``70.9 %``."""
        return PERCENT.sub(" %", self.rule.text.format(**self.evidence))

    @property
    def remedy(self) -> str:
        """How to fix it."""
        return self.rule.remedy.format(**self.evidence)

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return {
            "id": self.rule.id,
            "rule": self.rule.name,
            "level": self.rule.level,
            "message": self.message,
            "remedy": self.remedy,
            "evidence": dict(self.evidence),
            "usd_per_month": self.usd_per_month,
            "line": self.line,
        }


def found(name: str, *, usd_per_month: float | None = None, line: int | None = None, **evidence: Any) -> LintFinding:
    """Return a finding of a check by its name."""
    return LintFinding(RULES[name], evidence, usd_per_month, line)
