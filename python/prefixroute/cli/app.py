"""The commands and how they hang together. Each command's work lives in a module of its own, imported when it runs."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from prefixroute.cli import advise, bench, compare, convert, fit, lint, plan, policies, replay, serve, simulate, trace
from prefixroute.errors import ConfigError
from prefixroute.validation import check_names


class Commands(TyperGroup):
    """The commands; a name that is none of them gets the list of those that are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; where there is none, print the help and say on stderr what is missing.

        Raises:
            ConfigError: no command was named.
        """
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise ConfigError(f"{ctx.command_path} needs a command: {', '.join(self.list_commands(ctx))}")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments begin with.

        Raises:
            ConfigError: there is none of this name.
        """
        if not args[0].startswith("-"):
            check_names(ctx.command_path, "command", args[:1], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command whose help shows flags as such, without a type that they do not take."""
        command: Any = super().get_command(ctx, cmd_name)
        return None if command is None else _with_plain_flags(command, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group, whose own flags are shown as such too."""
        _with_plain_flags(self, ctx)
        super().format_help(ctx, formatter)


def _with_plain_flags(command: Any, ctx: Any) -> Any:
    """Return a command whose help shows no type behind flags: they take none."""
    for option in (*command.params, command.get_help_option(ctx)):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return command


HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="prefixroute",
    cls=Commands,
    help="Which replica should a request go to, and what would each way of deciding cost on your traffic?",
    context_settings=HELP,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("simulate", epilog=simulate.EXAMPLE)(simulate.command)
app.command("compare", epilog=compare.EXAMPLE)(compare.command)
app.command("advise", epilog=advise.ADVISE_EXAMPLE)(advise.advise_command)
app.command("backtest", epilog=advise.BACKTEST_EXAMPLE)(advise.backtest_command)
app.command("size", epilog=advise.SIZE_EXAMPLE)(advise.size_command)
app.command("trace", epilog=trace.EXAMPLE)(trace.command)
app.command("convert", epilog=convert.EXAMPLE)(convert.command)
app.command("lint", epilog=lint.EXAMPLE)(lint.command)
app.add_typer(plan.app, name="plan", cls=Commands)
app.command("serve", epilog=serve.EXAMPLE)(serve.command)
app.command("replay", epilog=replay.EXAMPLE)(replay.command)
app.command("fit", epilog=fit.EXAMPLE)(fit.command)
app.command("bench", epilog=bench.EXAMPLE)(bench.command)
app.command("policies", epilog=policies.EXAMPLE)(policies.command)


@app.callback(invoke_without_command=True)
def root(
    *,
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    """Print the version if asked; the commands do the rest."""
    if version:
        from prefixroute import __version__

        typer.echo(__version__)
        raise typer.Exit
