"""The head that prompts have in common, in characters or tokens.

It may be shorter than a block, and then is not shared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable
from typing import Any

MOST_UNITS = 16_384
"""Characters, or tokens, of a prompt that are looked at."""


class FirstPrompts:
    """Collects the first prompt of each session, as text or as token ids."""

    def __init__(self) -> None:
        """Start with no prompt."""
        self._firsts: dict[Hashable, str | tuple[int, ...]] = {}

    def add(self, session: Hashable, prompt: str | list[Any]) -> None:
        """Look at one more prompt; only the first of a session counts.

        What is no list of ids is some other line's error.
        """
        if session in self._firsts:
            return
        head = prompt[:MOST_UNITS]
        if isinstance(head, str):
            self._firsts[session] = head
        elif all(type(token) is int for token in head):
            self._firsts[session] = tuple(head)

    def result(self) -> int:
        """Return the length of the longest head that at least half of the sessions begin with; one alone has none."""
        prompts = list(self._firsts.values())
        longest = max(map(len, prompts), default=0) if len(prompts) > 1 else 0

        def differs(length: int) -> bool:  # the share that agrees falls with length
            _, most = Counter(prompt[:length] for prompt in prompts if len(prompt) >= length).most_common(1)[0]
            return 2 * most < len(prompts)

        return bisect_left(range(1, longest + 1), x=True, key=differs)
