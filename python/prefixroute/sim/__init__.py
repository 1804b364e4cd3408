"""Simulate the production Router on a workload: recomputed tokens, TTFT, skew and dollars, per policy."""
