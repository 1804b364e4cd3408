"""What all generators have in common: their arguments, and how requests become a workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import cleandoc
from typing import Protocol, TypeVar

from prefixroute.workload.arrivals import Arrivals
from prefixroute.workload.request import Request
from prefixroute.workload.shape import Shape
from prefixroute.workload.workload import Workload

_S = TypeVar("_S", bound=Shape)
_ShapeT_contra = TypeVar("_ShapeT_contra", bound=Shape, contravariant=True)

_ARGUMENTS = """

Args:
    seed: 0 or more; another seed is another draw of the same workload, with other names.
    requests: how many.
    block_size: tokens a block.
    arrivals: when they arrive; one million a day, evenly, unless given.
    shape: sizes; those of `{shape}` unless given.

Returns:
    The workload, which makes its requests anew at each reading and keeps none.

Raises:
    ConfigError: at sizes that do not fit an index or in memory.
"""


class Generator(Protocol[_ShapeT_contra]):
    """Makes a workload from a seed."""

    def __call__(
        self,
        seed: int = 1,
        *,
        requests: int = 40_000,
        block_size: int = 16,
        arrivals: Arrivals | None = None,
        shape: _ShapeT_contra | None = None,
    ) -> Workload:
        """Return the workload of a seed."""


def generator(
    shape_type: type[_S],
) -> Callable[[Callable[[int, int, int, Arrivals, _S], Iterator[Request]]], Generator[_S]]:
    """Return a decorator: from a function that yields requests it makes a generator of workloads.

    Args:
        shape_type: the sizes of the workload; its ``KIND`` names the workload.

    Returns:
        A decorator of functions of (seed, number of requests, block size, arrivals, shape).
    """

    def decorate(yield_requests: Callable[[int, int, int, Arrivals, _S], Iterator[Request]]) -> Generator[_S]:
        def made(
            seed: int = 1,
            *,
            requests: int = 40_000,
            block_size: int = 16,
            arrivals: Arrivals | None = None,
            shape: _S | None = None,
        ) -> Workload:
            sizes = shape_type() if shape is None else shape
            sizes.check(block_size, requests)
            process = arrivals or sizes.usual_arrivals

            def source() -> Iterator[Request]:
                return yield_requests(seed, requests, block_size, process, sizes)

            return Workload(sizes.name(), block_size, source, requests, sizes.behind(arrivals))

        made.__name__ = made.__qualname__ = yield_requests.__name__
        made.__module__ = yield_requests.__module__
        made.__doc__ = cleandoc(yield_requests.__doc__ or "") + _ARGUMENTS.format(shape=shape_type.__name__)
        return made

    return decorate
