"""A request's body as the blocks that breakpoints can stand behind, each with its place and its text."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.limits import BYTES_PER_TOKEN
from prefixroute.messages import FRAME
from prefixroute.providers.marks import MARKS, is_marked, listed, unmarked


@dataclass(frozen=True, slots=True)
class Block:
    """One content block: a tool, a part of the system prompt, a part of a message.

    Attributes:
        where: its place, as one would write it in Python: ``tools[0]``, ``system[1]``, ``messages[3].content[0]``.
        text: its content; what is not text stands as JSON. Marks are left out.
        marked: whether it carries a breakpoint.
    """

    where: str
    text: str
    marked: bool = False

    @property
    def tokens(self) -> float:
        """About how many tokens it has: 4 bytes each."""
        return len(self.text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN


@dataclass(frozen=True)
class Prompt:
    """The blocks of one request, in the order in which a provider renders them: tools, system, messages."""

    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, body: Any) -> Prompt:
        """Read a body of the Messages, chat completions or Responses API, or its messages; a prompt is itself.

        Raises:
            ConfigError: it is neither.
        """
        if isinstance(body, Prompt):
            return body
        if isinstance(body, Sequence) and not isinstance(body, (str, bytes)):
            body = {"messages": body}
        if not isinstance(body, Mapping):
            raise ConfigError(f"a request must be a body with messages, got {body!r:.80}")
        blocks = [_block(f"tools[{at}]", tool) for at, tool in enumerate(listed(body.get("tools") or None))]
        for name in ("system", "instructions"):
            blocks += [_block(f"{name}[{at}]", part) for at, part in enumerate(listed(body.get(name) or None))]
        name = "messages" if body.get("messages") is not None else "input"
        messages = body.get(name)
        if messages is not None and not isinstance(messages, (list, tuple, str)):
            raise ConfigError(f"{name} must be a list or a text, got {messages!r:.80}")
        for at, message in enumerate(listed(messages or None)):
            if not isinstance(message, (Mapping, str)):
                raise ConfigError(f"{name}[{at}] must be a mapping or a text, got {message!r:.80}")
            blocks += _message(f"{name}[{at}]", message)
        if not blocks:
            raise ConfigError(f"a request must have messages, tools or a system prompt, got {sorted(map(str, body))}")
        if is_marked(body):
            blocks[-1] = replace(blocks[-1], marked=True)  # a mark at the top of a request is its last block's
        return cls(tuple(blocks))

    @cached_property
    def chain(self) -> list[str]:
        """For each block, a hash of it and of every block before it."""
        found, digest = [], blake2b(digest_size=16)
        for block in self.blocks:
            digest.update(block.text.encode("utf-8", "surrogatepass") + b"\0")
            found.append(digest.hexdigest())
        return found

    @property
    def text(self) -> str:
        """All blocks as one text, framed as canonical messages are: what the finder of volatile text compares.

        Made anew each time.
        """
        return "".join(map(_framed, self.blocks))

    def place(self, character: int) -> tuple[int, int]:
        """Return which block a character of :attr:`text` is in, and its place in the block's own text."""
        begins = list(accumulate((len(_framed(block)) for block in self.blocks), initial=0))
        at = min(bisect_right(begins, character), len(self.blocks)) - 1
        block = self.blocks[at]
        return at, max(0, character - begins[at] - len(_framed(block)) + len(block.text))

    @cached_property
    def ends(self) -> list[float]:
        """For each block, the tokens up to its end."""
        total, found = 0.0, []
        for block in self.blocks:
            total += block.tokens
            found.append(total)
        return found


def _framed(block: Block) -> str:
    """Return a block behind a frame, and behind the word for its part where its text does not begin with its role."""
    part = (
        "tools: "
        if block.where.startswith("tools")
        else "system: "
        if block.where.startswith(("system", "instructions"))
        else ""
    )
    return f"{FRAME}{part}{block.text.replace(FRAME, ' ')}"


def _message(where: str, message: Any) -> list[Block]:
    if not isinstance(message, Mapping):
        return [_block(where, message)]
    role = str(message.get("role", message.get("type", "")))
    content = message.get("content")
    parts = listed(content or None)
    rest = {key: value for key, value in message.items() if key not in ("role", "content", *MARKS) and value}
    if not parts or (rest and "role" not in message):
        return [_block(where, {**rest, "content": content, "role": role})]
    blocks = [_block(f"{where}.content[{at}]", part, role) for at, part in enumerate(parts)]
    if rest:
        blocks.append(_block(where, rest, role))
    return blocks


def _block(where: str, part: Any, role: str = "") -> Block:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        text = part["text"]
    elif isinstance(part, str):
        text = part
    else:
        text = json.dumps(unmarked(part), sort_keys=True, ensure_ascii=False, default=repr)
    return Block(where, f"{role}: {text}" if role else text, is_marked(part))
