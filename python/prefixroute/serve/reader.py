"""Large bodies, read in a process of their own: a parser of JSON holds its interpreter until it is done.

A body of 31 MB that is nothing but brackets takes 1.5 s to parse, in any thread and with any parser; the event loop
stands still for as long if it is in the same process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

from prefixroute.bodies import Api, SessionKeys
from prefixroute.errors import ConfigError
from prefixroute.hashing import hash_blocks
from prefixroute.routing.cache_names import CacheNames
from prefixroute.routing.prompts import Prompts
from prefixroute.serve.calls import ParsedBody

_LOG = logging.getLogger("prefixroute.serve")
LARGE_BYTES = 256 * 1024
"""A body above this is read elsewhere. One of this size takes 12 ms at most."""
READ_S = 60.0
"""Longest time for one body, in seconds, some 25 times that of the slowest one of 32 MB: then a tokenizer hangs, and
the process is ended."""
MALFORMED = (ValueError, RecursionError)
"""What a body raises that is no request: bad JSON or Unicode, ``TokensError``, arrays in arrays in arrays."""


class ReaderDied(Exception):  # noqa: N818  # an outcome
    """The process that reads large bodies has died, as it may for want of memory, or was ended because it hung."""


@dataclass(frozen=True, slots=True)
class Hashing:
    """How prompts become hashes, and sessions are named: as the Router has it.

    Attributes:
        block_size: tokens in a block.
        hash_key: of the hashes.
        session_keys: where conversations are named.
        render: the engines' chat template; ``None`` = the canonical form.
        tokenizer: the engines' tokenizer; ``None`` = texts are hashed.
    """

    block_size: int
    hash_key: int
    session_keys: SessionKeys
    render: Any = None
    tokenizer: Any = None

    def read(self, api: Api, content: bytes, names: CacheNames) -> ParsedBody:
        """Return what a body says, with the hashes of its prompt.

        Raise one of :data:`MALFORMED` if it is no request.
        """
        reading = ParsedBody.of(api, content, self.session_keys)
        prompts = Prompts("messages", self.block_size, self.render, self.tokenizer).of(reading.prompt_kind)
        namespace = names.of(reading.namespace)
        hashes = hash_blocks(prompts.prepare(reading.prompt), self.block_size, namespace, self.hash_key)
        return replace(reading, prompt=hashes)


class Reader:
    """Reads bodies: small ones at once, large ones in a process that begins with the first of them, one after another.

    Attributes:
        session_keys: where conversations are named.

    Args:
        hashing: the Router's. It goes to another process: ``render`` and ``tokenizer`` are pickled.

    Raises:
        ConfigError: it cannot be pickled.
    """

    def __init__(self, hashing: Hashing) -> None:
        try:
            self._pickled = pickle.dumps(hashing)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"render and tokenizer must be such that another process can have them, see pickle: {error}"
            ) from error
        self.session_keys = hashing.session_keys
        self._thread = ThreadPoolExecutor(1, "reader")
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    async def read(self, api: Api, content: bytes, names: CacheNames = CacheNames()) -> ParsedBody:  # noqa: B008  # frozen
        """Return what a body says. ``names``: what the name of a model means for cached blocks.

        Raises:
            MALFORMED: it is no request.
            ReaderDied: it could not be read.
        """
        if len(content) <= LARGE_BYTES:
            return ParsedBody.of(api, content, self.session_keys)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, api, content, names)

    def _ask(self, api: Api, content: bytes, names: CacheNames) -> ParsedBody:
        """Have a body read. Runs in the one thread, so that each answer is that to the question before it."""
        try:
            process = self._running()
            questions, answers = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
            with _ended_after(process, READ_S):
                pickle.dump((api, content, names), questions)
                questions.flush()
                said = pickle.load(answers)  # noqa: S301  # of our own process
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self._end()
            why = f"has died, or took longer than {READ_S:g} s"
            raise ReaderDied(f"the process that reads large bodies {why}: {error!r}") from error
        if isinstance(said, Exception):
            raise said
        found: ParsedBody = said
        return found

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise ReaderDied("the server is ending")
        if self._process is None or self._process.poll() is not None:
            self._end()
            paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-c", f"from {__name__} import main; main()"]
            self._process = subprocess.Popen(  # noqa: S603  # this module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **paths}
            )
            cast("BinaryIO", self._process.stdin).write(self._pickled)
        return self._process

    @property
    def pid(self) -> int | None:
        """Of the process; ``None`` = there is none."""
        return None if self._process is None else self._process.pid

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:  # closes its pipes
                pass

    def close(self) -> None:
        """End the process. A body that it reads is given up."""
        self._closed = True  # what waits for the thread starts no other process
        if self._process is not None:
            self._process.kill()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._end()


@contextmanager
def _ended_after(process: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
    """Kill a process if it takes longer, whatever this thread waits for: its pipes break then."""
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def main() -> None:
    """Read bodies from stdin until it ends.

    Its parent tells no other way, so that signals to the group do not matter.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # what is parsed has no cycles, and millions of parts
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints is no answer
    hashing: Hashing = pickle.load(asked)  # noqa: S301  # of our own parent
    while True:
        try:
            question = pickle.load(asked)  # noqa: S301
        except EOFError:
            return
        try:
            pickle.dump(_answer(hashing, *question), answers)
            answers.flush()
        except BrokenPipeError:  # the parent was killed
            os._exit(0)
        del question  # it may be large, and the next one may be late


def _answer(hashing: Hashing, api: Api, content: bytes, names: CacheNames) -> ParsedBody | Exception:
    try:
        return hashing.read(api, content, names)
    except MALFORMED as error:
        return ValueError(str(error))
    except MemoryError:
        return ValueError("the body takes more memory to read than there is")
    except Exception as error:  # noqa: BLE001  # whatever a tokenizer raises
        _LOG.exception("a large body could not be read")
        return RuntimeError(repr(error))
