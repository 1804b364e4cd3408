"""Policies: small frozen objects, each one pure function of a view. The router does the rest."""

from prefixroute.draws import draw
from prefixroute.policies.base import Answer, FunctionPolicy, Pick, Policy, Scores
from prefixroute.policies.catalog import POLICIES, Description, as_policy, describe, preset_of, presets
from prefixroute.policies.keyed import Bounded, Document, PrefixHash, Rendezvous, Session, TwoChoices
from prefixroute.policies.match import CacheAware
from prefixroute.policies.preset import BeliefSettings, Preset
from prefixroute.policies.scored import SCORERS, LinearCost, LMetric, MinTtft, PrebleE2, Weighted
from prefixroute.policies.spread import LeastLoaded, PowerOfTwo, Random, RoundRobin
from prefixroute.policies.transfer import TransferCost
from prefixroute.policies.view import SIGNALS, RequestInfo, View

__all__ = [
    "POLICIES",
    "SCORERS",
    "SIGNALS",
    "Answer",
    "BeliefSettings",
    "Bounded",
    "CacheAware",
    "Description",
    "Document",
    "FunctionPolicy",
    "LMetric",
    "LeastLoaded",
    "LinearCost",
    "MinTtft",
    "Pick",
    "Policy",
    "PowerOfTwo",
    "PrebleE2",
    "PrefixHash",
    "Preset",
    "Random",
    "Rendezvous",
    "RequestInfo",
    "RoundRobin",
    "Scores",
    "Session",
    "TransferCost",
    "TwoChoices",
    "View",
    "Weighted",
    "as_policy",
    "describe",
    "draw",
    "preset_of",
    "presets",
]
