"""Write a gateway log to try the commands on: ``python examples/sample_log.py > day.jsonl``.

A support assistant: 240 conversations behind one system prompt, in the form that OpenAI-style gateways log, as four
replicas behind a round-robin load balancer would have served them: ``usage`` names the prompt tokens that the replica
had cached. Texts are numbered words, so nothing private is in them. The file is the same every time.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

START_S = 1_780_000_000.0
CHARACTERS_PER_TOKEN = 4
BLOCK = 16


def words(rng: random.Random, count: int) -> str:
    """Return text that differs wherever it is drawn anew."""
    return " ".join(f"w{rng.randrange(10_000)}" for _ in range(count))


def conversations(count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``count`` conversations, one after the other; they overlap in time."""
    rng = random.Random(seed)
    system = {"role": "system", "content": "You are the support assistant of Example Ltd. " + words(rng, 1_200)}
    for number in range(count):
        messages, time_s = [system], START_S + rng.uniform(0, 3_600)
        for _ in range(rng.randint(2, 8)):
            messages = [*messages, {"role": "user", "content": words(rng, rng.randint(20, 300))}]
            answer = {"role": "assistant", "content": words(rng, rng.randint(50, 400))}
            prompt_tokens = sum(len(message["content"]) for message in messages) // CHARACTERS_PER_TOKEN
            yield {
                "time": round(time_s, 3),
                "session_id": f"chat-{number}",
                "model": "example",
                "messages": messages,
                "response": {"choices": [{"message": answer}]},
                "usage": {
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": len(answer["content"]) // CHARACTERS_PER_TOKEN,
                },
            }
            messages = [*messages, answer]
            time_s += rng.expovariate(1 / 60) + 10


def served(rows: list[dict[str, Any]], replicas: int = 4) -> None:
    """Add the cached tokens of each request: what its replica, the next one in turn, had computed before."""
    held: list[set[tuple[str, ...]]] = [set() for _ in range(replicas)]
    for number, row in enumerate(rows):
        texts = tuple(message["content"] for message in row["messages"])
        cache = held[number % replicas]
        prefixes = [texts[:end] for end in range(1, len(texts) + 1)]
        cached = max((prefix for prefix in prefixes if prefix in cache), key=len, default=())
        tokens = sum(map(len, cached)) // CHARACTERS_PER_TOKEN // BLOCK * BLOCK
        row["usage"]["prompt_tokens_details"] = {"cached_tokens": min(tokens, row["usage"]["prompt_tokens"] - 1)}
        cache.update(prefixes)
        cache.add((*texts, row["response"]["choices"][0]["message"]["content"]))


def main() -> None:
    """Write the log to standard output, in order of time."""
    rows = sorted(conversations(240), key=lambda row: row["time"])
    served(rows)
    sys.stdout.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
