"""Advice with evidence: compare policies, test the simulator against the log, size a fleet, walk the decision tree."""
