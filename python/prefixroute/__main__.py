"""``python -m prefixroute``: the same as the ``prefixroute`` command."""

from prefixroute.cli import main

if __name__ == "__main__":
    main()
