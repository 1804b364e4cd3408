"""What the tests of adapters share: conversations, answers in the forms of each API, and what must hold in the end."""

from __future__ import annotations

import json
from typing import Any

from prefixroute.router import Router
from waiting import until

USAGE = {
    "/v1/chat/completions": {
        "prompt_tokens": 900,
        "prompt_tokens_details": {"cached_tokens": 512},
        "completion_tokens": 9,
    },
    "/v1/responses": {"input_tokens": 900, "input_tokens_details": {"cached_tokens": 512}, "output_tokens": 9},
    "/v1/messages": {"input_tokens": 388, "cache_read_input_tokens": 512, "output_tokens": 9},
    "/v1/completions": {"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 512}, "completion_tokens": 9},
}


def chat(session: int, turn: int = 0, **more: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": f"session {session} turn {at} " * 60} for at in range(turn + 1)]
    return {"model": "m", "messages": turns, **more}


def question(path: str) -> dict[str, Any]:
    """Return a request of an API."""
    asked = {"/v1/completions": {"prompt": "hello " * 99}, "/v1/responses": {"input": chat(1)["messages"]}}
    return asked.get(path, chat(1))


def answer(path: str) -> dict[str, Any]:
    """Return a whole answer of an API."""
    usage = USAGE[path]
    if path == "/v1/responses":
        output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}]
        return {"id": "resp-1", "object": "response", "output": output, "usage": usage}
    if path == "/v1/messages":
        return {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "yes"}], "usage": usage}
    choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "text": "yes"}
    return {"choices": [choice], "usage": usage}


def events(path: str) -> list[bytes]:
    """Return a streamed answer of the chat API, cut where no event ends."""
    assert path == "/v1/chat/completions"
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in ("y", "e", "s")]
    chunks.append({"choices": [], "usage": USAGE[path]})
    whole = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    return [whole[at : at + 37] for at in range(0, len(whole), 37)]


def in_flight(router: Router) -> int:
    return sum(replica["in_flight"] for replica in router.stats()["replicas"].values())


def settled(router: Router) -> dict[str, int]:
    """Return the counts once nothing is in flight, of which hosts tell a moment later; nothing is left then."""
    until(lambda: not in_flight(router))
    stats = router.stats()
    assert not any(replica["uncached_tokens"] or replica["decode_tokens"] for replica in stats["replicas"].values())
    counts: dict[str, int] = stats["counts"]
    ends = ("finished", "aborted", "dropped", "retried")
    assert counts["committed"] == sum(counts.get(end, 0) for end in ends)
    assert not any(counts[name] for name in counts if "unknown" in name or "late" in name or name == "expired")
    return counts
