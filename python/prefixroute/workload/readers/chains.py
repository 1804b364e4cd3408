"""Conversations of the Responses API whose requests name the response before and hold the new items only."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

MOST_CHARACTERS: Final = 256 * 1024 * 1024
"""Characters of conversations that are remembered; the oldest are forgotten first."""
OUTSIDE: Final = (
    "requests continue a response that is not in the log: what came before is missing from their prompts, which are shorter than "
    "they were"
)


class Earlier(NamedTuple):
    """A conversation up to a response."""

    text: str
    session: str


class ResponseChains:
    """Conversations by the id of their last response."""

    def __init__(self) -> None:
        """Start with none."""
        self._known: OrderedDict[str, Earlier] = OrderedDict()
        self._characters = 0

    def earlier(self, response: str) -> Earlier | None:
        """Return the conversation that ends with a response, or None where it is not known (any more)."""
        return self._known.get(response)

    def add(self, response: str, text: str, session: str) -> None:
        """Remember a conversation, with its answer, by the id of that."""
        if response in self._known:
            return
        self._known[response] = Earlier(text, session)
        self._characters += len(text)
        while self._characters > MOST_CHARACTERS:
            _, oldest = self._known.popitem(last=False)
            self._characters -= len(oldest.text)
