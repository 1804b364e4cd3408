"""Marks: what replicas and their processes are called between routers, in 64 bits that give no name away."""

from __future__ import annotations

from prefixroute.policies.keyed import text_hash
from prefixroute.routing.fleet import Member


def mark_of(name: str) -> int:
    """Return the mark of a replica's name, 1 to 2**64 - 1: routers know replicas by name, whatever their slots."""
    return text_hash(name) or 1


def process_mark(member: Member) -> int:
    """Return the mark of a member and of the process behind it, by its incarnation."""
    incarnation = member.replica.incarnation
    return mark_of(f"{member.name}\0{incarnation}" if incarnation else member.name)


def described(member: Member) -> tuple[int, bool]:
    """Return the mark of a member's process, and whether its engine's own events tell every router what it holds."""
    return process_mark(member), member.replica.events
