"""Questions about documents of unequal popularity: the article's document workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prefixroute.draws import chain
from prefixroute.hashing import BlockHashes
from prefixroute.workload.arrivals import Arrivals
from prefixroute.workload.generator import generator
from prefixroute.workload.request import CacheEntry, Request, cached_tokens
from prefixroute.workload.shape import Popularity, Shape, zipf_shares
from prefixroute.workload.streams import chain_key, stream


@dataclass(frozen=True, slots=True)
class DocumentsShape(Shape):
    """Sizes of the document workload. The defaults are the article's, but for the answer, of which it says nothing.

    Attributes:
        documents: how many documents there are.
        document_tokens: tokens of each.
        question_tokens: tokens after the document, different in every request.
        answer_tokens: tokens of the answer; they matter for a cache of blocks and for decoding only.
        zipf: exponent of the popularity: the document of rank r is asked about in proportion to ``r ** -zipf``.
    """

    KIND: ClassVar[str] = "documents"
    SOURCE: ClassVar[str] = "reference article's document scenario, 2026-11"
    OTHER_SOURCES: ClassVar[Mapping[str, str]] = {
        "answer_tokens": "not in the article; of no effect on a cache of kind entries",
    }
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"answer_tokens"})

    documents: int = 300
    document_tokens: int = 16_000
    question_tokens: int = 100
    answer_tokens: int = 200
    zipf: float = 1.0

    @property
    def longest_tokens(self) -> int:
        """Tokens of a document, a question and its answer."""
        return self.document_tokens + self.question_tokens + self.answer_tokens

    def kept_tokens(self, requests: int) -> float:  # noqa: ARG002 - all documents are made at once
        """Return the tokens of all documents."""
        return self.documents * self.document_tokens


@generator(DocumentsShape)
def documents(seed: int, count: int, block_size: int, arrivals: Arrivals, shape: DocumentsShape) -> Iterator[Request]:
    """Return the document workload: each request asks something new about one document, drawn by Zipf's law.

    In a cache of kind ``entries`` the replica holds the document afterwards, as in the article; in a cache of blocks
    it holds the question and the answer too, as an engine does.
    """
    picks = Popularity(stream(seed, "documents.picks"), zipf_shares(shape.documents, shape.zipf))
    times = arrivals.times(stream(seed, "documents.arrivals"))
    full = shape.document_tokens // block_size
    prompt = shape.document_tokens + shape.question_tokens
    cached = cached_tokens(prompt, shape.answer_tokens)
    texts = [chain(chain_key(seed, "documents.text", number), 0, full) for number in range(shape.documents)]
    for number, time in zip(range(count), times, strict=False):
        pick = picks.draw()
        name = f"doc-{seed}-{pick}"
        own = chain(chain_key(seed, "documents.question", number), full, cached // block_size)
        text = BlockHashes(np.concatenate([texts[pick], own]), token_count=cached, block_size=block_size)
        head, entry = text.head(prompt // block_size, prompt), CacheEntry(name, shape.document_tokens)
        yield Request(time, head, text, prompt, shape.answer_tokens, document=name, entry=entry)
