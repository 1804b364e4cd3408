"""Routers of one host: each process writes a ring in shared memory, and reads those of the others.

A folder in ``/dev/shm`` has a ring for each router. Its owner holds an ``flock`` on it, which the kernel lets go of
when the process dies, in whatever way: a ring whose lock can be had is removed by whoever notices. No process waits for
another.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from prefixroute.errors import ConfigError, PeerError
from prefixroute.peers.seal import Terms
from prefixroute.peers.transport import Flush, Receive, Tick, deliver, nothing
from prefixroute.peers.wire import PeerRing, PeerRings
from prefixroute.routing import RouterState
from prefixroute.validation import check_int

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]


SHARED_MEMORY = "/dev/shm"  # noqa: S108  # it is the shared memory itself
CAPACITY_BYTES, MIN_CAPACITY_BYTES = 4 << 20, 1 << 20
"""Bytes of messages that a ring holds, some ten thousand requests; and at least, so that most frames fit a half of
it."""
PERIOD_S = 0.01
"""Seconds between two looks for messages: far less than what a delay begins to cost."""
SCAN_S = 0.1
"""Seconds between two looks for routers that have come or died."""
AT_ONCE = 256
KEY_BYTES = 8
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ELSEWHERE = "share over Redis or ZeroMQ instead (docs/peers.md), or run one process"


class RingPeers:
    """Shared memory between the routers of one host that were given one name.

    Not to be shared between routers: each has its own. ``Router(peers="name")`` makes one; a process that is forked
    goes on with a ring of its own.

    Args:
        name: what the routers of a fleet have in common: letters, digits, ``.``, ``_`` and ``-``, up to 64.
        folder: where shared memory is.
        capacity_bytes: of messages in each ring.

    Raises:
        ConfigError: there is no shared memory here, not enough of it, or the name is not allowed.
    """

    def __init__(self, name: str, *, folder: str = SHARED_MEMORY, capacity_bytes: int = CAPACITY_BYTES) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"peers must be a name of 1 to 64 letters, digits, '.', '_' and '-', got {name!r}")
        check_int("capacity_bytes", capacity_bytes, MIN_CAPACITY_BYTES, 1 << 30)
        if fcntl is None or not Path(folder).is_dir() or not os.access(folder, os.W_OK):
            raise ConfigError(f"peers={name!r} needs shared memory that can be written in {folder}: {_ELSEWHERE}")
        self._folder = Path(folder) / f"prefixroute-{os.getuid()}-{name}"
        self._bytes = PeerRing.size(capacity_bytes)
        self._ring: PeerRing | None = None
        self._file = -1
        self._path: Path | None = None
        self._rings: PeerRings | None = None
        self._others: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._counts = {"lost": 0, "refused": 0}
        self._terms: Terms | None = None
        with self._told(), self._folder_locked() as folder_file:
            self._key = self._agreed_key(folder_file)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise what the system refuses as a :class:`ConfigError`."""
        try:
            yield
        except OSError as error:
            raise ConfigError(f"{self._folder} cannot be used ({error}): {_ELSEWHERE}") from error

    @contextmanager
    def _folder_locked(self) -> Iterator[int]:
        """Hold the folder, made if it was not there, for the moment that joining and leaving take."""
        while True:
            with suppress(FileExistsError):
                self._folder.mkdir(mode=0o700)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(folder).st_uid != os.getuid():
                    raise ConfigError(f"{self._folder} belongs to another user")
                fcntl.flock(folder, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    if self._folder.stat().st_ino == os.fstat(folder).st_ino:
                        yield folder
                        return
            finally:
                os.close(folder)  # gives the lock back

    def _agreed_key(self, folder: int) -> int:
        """Return the key that the first router has made."""
        with suppress(FileNotFoundError):
            file = os.open("key", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            key = os.read(file, KEY_BYTES)  # the fleet's terms follow
            os.close(file)
            if len(key) == KEY_BYTES:
                return int.from_bytes(key, "little")
        key = secrets.token_bytes(KEY_BYTES)
        file = os.open("key", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600, dir_fd=folder)
        os.write(file, key)
        os.close(file)
        return int.from_bytes(key, "little")

    def shared_key(self) -> int:
        """Return the key that the first router has made."""
        return self._key

    def join(self, state: RouterState, terms: Terms) -> PeerRings:
        """Say what the router of this ring must have in common with the others; return the loads in their rings.

        Args:
            state: the router's.
            terms: its terms: :meth:`open` refuses to join routers with others.

        Returns:
            The loads, which the router's decisions read.
        """
        self._terms, self._rings = terms, PeerRings(state.ledger)
        return self._rings

    def _agree(self, folder: int) -> None:
        """Note this router's terms behind the key if it is the first, else check them; the folder is locked.

        Raises:
            PeerError: the routers that live here have other terms.
        """
        if self._terms is None:
            return
        file = os.open("key", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            own = self._terms.pack()
            theirs = Terms.unpack(os.pread(file, len(own), KEY_BYTES)) if self._scan() else None
            differences = "" if theirs is None else self._terms.differences(theirs)
            if differences:
                raise PeerError(
                    f"the routers in {self._folder} differ from this one: {differences}; routers that share must be equal in "
                    "block_size, hash_key, peer_secret and version: give another fleet another name"
                )
            os.pwrite(file, own, KEY_BYTES)
        finally:
            os.close(file)

    @property
    def ring(self) -> PeerRing:
        """The ring of this process, once it is open.

        Raises:
            ConfigError: it is not.
        """
        if self._ring is None:
            raise ConfigError("the ring of this process is not open")
        return self._ring

    def open(self, receive: Receive, tick: Tick, flush: Flush = nothing) -> None:
        """Make a ring, and read those of the others in a thread.

        Args:
            receive: takes each frame of another router.
            tick: lets time pass, once a second.
            flush: publishes what has gathered.

        Raises:
            ConfigError: it was opened before, or there is too little memory.
            PeerError: the routers of this name have another block size, hash key, secret or version.
        """
        if self._ring is not None or self._closed:
            raise ConfigError("a transport carries the frames of one router, once: make another RingPeers")
        with self._told(), self._folder_locked() as folder:
            self._agree(folder)
            self._make(secrets.randbits(64))
        self._scan()
        self._stop = threading.Event()
        arguments = (self._stop, receive, tick, flush)
        self._thread = threading.Thread(target=self._read, args=arguments, name="prefixroute-peers", daemon=True)
        self._thread.start()

    def _make(self, ident: int) -> None:
        free = os.statvfs(self._folder)
        if free.f_bavail * free.f_frsize < self._bytes:
            raise ConfigError(
                f"a ring takes {self._bytes:,} bytes of {self._folder.parent}, which is full: {_ELSEWHERE}"
            )
        path, made = self._folder / f"{ident:016x}", self._folder / f".new-{ident:016x}"
        file = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(file, 0, self._bytes)  # else the first write to a full memory would kill the process
            self._ring = PeerRing(mmap.mmap(file, self._bytes))
            made.rename(path)  # it is seen once it is whole, and locked
        except BaseException:
            os.close(file)
            made.unlink(missing_ok=True)
            raise
        self._file, self._path = file, path

    def publish(self, frame: bytes) -> None:
        """Write a frame to the ring.

        Args:
            frame: one that does not fit is lost, and counted.
        """
        if self._ring is not None and not self._ring.publish(frame):
            self._counts["lost"] += 1

    def _read(self, stop: threading.Event, receive: Receive, tick: Tick, flush: Flush) -> None:
        rounds, per_scan, per_tick = 0, round(SCAN_S / PERIOD_S), round(1.0 / PERIOD_S)
        while not stop.wait(PERIOD_S):
            rounds += 1
            if rounds % per_scan == 0:
                self._scan()
            if rounds % per_tick == 0:
                tick()
            flush()
            self._deliver(receive, stop)

    def _deliver(self, receive: Receive, stop: threading.Event) -> None:
        rings, frames = self._rings, [b""]
        while frames and rings is not None and not stop.is_set():
            frames, lapped = rings.take(AT_ONCE)
            self._counts["lost"] += lapped
            deliver(frames, receive, self._counts, "ring")

    def _scan(self) -> int:
        """Read the rings of routers that have come, and remove those of the dead; return how many others live."""
        found = set()
        with suppress(FileNotFoundError):
            found = {entry.name for entry in os.scandir(self._folder) if entry.name != "key"}
        own = None if self._path is None else self._path.name
        for name in sorted(found - {own}):
            if self._is_dead(name):
                found.discard(name)
            elif name not in self._others and not name.startswith("."):
                self._attach(name)
        for name in set(self._others) - found:
            self._detach(name)
        return len(found - {own})

    def _is_dead(self, name: str) -> bool:
        """Return whether a ring's owner has died, and remove the ring then."""
        with suppress(FileNotFoundError, BlockingIOError):
            file = os.open(self._folder / name, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (self._folder / name).unlink(missing_ok=True)
                return True
            finally:
                os.close(file)
        return False

    def _attach(self, name: str) -> None:
        with suppress(FileNotFoundError, ValueError):
            file = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                memory = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
            finally:
                os.close(file)
            ident = int(name, 16)
            if self._rings is not None and self._rings.attach(ident, memory):
                self._others[name] = ident

    def _detach(self, name: str) -> None:
        ident = self._others.pop(name, None)
        if ident is not None and self._rings is not None:
            self._rings.detach(ident)

    def close(self) -> None:
        """Remove the ring, and the folder with the last one."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._closed:
            return
        self._closed = True
        with self._folder_locked():
            if self._path is not None:
                self._path.unlink(missing_ok=True)
            self._forget_own()
            self._scan()
            if {entry.name for entry in os.scandir(self._folder)} <= {"key"}:
                (self._folder / "key").unlink(missing_ok=True)
                self._folder.rmdir()
        for name in list(self._others):
            self._detach(name)

    def _forget_own(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._ring, self._file, self._path = None, -1, None

    def forked(self) -> None:
        """Let go, in a child, of what is the parent's. Its thread is not there; the rings that it read are."""
        for name in list(self._others):
            self._detach(name)
        self._forget_own()
        self._thread = None

    def status(self) -> dict[str, Any]:
        """Return counters: messages that were overwritten before they were read, messages refused."""
        return {"kind": "ring", "connected": self._ring is not None, "rings": len(self._others), **self._counts}
