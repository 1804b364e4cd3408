"""Routers that share what they book: the commit feed, and what carries it between processes and hosts."""
