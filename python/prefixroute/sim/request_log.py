"""What a run measured of each request: a line per request, in columns.

A line is a record of fixed size (100 bytes timed, 40 untimed); columns are read as numpy arrays without a copy.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
from numpy.typing import NDArray

from prefixroute.workload import Request

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CODES = {"i4": "i", "i8": "q", "f8": "d"}
_SERVED = {"replica": "i4", "session": "i4", "number": "i8", "prompt": "i8", "hit": "i8", "arrival": "f8"}
_TIMED = {
    "start": "f8", "first_token": "f8", "finish": "f8", "output": "i8", "decode": "i4", "moved": "i8", "prefilled": "f8",
    "late": "i8",
}  # fmt: skip


class RequestLog:
    """Columns of one run, a line per finished request, in order of finishing.

    ``number`` counts requests as the workload gives them, from 0. Times are seconds; an untimed run knows none but
    arrivals, and has no columns from ``start`` on. ``replica`` is who computed the prompt, ``decode`` who decoded;
    ``prefilled`` is when the prompt was computed, ``moved`` prompt tokens moved from the one to the other, and ``late``
    gaps between tokens of the answer were longer than is promised. A request without a session counts as a
    session of its own, so that a bootstrap over sessions never joins strangers.
    """

    __slots__ = ("_line", "_lines", "_names", "_pack")

    def __init__(self, *, timed: bool) -> None:
        """Start empty. ``timed``: with the columns of a timed run.

        Args:
            timed: the log has columns of times.
        """
        columns = _SERVED | _TIMED if timed else _SERVED
        self._names: dict[str, int] = {}
        self._lines = bytearray()
        self._line = np.dtype(list(columns.items()))
        self._pack = Struct("=" + "".join(_CODES[kind] for kind in columns.values())).pack

    def __len__(self) -> int:
        """Return the number of requests logged."""
        return len(self._lines) // self._line.itemsize

    def served(self, number: int, replica: int, request: Request, hit_tokens: int, *times: float) -> None:
        """Log one request: which replica (a number), and how many of its prompt tokens were cached there.

        ``times``, of a timed run: start, first token and finish in seconds, the output's tokens, the replica that
        decoded, tokens moved, the second when the prompt was computed, and late gaps.

        Args:
            number: of the request in the workload, from 0.
            replica: its number, from 0.
            request: as the workload has it.
            hit_tokens: leading tokens that were cached.
            times: of a timed run, as above.
        """
        session, prompt, arrival = self.session_number(request, number), request.prompt_tokens, request.arrival_s
        self._lines += self._pack(replica, session, number, prompt, hit_tokens, arrival, *times)

    def session_number(self, request: Request, number: int) -> int:
        """Return the number of a request's session, a new one if it is new.

        Args:
            request: as the workload has it.
            number: of the request in the workload, from 0.
        """
        names, session = self._names, request.session
        return names.setdefault(f"\0{number}" if session is None else session, len(names))

    def extend(self, lines: bytes) -> None:
        """Add lines that a :class:`~prefixroute.sim.engine.Cluster` has written.

        Args:
            lines: whole lines of the log's layout.
        """
        self._lines += lines

    def column(self, name: str) -> Floats | Integers:
        """Return one column as a read-only numpy view of what was logged; the log must not grow while it is held.

        Args:
            name: of the column.
        """
        view: Floats | Integers = np.frombuffer(self._lines, dtype=self._line)[name]
        view.flags.writeable = False
        return view

    def in_order(self, values: Floats | Integers) -> Floats | Integers:
        """Return one value per line, given in the log's order, in the order of the workload's requests.

        Args:
            values: one for each line.
        """
        return values[np.argsort(self.column("number"), kind="stable")]

    @property
    def sessions(self) -> int:
        """The number of distinct sessions seen."""
        return len(self._names)
