"""Prompts: what kinds there are, and how each is brought into the form that the index hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from prefixroute.errors import ConfigError, PrefixRouteError, TokensError
from prefixroute.hashing import BlockHashes
from prefixroute.limits import BYTES_PER_TOKEN
from prefixroute.messages import CanonicalForm, answer_messages
from prefixroute.validation import check_callable, check_choice, shown

T = TypeVar("T")
KINDS = ("tokens", "text", "messages")
_FEW_TOKENS = 1_000
"""Reported prompt tokens under which a calibration would be noise."""
PLAUSIBLE = (1.5, 8.0)
"""Bytes of text for one token, least and most: a report outside is of another count, e.g. of uncached tokens alone."""


class TextLength:
    """How many tokens a text has, learned from the lengths that engines report.

    Attributes:
        scale: tokens for one estimated token of :data:`~prefixroute.limits.BYTES_PER_TOKEN` bytes; 1 until enough is
            known.
        implausible: reported lengths that were not learned from, since no text has so few or so many bytes a token.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self.scale, self.implausible = 1.0, 0
        self._bytes = self._tokens = 0

    def learn(self, estimated_tokens: int, reported_tokens: int) -> None:
        """Learn from a prompt's reported length how many bytes a token has, unless that is not :data:`PLAUSIBLE`."""
        if estimated_tokens <= 0 or reported_tokens <= 0:
            return
        text_bytes, (least, most) = BYTES_PER_TOKEN * estimated_tokens, PLAUSIBLE
        if not least * reported_tokens <= text_bytes <= most * reported_tokens:
            self.implausible += 1
            return
        self._bytes += text_bytes
        self._tokens += reported_tokens
        if self._tokens >= _FEW_TOKENS:
            self.scale = BYTES_PER_TOKEN * self._tokens / self._bytes


class Prompts:
    """Checks prompts of one kind, brings them into the form to be hashed, and joins them with outputs.

    A ``BlockHashes`` is accepted by every kind; if its blocks are finer than the belief's, it is coarsened. Text and
    messages of one router share the tokenizer and what is learned of lengths.

    Args:
        kind: ``tokens``, ``text`` or ``messages``.
        block_size: the belief's.
        render: turns messages (or text) into the text that the engine tokenizes, e.g. a chat template. It gets the
            prompt: a list of messages, or a request's body, ``{"messages": [...], "tools": [...]}``. For messages
            the default is :class:`~prefixroute.messages.CanonicalForm`.
        tokenizer: turns text into token ids: a function, or a ``tokenizers.Tokenizer``. The prompt is then matched by
            tokens, as the engine does.

    What ``render`` and ``tokenizer`` raise that is no error of prefixroute is raised as :class:`TokensError`, from it.
    """

    def __init__(
        self,
        kind: str,
        block_size: int,
        render: Callable[[Any], str] | None = None,
        tokenizer: Any = None,
    ) -> None:
        """Take options that :func:`check_prompts` has checked."""
        self.kind, self.block_size = kind, block_size
        self._render = render if render is not None or kind != "messages" else CanonicalForm()
        self._tokenizer, self._encode = tokenizer, encoder(tokenizer)
        self.length = TextLength()
        self.keeps = kind == "messages"
        """Whether prompts are lists that callers append to."""
        self.estimates = kind != "tokens" and self._encode is None
        """Whether the length of a prompt in tokens is estimated from its bytes."""
        self._kinds = {kind: self}

    def of(self, kind: str | None) -> Prompts:
        """Return what prepares prompts of another kind for the same router; ``None`` = its own kind."""
        if kind is None or kind == self.kind:
            return self
        other = self._kinds.get(kind)
        if other is None:
            other = Prompts(kind, self.block_size, tokenizer=self._tokenizer)
            other.length, other._kinds = self.length, self._kinds
            self._kinds[kind] = other
        return other

    @property
    def scale(self) -> float:
        """Tokens for one estimated token."""
        return self.length.scale if self.estimates else 1.0

    def calibrate(self, estimated_tokens: int, reported_tokens: int) -> None:
        """Learn from a prompt's reported length how many bytes a token has."""
        if self.estimates:
            self.length.learn(estimated_tokens, reported_tokens)

    def prepare(self, prompt: Any) -> Any:
        """Return what the index hashes; raise :class:`TokensError` if the prompt is of another kind."""
        if type(prompt) is np.ndarray and self.kind == "tokens":
            return prompt
        if type(prompt) is BlockHashes:
            return prompt if prompt.block_size == self.block_size else self._coarse(prompt)
        if self.kind == "tokens":
            if isinstance(prompt, str | bytes | bytearray | Mapping):
                raise self._wrong(prompt)
            if isinstance(prompt, list) and prompt and isinstance(prompt[0], Mapping):
                raise self._wrong(prompt)
            return prompt
        if hasattr(prompt, "token_count"):
            return prompt
        text = self._text(prompt)
        return text if self._encode is None else _called("tokenizer", self._encode, text)

    def keep(self, prompt: Any) -> Any:
        """Return what :meth:`context` will need of a prompt: a copy of a list of messages, which callers append to."""
        return list(prompt) if self.keeps and isinstance(prompt, list) else prompt

    def _text(self, prompt: Any) -> str | bytes:
        if self.kind == "text":
            if not isinstance(prompt, str | bytes):
                raise self._wrong(prompt)
            return prompt if self._render is None else _called("render", self._render, prompt)
        if self._render is None or not isinstance(prompt, Mapping | Sequence) or isinstance(prompt, str | bytes):
            raise self._wrong(prompt)
        return _called("render", self._render, prompt)

    def _wrong(self, prompt: Any) -> TokensError:
        got = f"a list of {type(prompt[0]).__name__}" if isinstance(prompt, list) and prompt else type(prompt).__name__
        others = ", ".join(repr(kind) for kind in KINDS if kind != self.kind)
        return TokensError(
            f"this router takes prompts of kind {shown(self.kind)}, got {got}; prompt_kind may also be {others}"
        )

    def _coarse(self, prompt: BlockHashes) -> BlockHashes:
        """Return the same prompt in the belief's larger blocks: each is named by the last of the chain inside of it."""
        step, rest = divmod(self.block_size, prompt.block_size)
        if rest or not step:
            raise TokensError(
                f"prompt is hashed in blocks of {prompt.block_size}, the belief has blocks of {self.block_size}"
            )
        return BlockHashes(prompt.array[step - 1 :: step], token_count=prompt.token_count, block_size=self.block_size)

    def context(self, prompt: Any, output: Any, length: int) -> Any:
        """Return prompt + output in the form to be hashed, as the replica holds them once it has answered.

        The last sampled token has no keys and values, see :func:`~prefixroute.workload.request.cached_tokens`. It is
        left out, see :func:`but_last`. Of a ``BlockHashes`` nothing is left out: it is of what is held.

        Args:
            prompt: what was routed, as :meth:`keep` returned it.
            output: the answer, or a ``BlockHashes`` of prompt and answer.
            length: tokens of the prompt as it was routed; what the caller has appended to its list since is left out.

        Raises:
            TokensError: the output does not suit the prompt.
        """
        if type(output) is BlockHashes and output.block_size == self.block_size:
            return output
        if hasattr(output, "token_count"):
            return self.prepare(output)
        return but_last(*self.joined(prompt, output, length))

    def joined(self, prompt: Any, output: Any, length: int) -> tuple[Any, int]:
        """Return prompt and output as one, in the form to be hashed, and how many units of it are the output's at most.

        Args:
            prompt: as for :meth:`context`.
            output: likewise, but no ``BlockHashes``.
            length: as for :meth:`context`.

        Raises:
            TokensError: the output does not suit the prompt.
        """
        if hasattr(prompt, "token_count"):
            raise TokensError("the prompt was given as BlockHashes: give the output as BlockHashes of prompt + output")
        if self.kind == "tokens":
            answer = _ids(self.prepare(output))
            return np.concatenate([_ids(self.prepare(prompt))[:length], answer]), len(answer)
        if self.kind == "messages":
            return self._answered(prompt, output), BYTES_PER_TOKEN if output else 0
        if type(output) is not type(prompt):
            raise TokensError(f"the prompt was {type(prompt).__name__}, the output is {type(output).__name__}")
        return self.prepare(prompt + output), len(output)

    def _answered(self, prompt: Any, output: Any) -> Any:
        answer = answer_messages(output)
        if not isinstance(prompt, Mapping):
            return self.prepare([*prompt, *answer])
        key = "messages" if "messages" in prompt or "input" not in prompt else "input"
        before = prompt.get(key, ())
        before = [{"role": "user", "content": before}] if isinstance(before, str) else before
        return self.prepare({**prompt, key: [*before, *answer]})


def but_last(whole: Any, most: int) -> Any:
    """Return token ids without the last, or a text without the bytes of its last token; of both, at most ``most`` go.

    The tokens of a text are its bytes in fours, rounded up: the last has what the others leave.
    """
    if not isinstance(whole, str | bytes):
        return whole[: len(whole) - min(1, most)]
    try:
        text = whole if isinstance(whole, bytes) else whole.encode()
    except UnicodeEncodeError as error:
        raise TokensError(f"text must be valid Unicode: {error}") from error
    last = (len(text) - 1) % BYTES_PER_TOKEN + 1
    return text[: len(text) - min(last, most)]


def _called(what: str, function: Callable[[Any], T], given: Any) -> T:
    """Return what the caller's own function makes of a prompt; what it raises becomes an error about the prompt."""
    try:
        return function(given)
    except (PrefixRouteError, MemoryError):
        raise
    except Exception as error:
        raise TokensError(f"{what} raised {type(error).__name__}: {error}") from error


def _ids(tokens: Any) -> NDArray[Any]:
    """Return token ids as an array that can follow another: NumPy makes floats of an empty list and of mixed signs."""
    try:
        ids = np.asarray(tokens)
    except ValueError as error:
        raise TokensError(f"token ids must have one dimension: {error}") from error
    if ids.ndim != 1:
        raise TokensError(f"token ids must have one dimension, got {type(tokens).__name__} of {ids.ndim}")
    return ids.astype(np.int64) if ids.dtype.kind in "iu" or not ids.size else ids.astype(object)


def check_prompts(kind: Any, render: Any, tokenizer: Any) -> None:
    """Raise :class:`ConfigError` for a kind of prompt that does not exist, or for what cannot prepare prompts of it."""
    check_choice("prompt_kind", kind, KINDS)
    if kind == "tokens" and (render is not None or tokenizer is not None):
        raise ConfigError("render and tokenizer need prompt_kind 'text' or 'messages', got 'tokens'")
    if render is not None:
        check_callable("render", render)
    if isinstance(tokenizer, str):
        raise ConfigError(
            f"tokenizer must be an object or a function, got the name {shown(tokenizer)}: give "
            f"tokenizers.Tokenizer.from_pretrained({shown(tokenizer)}) or tokenizers.Tokenizer.from_file(path)"
        )
    if tokenizer is not None and not callable(getattr(tokenizer, "encode", tokenizer)):
        raise ConfigError(f"tokenizer must be a function of a text or have encode(), got {shown(tokenizer)}")


def encoder(tokenizer: Any) -> Callable[[str | bytes], Any] | None:
    """Return a function from text to token ids.

    The given one, or a ``tokenizers.Tokenizer``'s without special tokens.
    """
    if tokenizer is None:
        return None
    encode = getattr(tokenizer, "encode", None)
    if encode is not None:
        return lambda text: encode(_decoded(text), add_special_tokens=False).ids
    return lambda text: tokenizer(_decoded(text))


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")
