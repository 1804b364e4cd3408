"""Options: parameters of a command, or fields of a group, which is a dataclass that several commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from prefixroute.errors import ConfigError

T = TypeVar("T")
TRACE, HARDWARE, OUTPUT = "Trace", "Hardware", "Output"
"""Panels of the help."""
_OPTION = "option"


def option(default: Any, text: str, *names: str, panel: str | None = None, **how: Any) -> Any:
    """Return a field of a group, or a default of a parameter of a grouped command, that is an option.

    Args:
        default: of the option.
        text: of the help.
        names: of the option, where they are not those of the field or the parameter.
        panel: of the help.
        how: further arguments of :func:`typer.Option`.
    """
    return field(default=default, metadata={_OPTION: typer.Option(*names, help=text, rich_help_panel=panel, **how)})


def shared(text: str, *names: str, **how: Any) -> Callable[..., Any]:
    """Return an option that several commands have, each with its default, which is None unless given."""
    return lambda default=None: option(default, text, *names, **how)


def parser(read: Callable[..., T], **how: Any) -> Callable[[Any], T]:
    """Return a function that reads what was typed as typer wants it: what it refuses names the option."""

    def parse(text: Any) -> T:
        try:
            return read(text, **how)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with its options as typer wants them: those of its groups in the place of each group."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            known = get_type_hints(groups[name], include_extras=True)
            parameters += [_parameter(one.name, known[one.name], one) for one in fields(groups[name])]
        else:
            parameters.append(_parameter(name, hints[name], parameter.default))

    @wraps(command)
    def shown(**values: Any) -> None:
        made = {
            name: group(**{one.name: values.pop(one.name) for one in fields(group)}) for name, group in groups.items()
        }
        command(**values, **made)

    shown.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return shown


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    """Return a parameter as typer wants it, of a default that may be an option."""
    if isinstance(default, Field):
        kind, default = Annotated[kind, default.metadata[_OPTION]], default.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
