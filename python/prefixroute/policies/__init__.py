"""Policies: small frozen objects, each one pure function of a view. The router does the rest."""

from prefixroute.policies.base import FunctionPolicy, Pick, Policy, Scores
from prefixroute.policies.catalog import POLICIES, as_policy
from prefixroute.policies.keyed import Bounded, Document, PrefixHash, Rendezvous, Session
from prefixroute.policies.match import CacheAware
from prefixroute.policies.spread import LeastLoaded, PowerOfTwo, Random, RoundRobin
from prefixroute.policies.view import SIGNALS, Request, View, draw

__all__ = [
    "POLICIES",
    "SIGNALS",
    "Bounded",
    "CacheAware",
    "Document",
    "FunctionPolicy",
    "LeastLoaded",
    "Pick",
    "Policy",
    "PowerOfTwo",
    "PrefixHash",
    "Random",
    "Rendezvous",
    "Request",
    "RoundRobin",
    "Scores",
    "Session",
    "View",
    "as_policy",
    "draw",
]
