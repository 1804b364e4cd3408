"""The forms in which OpenAI's and Anthropic's APIs give an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """One completion, told whole or as a stream: of the chat API, and the base of the others.

    Attributes:
        ident: a number that no other answer has.
        model: the model that was asked for.
        prompt_tokens: tokens of the prompt.
        token_ids: whether to name the output's token ids, as vLLM does on ``return_token_ids``.
    """

    ident: int
    model: str
    prompt_tokens: int
    token_ids: bool = False

    KIND = "chat.completion"

    def whole(self, words: Sequence[str], ids: Sequence[int], cached_tokens: int) -> bytes:
        """Return the answer as one JSON object."""
        said = self._message("".join(words))
        if self.token_ids:
            said["token_ids"] = list(ids)
        choices = [{"index": 0, **said, "finish_reason": "length"}]
        return json.dumps(self._body(choices, "", self._usage(len(words), cached_tokens))).encode()

    def begin(self, cached_tokens: int) -> bytes:
        """Return the events of a stream before its first token."""
        del cached_tokens
        return b""

    def word(self, word: str, token: int) -> bytes:
        """Return the event of one token of a stream."""
        said = self._delta(word)
        if self.token_ids:
            said["token_ids"] = [token]
        return _event(self._body([{"index": 0, **said, "finish_reason": None}], ".chunk", None))

    def end(self, words: Sequence[str], cached_tokens: int, *, usage: bool) -> bytes:
        """Return the last events of a stream."""
        parts = [_event(self._body([{"index": 0, **self._delta(""), "finish_reason": "length"}], ".chunk", None))]
        if usage:
            parts.append(_event(self._body([], ".chunk", self._usage(len(words), cached_tokens))))
        return b"".join([*parts, b"data: [DONE]\n\n"])

    def _message(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}}

    def _delta(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}

    def _body(self, choices: list[Any], part: str, usage: dict[str, Any] | None) -> dict[str, Any]:
        body = {
            "id": f"cmpl-{self.ident}",
            "object": f"{self.KIND}{part}",
            "created": 0,
            "model": self.model,
            "choices": choices,
        }
        return body if usage is None else {**body, "usage": usage}

    def _usage(self, count: int, cached_tokens: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
            "completion_tokens": count,
            "total_tokens": self.prompt_tokens + count,
        }


class EngineText(EngineAnswer):
    """An answer of the completions API."""

    KIND = "text_completion"

    def _message(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _delta(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _body(self, choices: list[Any], part: str, usage: dict[str, Any] | None) -> dict[str, Any]:
        del part
        return super()._body(choices, "", usage)


class Response(EngineAnswer):
    """An answer of the Responses API."""

    def whole(self, words: Sequence[str], ids: Sequence[int], cached_tokens: int) -> bytes:
        """Return the answer as one JSON object."""
        del ids
        return json.dumps(self._response("".join(words), self._counts(len(words), cached_tokens))).encode()

    def begin(self, cached_tokens: int) -> bytes:
        """Return the events of a stream before its first token."""
        del cached_tokens
        item = {"id": f"msg-{self.ident}", "type": "message", "role": "assistant", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        return b"".join(
            (
                _named("response.created", response=self._response(None, None)),
                _named("response.output_item.added", output_index=0, item=item),
                _named("response.content_part.added", output_index=0, content_index=0, part=part),
            )
        )

    def word(self, word: str, token: int) -> bytes:
        """Return the event of one token of a stream."""
        del token
        return _named("response.output_text.delta", output_index=0, content_index=0, delta=word)

    def end(self, words: Sequence[str], cached_tokens: int, *, usage: bool) -> bytes:
        """Return the last event of a stream, which has usage whether it was asked for or not."""
        del usage
        response = self._response("".join(words), self._counts(len(words), cached_tokens))
        return _named("response.completed", response=response)

    def _response(self, text: str | None, usage: dict[str, Any] | None) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"id": f"msg-{self.ident}", "type": "message", "role": "assistant", "content": content}
        return {
            "id": f"resp-{self.ident}",
            "object": "response",
            "created_at": 0,
            "model": self.model,
            "status": "in_progress" if text is None else "completed",
            "output": [] if text is None else [item],
            "usage": usage,
        }

    def _counts(self, count: int, cached_tokens: int) -> dict[str, Any]:
        return {
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached_tokens},
            "output_tokens": count,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.prompt_tokens + count,
        }


class Message(EngineAnswer):
    """An answer of the Anthropic messages API, where cached tokens are counted beside the others."""

    def whole(self, words: Sequence[str], ids: Sequence[int], cached_tokens: int) -> bytes:
        """Return the answer as one JSON object."""
        del ids
        content = [{"type": "text", "text": "".join(words)}]
        return json.dumps(self._said(content, "max_tokens", self._counts(len(words), cached_tokens))).encode()

    def begin(self, cached_tokens: int) -> bytes:
        """Return the events of a stream before its first token."""
        return _named("message_start", message=self._said([], None, self._counts(1, cached_tokens))) + _named(
            "content_block_start", index=0, content_block={"type": "text", "text": ""}
        )

    def word(self, word: str, token: int) -> bytes:
        """Return the event of one token of a stream."""
        del token
        return _named("content_block_delta", index=0, delta={"type": "text_delta", "text": word})

    def end(self, words: Sequence[str], cached_tokens: int, *, usage: bool) -> bytes:
        """Return the last events of a stream."""
        del usage, cached_tokens
        delta = {"stop_reason": "max_tokens", "stop_sequence": None}
        return (
            _named("content_block_stop", index=0)
            + _named("message_delta", delta=delta, usage={"output_tokens": len(words)})
            + _named("message_stop")
        )

    def _said(self, content: list[Any], stop: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"msg-{self.ident}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }

    def _counts(self, count: int, cached_tokens: int) -> dict[str, Any]:
        return {
            "input_tokens": self.prompt_tokens - cached_tokens,
            "cache_read_input_tokens": cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": count,
        }


FORMS: Mapping[str, type[EngineAnswer]] = {
    "/v1/chat/completions": EngineAnswer,
    "/v1/completions": EngineText,
    "/v1/responses": Response,
    "/v1/messages": Message,
}
"""The form of an answer, by the path that was asked."""


def _event(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def _named(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
