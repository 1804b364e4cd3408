"""Prompts: what kinds there are, and how each is brought into the form that the index hashes."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefixroute.errors import ConfigError, TokensError

KINDS = ("tokens", "text", "messages")


class Prompts:
    """Checks prompts of one kind and joins them with outputs. A ``BlockHashes`` is accepted by every kind."""

    def __init__(self, kind: str) -> None:
        """Take one of :data:`KINDS`."""
        if kind not in KINDS:
            msg = f"prompt_kind must be one of {', '.join(KINDS)}, got {kind!r}"
            raise ConfigError(msg)
        self.kind = kind

    def prepare(self, prompt: Any) -> Any:
        """Return what the index hashes; raise :class:`TokensError` if the prompt is of another kind."""
        if type(prompt) is np.ndarray and self.kind == "tokens":
            return prompt
        if hasattr(prompt, "token_count"):
            return prompt
        if isinstance(prompt, str | bytes) != (self.kind == "text"):
            msg = f"this router takes prompts of kind {self.kind!r}, got {type(prompt).__name__}"
            raise TokensError(msg)
        return prompt

    def context(self, prompt: Any, output: Any) -> Any:
        """Return prompt + output, as the replica holds them once it has answered."""
        if hasattr(output, "token_count"):
            return output
        if hasattr(prompt, "token_count"):
            msg = "the prompt was given as BlockHashes: give the output as BlockHashes of prompt + output"
            raise TokensError(msg)
        if self.kind == "text":
            if type(output) is not type(prompt):
                msg = f"the prompt was {type(prompt).__name__}, the output is {type(output).__name__}"
                raise TokensError(msg)
            return prompt + output
        return np.concatenate([np.asarray(self.prepare(prompt)), np.asarray(self.prepare(output))])
