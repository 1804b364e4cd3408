"""Groups of options: dataclasses of which each field is an option, for all commands that have them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from prefixroute.errors import ConfigError

T = TypeVar("T")
TRACE, HARDWARE, OUTPUT = "Trace", "Hardware", "Output"
"""Panels of the help."""
_OPTION = "option"


def option(default: Any, text: str, *names: str, panel: str | None = None, **how: Any) -> Any:
    """Return a field of a group that is an option.

    Args:
        default: of the field.
        text: of the help.
        names: of the option, where they are not those of the field.
        panel: of the help.
        how: further arguments of :func:`typer.Option`.
    """
    return field(default=default, metadata={_OPTION: typer.Option(*names, help=text, rich_help_panel=panel, **how)})


def parser(read: Callable[..., T], **how: Any) -> Callable[[Any], T]:
    """Return a function that reads what was typed as typer wants it: what it refuses names the option."""

    def parse(text: Any) -> T:
        try:
            return read(text, **how)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are groups of options are replaced by these options, as typer wants them."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _options(groups[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY))

    @wraps(command)
    def shown(**values: Any) -> None:
        made = {
            name: group(**{one.name: values.pop(one.name) for one in fields(group)}) for name, group in groups.items()
        }
        command(**values, **made)

    shown.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return shown


def _options(group: Any) -> list[inspect.Parameter]:
    """Return the options of a group as parameters."""
    hints = get_type_hints(group, include_extras=True)
    found = []
    for one in fields(group):
        known = one.metadata.get(_OPTION)
        kind = hints[one.name] if known is None else Annotated[hints[one.name], known]
        found.append(inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=kind))
    return found
