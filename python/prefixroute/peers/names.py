"""Marks: what replicas and their incarnations are called between routers, in bytes that give no name away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixroute.policies.keyed import text_hash

if TYPE_CHECKING:
    from prefixroute.routing.fleet import Member


def mark_of(name: str) -> int:
    """Return the mark of a replica's name, 1 to 2**64 - 1: routers know replicas by name, whatever their slots."""
    return text_hash(name) or 1


def incarnation_mark(incarnation: str) -> int:
    """Return the mark of an incarnation in 32 bits; 0 = none is known."""
    return (text_hash(incarnation) & 0xFFFF_FFFF or 1) if incarnation else 0


def replica_mark(member: Member) -> tuple[int, int]:
    """Return the marks of a member's name and of the process behind it."""
    incarnation = member.replica.incarnation
    return text_hash(member.name) or 1, incarnation_mark(incarnation) if incarnation else 0
