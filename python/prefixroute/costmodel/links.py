"""The links over which keys and values move between replicas.

Speed and latency, each with its source, from ``links.toml``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from prefixroute._core import TransferPrices
from prefixroute.costmodel.assumption import GIVEN
from prefixroute.errors import ConfigError
from prefixroute.shipped import shipped_table
from prefixroute.validation import check_float, check_instance, shown

DEFAULT_LINK = "rdma"
MOST_LINK_BYTES_PER_S = 1e15
"""Far above any link."""
MOST_LINK_LATENCY_S = 3_600.0
_TEXT = re.compile(r"(?P<speed>[^:]+)(?::(?P<latency>\d+(?:\.\d+)?)(?P<unit>us|ms|s))?")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Link:
    """What keys and values move over between two replicas.

    Attributes:
        name: what it is asked for by, such as ``rdma``.
        bytes_per_s: bytes a second that a transfer reaches, one direction; 0 = what the replica's GPUs reach among each
            other.
        latency_s: seconds from the last byte sent to the first step that can use it.
        per_gpu: the speed is that of one GPU, and each GPU of a replica sends its own part; else it is the replica's.
        description: what it is.
        source: where these are from.
    """

    name: str
    bytes_per_s: float
    latency_s: float = 0.0
    per_gpu: bool = False
    description: str = ""
    source: str = GIVEN

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: one is no number, or outside of what is possible.
        """
        check_instance("a link's name", self.name, str)
        check_float("a link's bytes_per_s", self.bytes_per_s, 0, MOST_LINK_BYTES_PER_S)
        check_float("a link's latency_s", self.latency_s, 0, MOST_LINK_LATENCY_S)
        check_instance("a link's per_gpu", self.per_gpu, bool)


@cache
def links() -> dict[str, Link]:
    """Return the known links by name."""
    return {name: Link(name=name, **row) for name, row in shipped_table("prefixroute.costmodel", "links.toml").items()}


def find_link(link: str | Link) -> Link:
    """Return a link from its name, from GB/s of a replica, or itself.

    ``rdma``, ``25``, ``ethernet:2ms``, ``12.5:500us``.

    Args:
        link: its text, or itself.

    Raises:
        ConfigError: the text is neither; the message lists the known names.
    """
    if isinstance(link, Link):
        return link
    match = _TEXT.fullmatch(link) if isinstance(link, str) else None
    if match is None:
        raise _unknown(link)
    known = links().get(match["speed"].lower())
    found = known or _of_gigabytes(link, match["speed"])
    if match["latency"] is None:
        return found
    return replace(found, name=link, latency_s=float(match["latency"]) * _SECONDS[match["unit"]])


def _of_gigabytes(link: str, text: str) -> Link:
    try:
        gigabytes = float(text)
    except ValueError:
        raise _unknown(link) from None
    check_float(f"the GB/s of link {link!r}", gigabytes, 0, MOST_LINK_BYTES_PER_S / 1e9, above=True)
    return Link(link, gigabytes * 1e9)


def _unknown(link: object) -> ConfigError:
    return ConfigError(
        f"a link is {', '.join(links())}, or GB/s of a replica, with a latency behind a colon if need be, such as rdma:2ms or "
        f"25; got {shown(link)}"
    )


__all__ = ["DEFAULT_LINK", "Link", "TransferPrices", "find_link", "links"]
