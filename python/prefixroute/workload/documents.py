"""Questions about documents of unequal popularity: the article's document workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel.assumption import Assumption
from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes
from prefixroute.workload.arrivals import Arrivals, Even
from prefixroute.workload.request import Entry, Request
from prefixroute.workload.streams import chain, chain_key, stream
from prefixroute.workload.workload import Workload

_ARTICLE = "seed article's document scenario, 2026-11"
_BATCH = 4096


@dataclass(frozen=True, slots=True)
class DocumentsShape:
    """Sizes of the document workload. The defaults are the article's, but for the answer, of which it says nothing.

    Attributes:
        documents: how many documents there are.
        document_tokens: tokens of each.
        question_tokens: tokens after the document, different in every request.
        answer_tokens: tokens of the answer; they matter for a cache of blocks and for decoding only.
        zipf: exponent of the popularity: the document of rank r is asked about in proportion to ``r ** -zipf``.
    """

    documents: int = 300
    document_tokens: int = 16_000
    question_tokens: int = 100
    answer_tokens: int = 200
    zipf: float = 1.0

    def __post_init__(self) -> None:
        """Check that every size can be used."""
        for name, least in (("documents", 1), ("document_tokens", 1), ("question_tokens", 1), ("answer_tokens", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"documents {name} must be {least} or more, got {getattr(self, name)}")
        if not 0 <= self.zipf < float("inf"):
            raise ConfigError(f"documents zipf exponent must be 0 or more, got {self.zipf}")

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The sizes, for the assumptions of a result."""
        article = DocumentsShape()
        return tuple(
            Assumption(
                f"documents_{size.name.removeprefix('document_')}",
                getattr(self, size.name),
                "tokens" if size.name.endswith("tokens") else "",
                "not in the article; of no effect on a cache of kind entries"
                if size.name == "answer_tokens"
                else _ARTICLE,
                getattr(self, size.name) == getattr(article, size.name),
            )
            for size in fields(self)
        )


def zipf_shares(count: int, exponent: float) -> NDArray[np.float64]:
    """Return the shares of ``count`` things whose popularity falls as rank to the power ``-exponent``; sum 1."""
    weights: NDArray[np.float64] = np.arange(1, count + 1, dtype=float) ** -exponent
    weights /= weights.sum()
    return weights


def documents(
    seed: int = 1,
    *,
    requests: int = 40_000,
    block_size: int = 16,
    arrivals: Arrivals | None = None,
    shape: DocumentsShape | None = None,
) -> Workload:
    """Return the document workload: each request asks something new about one document, drawn by Zipf's law.

    In a cache of kind ``entries`` the replica holds the document afterwards, as in the article; in a cache of blocks
    it holds the question and the answer too, as an engine does.

    Args:
        seed: 0 or more; another seed is another draw, with other document names.
        requests: how many.
        block_size: tokens a block.
        arrivals: when they arrive; one million a day, evenly, unless given.
        shape: sizes; the article's unless given.
    """
    sizes = DocumentsShape() if shape is None else shape

    def source() -> Iterator[Request]:
        return _requests(seed, requests, block_size, arrivals or Even(), sizes)

    return Workload("documents", block_size, source, requests, sizes.assumptions)


def _requests(seed: int, count: int, block_size: int, arrivals: Arrivals, shape: DocumentsShape) -> Iterator[Request]:
    picks = _picks(stream(seed, "documents.picks"), shape, count)
    times = arrivals.times(stream(seed, "documents.arrivals"))
    full = shape.document_tokens // block_size
    prompt = shape.document_tokens + shape.question_tokens
    context = prompt + shape.answer_tokens
    texts = [chain(chain_key(seed, "documents.text", number), 0, full) for number in range(shape.documents)]
    for number, (pick, time) in enumerate(zip(picks, times, strict=False)):
        name = f"doc-{seed}-{pick}"
        own = chain(chain_key(seed, "documents.question", number), full, context // block_size)
        text = BlockHashes(np.concatenate([texts[pick], own]), token_count=context, block_size=block_size)
        yield Request(
            time,
            text.head(prompt // block_size, prompt),
            text,
            prompt,
            shape.answer_tokens,
            document=name,
            entry=Entry(name, shape.document_tokens),
        )


def _picks(rng: np.random.Generator, shape: DocumentsShape, count: int) -> Iterator[int]:
    upper = np.cumsum(zipf_shares(shape.documents, shape.zipf))
    for first in range(0, count, _BATCH):
        draws = rng.random(min(_BATCH, count - first))
        yield from np.minimum(np.searchsorted(upper, draws, side="right"), shape.documents - 1).tolist()
