"""One request of a workload, and the whole-prompt entry that the article's compatibility cache keys it by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from prefixroute.hashing import BlockHashes
from prefixroute.types import EMPTY_ATTRS


class CacheEntry(NamedTuple):
    """How a cache of kind ``entries`` sees a request: a whole prompt under one name, all sizes in tokens.

    Attributes:
        id: what the entry is found by (a conversation, a document).
        held_tokens: what the entry weighs once the request has been served.
        shared_tokens: leading tokens that any replica holds that has served anything (the system prompt).
    """

    id: str
    held_tokens: int
    shared_tokens: int = 0


def cached_tokens(prompt_tokens: int, output_tokens: int) -> int:
    """Return the tokens whose keys and values a finished request leaves: all but the last one sampled.

    An engine computes a token's keys and values in the step after the one that samples it, and there is none after
    the last.
    """
    return prompt_tokens + max(output_tokens - 1, 0)


REPLICA: Final = "replica"
"""The attribute of a request that names the replica that served it, where a log says so. For statistics: no policy
reads it."""
USER: Final = "user"
"""The attribute of a request that names its user, where a log says so and it is not the tenant. For statistics: no
policy reads it."""


class Masked(NamedTuple):
    """The blocks of a request as they were if the volatile text in its head were the same in every prompt."""

    prompt: BlockHashes
    context: BlockHashes


class Request(NamedTuple):
    """One request: when it arrives, what its prompt shares with others, and what is cached once it is served.

    ``context`` always begins with ``prompt``, and has the full blocks of its first :func:`cached_tokens`. Where a
    trace does not say what the answer was, the two are the same
    object: the answer is then not reused (its tokens still count for decoding).

    Attributes:
        arrival_s: seconds from the start of the workload; never decreases within a workload.
        prompt: the prompt's full blocks.
        context: the full blocks of prompt and answer, but for the last token: what the replica may hold afterwards.
        prompt_tokens: tokens of the prompt, at least 1, those of a partial last block included.
        output_tokens: tokens of the answer. Policies never see it.
        session: the key that turns of one conversation share, or None where there is none.
        document: the key of a document that several sessions ask about, or None.
        tenant: who is billed, or None.
        model: the model asked for, or None.
        entry: the request for a cache of kind ``entries``, or None where that scheme does not fit.
        reported_hit_tokens: cached tokens that the engine reported in the log; None is unknown, not zero.
        attrs: anything else the trace says (for example ``type``), for policies that read request attributes.
        masked: the blocks without what is volatile in the prompt's head, where there is such text; see
            :attr:`~prefixroute.workload.Workload.masked`.
    """

    arrival_s: float
    prompt: BlockHashes
    context: BlockHashes
    prompt_tokens: int
    output_tokens: int
    session: str | None = None
    document: str | None = None
    tenant: str | None = None
    model: str | None = None
    entry: CacheEntry | None = None
    reported_hit_tokens: int | None = None
    attrs: Mapping[str, str] = EMPTY_ATTRS
    masked: Masked | None = None
