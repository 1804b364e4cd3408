"""The server under load on loopback, beside a plain relay and nginx: ``cd benches && python -m loadtest``."""
