"""Notices routers that share a fleet and nothing else, and says what that costs."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from hashlib import blake2b

_LOG = logging.getLogger("prefixroute")
COST = (
    "routers that share nothing know only their own requests: eight of them recompute 26 to 40 % of the prompt tokens of a chat "
    "service of which one recomputes 13 %. Router(peers='a name of your fleet') lets the processes of this host share what they book; "
    "docs/peers.md has several hosts, and when nothing needs to be shared"
)
AGREEING = frozenset({"session", "rendezvous", "bounded", "prefix-hash", "document", "round-robin", "random"})
"""Policies that place by a key or by no one's knowledge: sharing adds nothing, or next to nothing."""
_said = False
_claims: dict[str, tuple[int, socket.socket | None]] = {}


def warn_if_alone(
    policy: str, addresses: Iterable[str], environ: Mapping[str, str] = os.environ, *, always: bool = False
) -> bool:
    """Warn, once a process, of a router without peers beside others of its fleet.

    Told by ``WEB_CONCURRENCY``, which uvicorn and gunicorn take their number of workers from, or because another
    process of this host has a router for replicas of the same addresses (Linux alone; replicas without an address say
    nothing).

    Args:
        policy: name of the router's policy.
        addresses: of its replicas, or their names.
        environ: the environment.
        always: warn again.

    Returns:
        Whether it has warned.
    """
    global _said  # noqa: PLW0603
    if policy.partition(":")[0] in AGREEING or (_said and not always):
        return False
    workers = environ.get("WEB_CONCURRENCY", "")
    if workers.isdecimal() and int(workers) > 1:
        _LOG.warning("WEB_CONCURRENCY=%s and no peers: %s", workers, COST)
    elif not _is_claimed_elsewhere(sorted(address for address in addresses if ":" in address)):
        return False
    else:
        _LOG.warning("another process of this host routes to the same replicas, and this router has no peers: %s", COST)
    _said = True
    return True


def _is_claimed_elsewhere(addresses: list[str]) -> bool:
    """Claim a fleet for this process; return whether another one has it. The kernel ends a claim with its process."""
    if not addresses or not sys.platform.startswith("linux"):
        return False
    fleet = blake2b("\n".join(addresses).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    pid, _ = _claims.get(fleet, (0, None))
    if pid:
        return pid != os.getpid()  # else a parent's, that this process was forked from
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0prefixroute-{os.getuid()}-{fleet}")
    except OSError:
        claim.close()
        return True
    _claims[fleet] = os.getpid(), claim
    return False
