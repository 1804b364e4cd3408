"""The forms in which OpenAI's API gives an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion, told whole or as a stream.

    Attributes:
        ident: its id.
        model: the model that was asked for.
        chat: whether the chat API was asked.
        prompt_tokens: tokens of the prompt.
        token_ids: whether to name the output's token ids, as vLLM does on ``return_token_ids``.
    """

    ident: str
    model: str
    chat: bool
    prompt_tokens: int
    token_ids: bool = False

    def whole(self, words: Sequence[str], ids: Sequence[int], cached_tokens: int) -> bytes:
        """Return the answer as one JSON object."""
        text = "".join(words)
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        if self.token_ids:
            said["token_ids"] = list(ids)
        choices = [{"index": 0, **said, "finish_reason": "length"}]
        return json.dumps(self._body(choices, "", self._usage(len(words), cached_tokens))).encode()

    def word(self, word: str, token: int) -> bytes:
        """Return the event of one token of a stream."""
        said: dict[str, Any] = {"delta": {"content": word}} if self.chat else {"text": word}
        if self.token_ids:
            said["token_ids"] = [token]
        return _event(self._body([{"index": 0, **said, "finish_reason": None}], ".chunk", None))

    def end(self, count: int, cached_tokens: int, *, usage: bool) -> bytes:
        """Return the last events of a stream of so many tokens."""
        said: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        parts = [_event(self._body([{"index": 0, **said, "finish_reason": "length"}], ".chunk", None))]
        if usage:
            parts.append(_event(self._body([], ".chunk", self._usage(count, cached_tokens))))
        return b"".join([*parts, b"data: [DONE]\n\n"])

    def _body(self, choices: list[Any], part: str, usage: dict[str, Any] | None) -> dict[str, Any]:
        kind = f"chat.completion{part}" if self.chat else "text_completion"
        body = {"id": self.ident, "object": kind, "created": 0, "model": self.model, "choices": choices}
        return body if usage is None else {**body, "usage": usage}

    def _usage(self, count: int, cached_tokens: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
            "completion_tokens": count,
            "total_tokens": self.prompt_tokens + count,
        }


def _event(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()
