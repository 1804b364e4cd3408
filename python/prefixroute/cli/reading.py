"""How a trace is read, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from prefixroute.cli import arguments, console
from prefixroute.cli.groups import TRACE, option, parser
from prefixroute.errors import ConfigError
from prefixroute.sim.grid import Source
from prefixroute.sim.progress import Progress, Work
from prefixroute.validation import did_you_mean
from prefixroute.workload import GENERATORS, FieldMap, LogFile, Options, Spec, Workload, keep, log_files, read_trace
from prefixroute.workload.readers.lines import LINE_BYTES

_option = partial(option, panel=TRACE)
_moment = parser(arguments.moment)


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How to read a trace."""

    form: str | None = _option(None, "Format of the trace.", "--format", show_default="recognised")
    fields: Path | None = _option(
        None, "A field map: where rows of a gateway log have time, prompt and the rest.", metavar="FILE.toml"
    )
    block_size: int | None = _option(None, "Tokens a block.", min=1, show_default="of the format")
    skip_bad: int = _option(
        0, "Leave out up to N lines that cannot be read; they are counted and the first named.", metavar="N", min=0
    )
    line_limit: int = _option(LINE_BYTES, "Longest line that is read.", metavar="BYTES", min=1)
    since: float | None = _option(
        None, "Leave out requests before: ISO 8601, or a number on the log's own clock.", parser=_moment, metavar="TIME"
    )
    until: float | None = _option(None, "Leave out requests from then on.", parser=_moment, metavar="TIME")
    where: list[str] | None = _option(
        None,
        "Only requests with this model, tenant, session, or any field of a gateway log (a path of names joined by "
        "dots).",
        metavar="KEY=VALUE",
    )

    def source(
        self,
        names: list[str] | str,
        told: Progress | None = None,
        *,
        stream: bool = False,
        files: list[LogFile] | None = None,
    ) -> Source:
        """Return the workload of these names: a generator as a function of the seed, or a trace, which is read now.

        Args:
            names: a generator, or the files of a trace; the last with settings.
            told: shown how far a trace is read.
            stream: do not keep a trace's requests: they are read once only.
            files: those of a trace, where they were looked up before: a pipe can be read only once.
        """
        *others, last = [names] if isinstance(names, str) else names
        spec = Spec.parse(last)
        if spec.is_made and not others:
            if self != type(self)():
                raise ConfigError(
                    f"--format, --fields and the options beside them speak of a trace, {last!r} is made up"
                )
            return spec
        files = files or self.files([*others, spec.name])
        progress = None if told is None else lambda share: told(share, f"reading {files[0].name}")
        workload = spec.change(read_trace(files, spec.options(self.options), check=False, progress=progress))
        name_bad_lines(workload)
        return workload if stream else keep(workload)

    @staticmethod
    def files(names: list[str]) -> list[LogFile]:
        """Return the files of a log that names, patterns and ``-`` stand for.

        Raises:
            ConfigError: one is a folder or is not there, or is a generator.
        """
        for name in names:
            if name.partition(",")[0] in GENERATORS:
                others = ", ".join(repr(other) for other in names if other != name)
                raise ConfigError(
                    f"{name!r} is made up and stands alone, got {others} beside it: is that the value of an option "
                    "that takes none?"
                )
        files = log_files(names)
        for file in files:
            if file.path.is_dir():
                raise ConfigError(f"a workload is a trace, {file.label!r} is a folder: name a file in it")
            if not file.path.is_file():
                known = f"{', '.join(GENERATORS)} or the path of a trace"
                near = did_you_mean(file.label.partition(",")[0], GENERATORS)
                raise ConfigError(f"a workload is {known}; there is no file {file.label!r}{near}")
        return files

    @property
    def options(self) -> Options:
        """What the user says of the file; reads the field map."""
        return Options(
            format=self.form,
            fields=None if self.fields is None else FieldMap.read(self.fields),
            block_size=self.block_size,
            skip_bad=self.skip_bad,
            line_bytes=self.line_limit,
            since=self.since,
            until=self.until,
            where=tuple(arguments.pair(text, "--where") for text in self.where or ()),
        )


def parts(names: list[str] | str, told: Progress | None) -> tuple[Progress | None, Progress | None]:
    """Return what shows the progress of reading the workload that ``names`` name, and of the runs after it, in one bar.

    Reading is taken to be a fiftieth of the work: rather too little, so that the time left falls faster than it says.
    """
    if Spec.parse(names if isinstance(names, str) else names[-1]).is_made:
        return None, told
    work = Work(told, 50.0)
    return work.part(1.0), work.part(49.0)


@dataclass(frozen=True, slots=True)
class LogOptions(TraceOptions):
    """How to read a trace, for commands that know no model but the log's."""

    only_model: str | None = _option(
        None, "Only requests for this model; it prices nothing.", "--model", metavar="NAME"
    )

    @property
    def options(self) -> Options:
        """What the user says of the file; reads the field map."""
        said = super(LogOptions, self).options
        return said if self.only_model is None else replace(said, where=(*said.where, ("model", self.only_model)))


def name_bad_lines(workload: Workload) -> None:
    """Say on stderr which bad lines a trace is without."""
    if workload.skipped is not None:
        console.note(f"{workload.name}: {workload.skipped}")
