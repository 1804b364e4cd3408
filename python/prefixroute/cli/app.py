"""The commands and how they hang together. Each command's work lives in a module of its own, imported when it runs."""

from __future__ import annotations

import typer

from prefixroute.cli import advise, bench, compare, convert, policies, simulate, trace

app = typer.Typer(
    name="prefixroute",
    help="Which replica should a request go to, and what would each way of deciding cost on your traffic?",
    no_args_is_help=True,
    add_completion=False,
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
