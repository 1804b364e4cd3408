"""A gateway's log as large as those that people have: ``python benches/gateway_log.py FILE [MEGABYTES] [REQUESTS]``.

Chats behind a system prompt of 8 kB: rows hold the request's body and the answer, as JSON text in JSON, with time,
usage and replica. Then, for example::

    time prefixroute advise FILE --replicas 8 --quiet
    time prefixroute backtest FILE --quiet
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np

SYSTEM_BYTES = 8_000
USERS = 400
REPLICAS = 8
RATE = 4.0
"""Requests a second."""


def rows(requests: int, mean_bytes: int, seed: int = 1) -> Iterator[str]:
    """Yield rows of about ``mean_bytes`` each: chats of users who come back, each longer than the last."""
    rng = np.random.default_rng(seed)
    words = np.array([f"word{number}" for number in range(5_000)])
    ids = count()

    def text(size: int) -> str:
        return " ".join(rng.choice(words, max(1, size // 9)))

    def begun() -> list[dict[str, str]]:
        return [system]

    system = {"role": "system", "content": text(SYSTEM_BYTES)}
    step = max(400, (mean_bytes - SYSTEM_BYTES) // 4)  # a chat of eight turns is half as long on average as at its end
    chats = [begun() for _ in range(USERS)]
    names = [f"chat-{next(ids)}" for _ in range(USERS)]
    at = rng.integers(REPLICAS, size=USERS).tolist()
    held: list[dict[str, int]] = [{} for _ in range(REPLICAS)]
    now = 1_760_000_000.0
    for _ in range(requests):
        user = int(rng.integers(USERS))
        if len(chats[user]) > 2 * 8:
            chats[user], names[user] = begun(), f"chat-{next(ids)}"
        chats[user].append({"role": "user", "content": text(step // 2)})
        replica = int(rng.integers(REPLICAS)) if rng.random() < 0.3 else at[user]  # a third go astray
        seen, at[user] = held[replica].get(names[user], SYSTEM_BYTES) // 64 * 16, replica
        answer = {"role": "assistant", "content": text(step // 2)}
        body = {"model": "m", "messages": chats[user], "user": names[user], "max_tokens": 400}
        sent = json.dumps(body)
        response = {
            "choices": [{"message": answer}],
            "usage": {
                "prompt_tokens": len(sent) // 4,
                "completion_tokens": step // 8,
                "prompt_tokens_details": {"cached_tokens": seen},
            },
        }
        now += float(rng.exponential(1 / RATE))
        yield json.dumps(
            {
                "ts": round(now, 3),
                "session_id": names[user],
                "replica": f"engine-{replica}",
                "request_body": sent,
                "response": json.dumps(response),
            }
        )
        chats[user].append(answer)
        held[replica][names[user]] = len(sent)


def main() -> None:
    path, megabytes, requests = (
        Path(sys.argv[1]),
        *(int(word) for word in (*sys.argv[2:], *("272", "20000")[len(sys.argv) - 2 :])),
    )
    with path.open("w") as out:
        for row in rows(requests, megabytes * 1_000_000 // requests):
            out.write(row + "\n")
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB, {requests:,} requests")


if __name__ == "__main__":
    main()
