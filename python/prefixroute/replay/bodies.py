"""The requests of a part as bytes, made before the clock starts where memory allows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.replay.prompts import PromptMaker, SynthesizedPrompt
from prefixroute.workload import Request

AHEAD_BYTES = 256 << 20
"""Bytes of prompts and bodies that are made before a part begins; what is beyond is made when it is sent."""
_FIXED: Mapping[str, Any] = {
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}


class TokenText:
    """Writes token ids as JSON by copying: each id stands in the same number of bytes, with spaces in front.

    ``json.dumps`` takes 50 ns a token, which is most of what a request of thousands of tokens costs its sender.

    Args:
        first_token: least token id.
        vocabulary: number of token ids.
    """

    def __init__(self, first_token: int, vocabulary: int) -> None:
        self._first = np.uint32(first_token)
        width = len(str(first_token + vocabulary - 1))
        self._texts = np.array([f"{first_token + at:{width}}," for at in range(vocabulary)], dtype=f"S{width + 1}")

    def array(self, tokens: NDArray[np.uint32]) -> bytes:
        """Return token ids as a JSON array."""
        texts: bytes = self._texts[tokens - self._first].tobytes()
        return b"[" + texts[:-1] + b"]"


@dataclass(frozen=True, slots=True)
class Prepared:
    """One request, ready to be sent.

    Attributes:
        request: of the workload.
        prompt: its tokens.
        body: the JSON to send.
    """

    request: Request
    prompt: SynthesizedPrompt
    body: bytes

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.body) + self.prompt.tokens.nbytes + self.prompt.output.nbytes


class Bodies:
    """Makes the requests of a workload, and keeps those of one part for every policy.

    Args:
        requests: the workload.
        maker: makes up prompts.
        dictate: put the trace's answers in.
        model: the model's name for all; ``None`` = each request's own, else ``default_model``.
        default_model: for requests that name no model.
        ahead_bytes: bytes that may be kept.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        maker: PromptMaker,
        *,
        dictate: bool,
        model: str | None,
        default_model: str,
        ahead_bytes: int = AHEAD_BYTES,
    ) -> None:
        self._requests, self._maker, self._dictate = requests, maker, dictate
        self._model, self._default_model, self._ahead_bytes = model, default_model, ahead_bytes
        self._text = TokenText(maker.first_token, maker.vocabulary)
        self._kept: dict[int, Prepared] = {}

    def prepare(self, numbers: range) -> int:
        """Make the first requests of a part, as many as may be kept; return how many are."""
        if not (self._kept and numbers[0] in self._kept):
            self._kept, size = {}, 0
            for number in numbers:
                made = self._made(number)
                size += made.size
                if size > self._ahead_bytes:
                    break
                self._kept[number] = made
        return len(self._kept)

    def __getitem__(self, number: int) -> Prepared:
        """Return a request, made now unless it is kept."""
        return self._kept.get(number) or self._made(number)

    def _made(self, number: int) -> Prepared:
        request = self._requests[number]
        prompt = self._maker.make(request, number)
        model = self._model or request.model or self._default_model
        fields = {"model": model, "max_tokens": max(1, request.output_tokens), **_FIXED}
        parts = [
            json.dumps(fields, separators=(",", ":")).encode()[:-1],
            b',"prompt":',
            self._text.array(prompt.tokens),
        ]
        if self._dictate and len(prompt.output):
            parts += [b',"output_token_ids":', self._text.array(prompt.output)]
        return Prepared(request, prompt, b"".join([*parts, b"}"]))
