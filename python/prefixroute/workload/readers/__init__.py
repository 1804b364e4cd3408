"""Readers of trace files."""
