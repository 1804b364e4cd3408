"""Examples that run, see the README in each folder."""
