"""Tables of step times: measured, or worked out by another model, and looked up as fast as any other price."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from prefixroute._core import StepPrices

Axis = tuple[float, ...]
Points = tuple[Axis, Axis, Axis]
"""The points of two axes, two or more each and ascending, and the seconds at each pair of them, row by row."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of the steps of one model on one replica, as tables with straight lines between their points.

    Attributes:
        name: what tables call the source.
        source: where the times are from, with a version or a date.
        prefill: of a step that computes (row) tokens of one prompt behind (column) cached ones.
        decode: of a step in which (row) requests decode behind (column) tokens each.
        beside: what these add to a step with prompt tokens.
        step_s: what each further prompt in a step saves: the part of a step that does not depend on its tokens.

    Raises:
        ConfigError: an axis does not ascend, or seconds are missing, negative or no numbers.
    """

    name: str
    source: str
    prefill: Points
    decode: Points
    beside: Points
    step_s: float = 0.0

    def __post_init__(self) -> None:
        """Check the tables."""
        _ = self.prices

    @cached_property
    def prices(self) -> StepPrices:
        """The prices of steps, for :class:`~prefixroute.costmodel.CostModel` and the simulated engine."""
        return StepPrices.grid(self.prefill, self.decode, self.beside, self.step_s)

    @classmethod
    def from_aiconfigurator(
        cls,
        gpu: str,
        model: str | Path,
        *,
        backend: str = "vllm",
        tensor_parallel: int = 1,
        expert_parallel: bool = False,
        weight_format: str | None = None,
    ) -> StepTimes:
        """Take the step times of aiconfigurator-core, a model over measured kernels. Needs the extra ``aic``.

        Prefill and decode are its predictions at the points of a grid, some 600; that takes about a second, once a
        process.

        Args:
            gpu: ``H100``, ``H200``, ``B200``, ``A100`` or ``L40S``.
            model: a name of ``models.toml``, a name that the package knows (``Qwen/Qwen3-32B``), or the path of a
                ``config.json``.
            backend: whose kernels: ``vllm``, ``sglang`` or ``trtllm``.
            tensor_parallel: GPUs of the replica.
            expert_parallel: whether these share out experts whole.
            weight_format: as for :class:`~prefixroute.costmodel.CostModel`; the model's unless given.

        Returns:
            The step times.

        Raises:
            ConfigError: there are no tables of that combination; the message names what there is.
            ModuleNotFoundError: the extra is not installed.
        """
        from prefixroute.costmodel.aic import step_times  # noqa: PLC0415 - it makes objects of this class

        found: StepTimes = step_times(
            gpu,
            model,
            backend=backend,
            tensor_parallel=tensor_parallel,
            expert_parallel=expert_parallel,
            weight_format=weight_format,
        )
        return found

    def __getstate__(self) -> dict[str, object]:
        """Pickle the tables; prices are worked out again."""
        return {name: value for name, value in self.__dict__.items() if name != "prices"}
