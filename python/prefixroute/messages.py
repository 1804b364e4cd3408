"""Chat messages in canonical form: one text per conversation, such that a longer conversation extends a shorter one.

Router and trace readers match messages in this form. A conversation has the same text in the forms of the chat
completions, the Anthropic messages and the Responses API, and however its text is cut into parts of ``text`` type.

Tools come first, since chat templates put them in front. Then come segments, each a role and its parts:

- ``system``, ``user``, ``assistant`` and other roles: the text of a message, to the letter;
- ``thinking``: the model's reasoning, from ``reasoning_content``, a ``thinking`` part or a ``reasoning`` item;
- ``call NAME``: a tool call, its arguments as JSON with sorted keys;
- ``tool``: the result of a call, with the text of the parts inside of it.

Media (images, sounds, videos, files that are not text) stand as kind and digest of their content, so that two images
differ wherever their bytes do. Fields that engines do not render are dropped (:data:`DROPPED`); a field that is not
listed stands as JSON. Segments are framed by control characters, which are escaped in texts: no content can imitate a
frame.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from prefixroute.errors import TokensError
from prefixroute.limits import BYTES_PER_TOKEN
from prefixroute.validation import shown

FRAME: Final = "\x1e"
"""The character in front of every segment of a canonical text; it stands nowhere else in one."""
_PART = "\x1f"
MEDIA_MARK: Final = "\x1c"
"""The character in front of the kind and digest of media; it stands nowhere else in a canonical text."""
MEDIA_TOKENS: Final = 256
"""Estimated tokens of an image or a sound: its digest is followed by so much filling, 4 characters a token."""

DROPPED: Final = frozenset(
    {
        "cache_control",  # where a cache may end, which moves with every turn
        "id", "call_id", "tool_call_id", "tool_use_id", "index", "status", "caller", "phase",
        "signature", "encrypted_content",  # of thinking parts
        "annotations", "citations", "logprobs", "strict",
    }
)  # fmt: skip
"""Fields of messages, parts, calls and tools that engines do not render. Fields inside of a call's arguments or a
tool's schema are content and are kept."""

_TEXT = frozenset({"text", "input_text", "output_text", "reasoning_text", "summary_text"})
_MEDIA = {
    **{form.format(kind): kind for kind in ("image", "audio", "video") for form in ("{}", "{}_url", "input_{}")},
    **dict.fromkeys(("file", "input_file", "document", "container_upload"), "file"),
    "redacted_thinking": "thinking",
}
_CALLS = frozenset({"tool_use", "server_tool_use", "function_call", "custom_tool_call"})
_RESULTS = frozenset({"tool_result", "function_call_output", "custom_tool_call_output"})
_THINKING = frozenset({"thinking", "reasoning"})
_ITEMS = _CALLS | _RESULTS | _THINKING
_REASONING = ("reasoning_content", "reasoning")
_KNOWN = frozenset({"role", "content", "name", "tool_calls", "function_call", *_REASONING})
_EMPTY: tuple[Any, ...] = (None, [], "", {}, False)


@dataclass(frozen=True, slots=True)
class CanonicalForm:
    """Turns messages into their canonical text. A ``Router`` takes one as ``render=``, a trace reader as an option.

    Attributes:
        dropped: fields that are no content. ``DROPPED - {"tool_call_id", "id"}`` suits a template that renders the ids
            of calls, ``DROPPED | {"reasoning_content"}`` one that leaves out earlier reasoning.
    """

    dropped: frozenset[str] = DROPPED

    def __call__(self, prompt: Any) -> str:
        """Return the text of a list of messages, or of a request's body in one of the three forms.

        Raises:
            TokensError: names the first message that has no canonical form.
        """
        if not isinstance(prompt, Mapping):
            return self.conversation(prompt)
        messages = prompt.get("messages")
        return self.conversation(
            prompt.get("input") if messages is None else messages,
            prompt.get("tools") or (),
            prompt.get("system") or prompt.get("instructions"),
        )

    def conversation(self, messages: Any, tools: Any = (), system: Any = None) -> str:
        """Return the text of a conversation.

        Args:
            messages: a list of messages or of items of the Responses API; a text is a message of the user.
            tools: what the model may call, in any of the three forms.
            system: the system prompt, where it is not among the messages: a text or a list of parts.

        Raises:
            TokensError: names the first message that is not a mapping with a role, or holds what JSON does not.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        if messages is None:
            raise TokensError("messages are missing: a chat request has a list of them under messages, or input")
        if not isinstance(messages, Sequence):
            raise TokensError(f"messages must be a list, got {shown(messages)}")
        parts = [self._tools(tools)] if tools else []
        if system:
            parts.append(self.segment({"role": "system", "content": system}, where="the system prompt"))
        parts += [self.segment(message, where=f"message {at}") for at, message in enumerate(messages)]
        return "".join(parts)

    def segment(self, message: Any, where: str = "message") -> str:
        """Return the text of one message, which errors call ``where``.

        Args:
            message: a mapping with a role.
            where: e.g. ``message 3``.
        """
        if not isinstance(message, Mapping) or not isinstance(role := message.get("role", message.get("type")), str):
            raise TokensError(f"{where} must be a mapping with a role, got {reprlib.repr(message)}")
        content = message.get("content")
        if len(message) == 2 and type(content) is str and role != "tool" and role not in _ITEMS:  # noqa: PLR2004
            return f"{FRAME}{_escaped(role)}{_PART}{_escaped(content)}"
        try:
            return "".join(self._segments(message, role))
        except RecursionError:
            raise TokensError(f"{where} is nested too deep, or holds itself") from None
        except (TypeError, ValueError) as error:
            raise TokensError(f"{where} cannot be written as JSON: {error}") from None

    def answer(self, output: Any) -> str:
        """Return the text that an answer adds to the conversation: see :func:`answer_messages`.

        Args:
            output: a text, a message or a list of messages.
        """
        return "".join(self.segment(message, where="the answer") for message in answer_messages(output))

    def _tools(self, tools: Any) -> str:
        listed = tools if isinstance(tools, list | tuple) else [tools]
        try:
            return f"{FRAME}tools{_PART}{_json([self._tool(tool) for tool in listed])}"
        except RecursionError:
            raise TokensError("tools are nested too deep, or hold themselves") from None
        except (TypeError, ValueError) as error:
            raise TokensError(f"tools cannot be written as JSON: {error}") from None

    def _tool(self, tool: Any) -> Any:
        if not isinstance(tool, Mapping):
            return tool
        inner = tool.get("function")
        fields = dict(inner) if isinstance(inner, Mapping) else dict(tool)
        if "input_schema" in fields:
            fields["parameters"] = fields.pop("input_schema")
        if fields.get("type") in {"function", "custom"}:
            del fields["type"]
        return {key: value for key, value in fields.items() if key not in self.dropped and value not in _EMPTY}

    def _segments(self, message: Mapping[str, Any], role: str) -> Iterator[str]:
        if "role" not in message and role in _ITEMS:
            yield self._item(message, role)
            return
        for name in _REASONING:
            if name not in self.dropped and message.get(name) and isinstance(message[name], str):
                yield _framed("thinking", _escaped(message[name]))
        if role in {"tool", "function"}:
            yield _framed("tool", self._content(message.get("content")), self._rest(message))
            return
        yield from self._turn(message, role)
        calls = message.get("tool_calls") or ()
        for call in (*calls, *([message["function_call"]] if message.get("function_call") else ())):
            yield self._call(call)

    def _turn(self, message: Mapping[str, Any], role: str) -> Iterator[str]:
        """Yield a message's text, with the calls, results and thinking among its parts as segments of their own."""
        name = message.get("name")
        head = f"{_escaped(role)} {_escaped(str(name))}" if name and "name" not in self.dropped else _escaped(role)
        content = message.get("content")
        texts: list[str] = []
        shown = False
        for part in content if isinstance(content, list | tuple) else () if content in _EMPTY else (content,):
            kind = str(part.get("type")) if isinstance(part, Mapping) else ""
            if kind not in _ITEMS:
                texts.append(self._part(part))
                continue
            if texts:
                yield _framed(head, _PART.join(texts))
                texts = []
            shown = True
            yield self._item(part, kind)
        rest = self._rest(message)
        shown = shown or any(message.get(other) for other in ("tool_calls", "function_call", *_REASONING))
        if texts or rest or not shown:
            yield _framed(head, _PART.join(texts), rest)

    def _item(self, item: Mapping[str, Any], kind: str) -> str:
        if kind in _CALLS:
            return self._call(item)
        if kind in _RESULTS:
            return _framed("tool", self._content(item.get("content", item.get("output"))), self._rest(item))
        texts = [item.get("thinking"), item.get("summary"), item.get("content")]
        return _framed("thinking", _PART.join(self._content(text) for text in texts if text))

    def _call(self, call: Any) -> str:
        if not isinstance(call, Mapping):
            return _framed("call", _escaped(call if isinstance(call, str) else _json(call)))
        inner = call.get("function", call.get("custom"))
        fields = inner if isinstance(inner, Mapping) else call
        given = fields.get("arguments", fields.get("input"))
        ids = {key: call[key] for key in ("id", "call_id") if key in call and key not in self.dropped}
        return _framed(f"call {_escaped(str(fields.get('name') or ''))}", _arguments(given), _json(ids) if ids else "")

    def _rest(self, message: Mapping[str, Any]) -> str:
        """Return the fields that are neither known nor dropped nor empty, as JSON, or an empty text."""
        known = _KNOWN | {"type", "output", "thinking", "summary"} if message.get("type") in _ITEMS else _KNOWN
        rest = {
            key: value
            for key, value in message.items()
            if key not in known and key not in self.dropped and value not in _EMPTY
        }
        if rest.get("type") == "message":
            del rest["type"]
        return _json(rest) if rest else ""

    def _content(self, content: Any) -> str:
        if content is None:
            return ""
        if isinstance(content, str):
            return _escaped(content)
        return _PART.join(self._part(part) for part in (content if isinstance(content, list | tuple) else [content]))

    def _part(self, part: Any) -> str:
        if not isinstance(part, Mapping):  # what is no part is the engine's to refuse
            return _escaped(part if isinstance(part, str) else _json(part))
        kind = str(part.get("type") or next((key for key in part if key in _MEDIA or key in _TEXT), ""))
        if kind in _TEXT and isinstance(part.get("text"), str):
            return _escaped(part["text"])
        if kind in _ITEMS:
            return self._item(part, kind)
        source = part.get("source")
        if kind == "document" and isinstance(source, Mapping) and source.get("type") in {"text", "content"}:
            return self._content(source.get("data", source.get("content")))
        if kind in _MEDIA:
            return _media(_MEDIA[kind], {key: part[key] for key in part if key not in self.dropped and key != "type"})
        return _json({key: value for key, value in part.items() if key not in self.dropped and value not in _EMPTY})


_DEFAULT = CanonicalForm()


def canonical(messages: Any, tools: Any = (), system: Any = None) -> str:
    """Return the canonical text of a conversation, without the fields in :data:`DROPPED`.

    Args:
        messages: mappings with a role and a content.
        tools: definitions, in order.
        system: the system prompt that stands beside the messages; ``None`` = there is none.

    Raises:
        TokensError: names the first message that is not a mapping with a role, or holds what JSON does not.
    """
    return _DEFAULT.conversation(messages, tools, system)


def segment(message: Any) -> str:
    """Return the canonical text of one message, without the fields in :data:`DROPPED`.

    Args:
        message: a mapping with a role.
    """
    return _DEFAULT.segment(message)


def answer_messages(output: Any) -> list[Any]:
    """Return the messages that an answer adds to its conversation.

    Args:
        output: the answer's text; a message; a list of content parts, or of items of the Responses API.

    Raises:
        TokensError: it is none of these.
    """
    if isinstance(output, Mapping):
        return [output if isinstance(output.get("role"), str) else {"role": "assistant", **output}]
    if isinstance(output, list) and any(_is_item(part) for part in output):
        return output
    if output is not None and not isinstance(output, str | list | tuple):
        raise TokensError(f"an answer must be a text, a message or a list of parts, got {type(output).__name__}")
    return [{"role": "assistant", "content": output}] if output else []


def _is_item(part: Any) -> bool:
    """Return whether it is an item of the Responses API, and not a content part."""
    return isinstance(part, Mapping) and (
        part.get("type") == "message" or "role" in part or ("call_id" in part or part.get("type") == "reasoning")
    )


def _framed(head: str, text: str, rest: str = "") -> str:
    return f"{FRAME}{head}{_PART}{text}{_PART}{rest}" if rest else f"{FRAME}{head}{_PART}{text}"


def _arguments(given: Any) -> str:
    if isinstance(given, str):
        try:
            given = json.loads(given) if given else {}
        except ValueError:
            return _escaped(given)
    return _json({} if given is None else given)


def _media(kind: str, part: Mapping[str, Any]) -> str:
    """Return kind and digest.

    Of the data or the address, whichever of the three APIs names it, and what is beside it.
    """
    rest: dict[str, Any] = {}
    data = ""
    for key, value in part.items():
        fields = value if isinstance(value, Mapping) else {key: value}
        for name, inner in fields.items():
            if isinstance(inner, str) and name in {"data", "url", "file_data", "file_id", kind, f"{kind}_url"}:
                data = inner.partition(";base64,")[2] or inner if inner.startswith("data:") else inner
            elif name not in {"type", "media_type", "format"} and inner not in (*_EMPTY, "auto"):
                rest[name] = inner
    digest = blake2b(data.encode(), digest_size=16)
    if rest:
        digest.update(_json(rest).encode())
    return f"{MEDIA_MARK}{kind}:{digest.hexdigest()}".ljust(BYTES_PER_TOKEN * MEDIA_TOKENS, _PART)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _escaped(text: str) -> str:
    if FRAME not in text and _PART not in text and "\x1b" not in text and MEDIA_MARK not in text:
        return text
    for plain, escaped in (("\x1b", "\x1b\x1b"), (FRAME, "\x1br"), (_PART, "\x1bu"), (MEDIA_MARK, "\x1bm")):
        text = text.replace(plain, escaped)
    return text
