"""Prompt caches that behave as the providers document theirs, by a clock that is passed in. 4 characters are a token.

Claude: entries at marks, readable once the response that writes them has begun, a lifetime from the start of the
request that wrote or last read them, a minimum size, a look-back of 20 blocks, one cache for each workspace. OpenAI
before GPT-5.6: prefixes in steps of 128 tokens from 1,024 on, at the machine that the head's hash and
`prompt_cache_key` name; above 15 requests a minute for such a pair, further ones go to the next machine. From GPT-5.6
on: entries at exact breakpoints, one of them implicit at the end of the input, for 30 minutes or 12 hours.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from prefixroute.providers import find_provider

CLAUDE = find_provider("anthropic")
CHARACTERS = 4


def digest(*parts: Any) -> str:
    """Return a chained hash."""
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def tokens_of(text: str) -> int:
    """Return the tokens of a text, rounded up."""
    return -(-len(text) // CHARACTERS)


@dataclass
class Entry:
    """What a mark wrote: tokens up to it, from when on it can be read, and until when."""

    tokens: int
    lifetime: str
    expires_s: float
    readable: bool = False


@dataclass
class Turn:
    """How one request met the cache."""

    input: int
    read: int = 0
    write: dict[str, int] = field(default_factory=dict)
    fresh: list[Entry] = field(default_factory=list)

    def begin(self) -> None:
        """The response begins: what was written can be read."""
        for entry in self.fresh:
            entry.readable = True


@dataclass
class ClaudeCache:
    """Explicit marks, see the module."""

    clock: Callable[[], float]
    entries: dict[str, Entry] = field(default_factory=dict)

    def meet(self, workspace: str, body: dict[str, Any]) -> Turn:
        """Look a request up and write what its marks say."""
        model = CLAUDE.model(body["model"])
        mode, now = model.mode(), self.clock()
        # Thinking and effort change the rendered prompt, so they are part of the prefix.
        key = digest(workspace, body["model"], body.get("thinking"), body.get("output_config"))
        chain, ends, marks = [], [], {}
        total = 0
        for at, (block, mark) in enumerate(blocks_of(body)):
            key = digest(key, block)
            total += tokens_of(json.dumps(block))
            chain.append(key)
            ends.append(total)
            if mark is not None:
                marks[at] = mark.get("ttl", "5m")
        if len(marks) > (mode.max_marks or 0):
            raise ValueError(f"at most {mode.max_marks} blocks may have cache_control, got {len(marks)}")
        read = 0
        for at in sorted(marks, reverse=True):
            for back in range(at, max(-1, at - (mode.lookback_blocks or at) - 1), -1):
                entry = self.entries.get(chain[back])
                if entry is not None and entry.readable and entry.expires_s > now and entry.tokens > read:
                    entry.expires_s = now + mode.lifetime(entry.lifetime).seconds
                    read = entry.tokens
                    break
        turn, done = Turn(total, read), read
        for at, lifetime in sorted(marks.items()):
            if ends[at] <= done or ends[at] < model.minimum_tokens:
                continue
            turn.write[lifetime] = turn.write.get(lifetime, 0) + ends[at] - done
            done = ends[at]
            held = self.entries.get(chain[at])
            readable = held is not None and held.readable and held.expires_s > now
            entry = Entry(ends[at], lifetime, now + mode.lifetime(lifetime).seconds, readable)
            self.entries[chain[at]] = entry
            turn.fresh.append(entry)
        turn.input = total - done
        return turn


def blocks_of(body: dict[str, Any]) -> list[tuple[Any, dict[str, Any] | None]]:
    """Return each block of a Messages request without its mark, and the mark; a mark at the top is the last block's."""
    system = body.get("system") or []
    opening = [*(body.get("tools") or []), *([{"text": system}] if isinstance(system, str) else system)]
    units = [("", block) for block in opening]
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        units += [(message["role"], block) for block in blocks]
    found: list[tuple[Any, dict[str, Any] | None]] = [
        ([role, {name: value for name, value in block.items() if name != "cache_control"}], block.get("cache_control"))
        for role, block in units
    ]
    if found and body.get("cache_control") and found[-1][1] is None:
        found[-1] = (found[-1][0], body["cache_control"])
    return found


@dataclass
class OpenAICache:
    """Automatic prefixes behind a routing key, see the module."""

    clock: Callable[[], float]
    lifetime_s: float = 600.0
    limit: int = 15
    minimum: int = 1_024
    step: int = 128
    head: int = 256
    machines: dict[str, dict[str, Entry]] = field(default_factory=dict)
    recent: dict[str, deque[float]] = field(default_factory=dict)

    def meet(self, key: str, text: str) -> Turn:
        """Look a prompt up where its head and key lead to, and write it there."""
        now = self.clock()
        pair = digest(text[: CHARACTERS * self.head], key)
        recent = self.recent.setdefault(pair, deque())
        while recent and recent[0] <= now - 60:
            recent.popleft()
        machine = self.machines.setdefault(f"{pair}-{len(recent) // self.limit}", {})
        recent.append(now)
        total = tokens_of(text)
        turn = Turn(total)
        for length in range(self.minimum, total + 1, self.step):
            name = digest(text[: CHARACTERS * length])
            entry = machine.get(name)
            if entry is not None and entry.readable and entry.expires_s > now:
                turn.read = length
                entry.expires_s = now + self.lifetime_s
            else:
                machine[name] = Entry(length, "in_memory", now + self.lifetime_s)
                turn.fresh.append(machine[name])
        turn.input = total - turn.read
        return turn


@dataclass
class BreakpointCache:
    """Exact breakpoints behind a routing key, see the module."""

    clock: Callable[[], float]
    minimum: int = 1_024
    entries: dict[str, Entry] = field(default_factory=dict)

    def meet(self, body: dict[str, Any]) -> Turn:
        """Look a request of the Responses API up, and write what its breakpoints say."""
        options, now = body.get("prompt_cache_options") or {}, self.clock()
        default, explicit = options.get("ttl", "30m"), options.get("mode") == "explicit"
        key = digest(body["model"], body.get("prompt_cache_key"), body.get("tools"))
        chain, ends, marks, total = [], [], {}, 0
        for at, (block, mark) in enumerate(input_blocks(body)):
            key = digest(key, block)
            total += tokens_of(json.dumps(block))
            chain.append(key)
            ends.append(total)
            if mark is not None:
                marks[at] = mark.get("ttl", default)
        written = dict(list(marks.items())[-4 if explicit else -3 :])
        if not explicit and chain:
            written[len(chain) - 1] = default
        read = 0
        for at in range(len(chain) - 1, -1, -1):
            entry = self.entries.get(chain[at])
            if entry is not None and entry.readable and entry.expires_s > now:
                entry.expires_s = now + LIFETIMES[entry.lifetime]
                read = entry.tokens
                break
        turn, done = Turn(total, read), read
        for at, lifetime in sorted(written.items()):
            if ends[at] <= done or ends[at] < self.minimum:
                continue
            turn.write[lifetime] = turn.write.get(lifetime, 0) + ends[at] - done
            done = ends[at]
            entry = Entry(ends[at], lifetime, now + LIFETIMES[lifetime])
            self.entries[chain[at]] = entry
            turn.fresh.append(entry)
        turn.input = total - done
        return turn


LIFETIMES = {one.name: one.seconds for one in find_provider("openai").model("gpt-5.6").mode().lifetimes}


def input_blocks(body: dict[str, Any]) -> list[tuple[Any, dict[str, Any] | None]]:
    """Return each block of a request of the Responses API without its breakpoint, and the breakpoint."""
    items = body.get("input") or []
    units: list[tuple[Any, Any]] = (
        [("instructions", {"text": body["instructions"]})] if body.get("instructions") else []
    )
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        content = item.get("content")
        blocks = [{"type": "input_text", "text": content}] if isinstance(content, str) else content or [item]
        units += [(item.get("role"), block) for block in blocks]
    mark = "prompt_cache_breakpoint"
    return [([role, {name: block[name] for name in block if name != mark}], block.get(mark)) for role, block in units]
