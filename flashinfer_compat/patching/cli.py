"""``flashinfer-compat run``, ``enable`` and ``disable``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import click

from ..errors import CompatError
from . import patch, startup


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--as", "as_release", metavar="VERSION", help="The release that the program was written against.")
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGUMENTS]...")
def run(as_release: str | None, module: str | None, arguments: tuple[str, ...]) -> None:
    """Run a program whose own FlashInfer imports get the contract."""
    if module is None and not arguments:
        raise click.UsageError("Name a SCRIPT, or a module with -m.")
    try:
        patch(as_release)
    except CompatError as error:
        raise click.ClickException(str(error)) from error
    if module is not None:
        sys.argv = [module, *arguments]
        sys.path.insert(0, "")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    script = Path(arguments[0])
    if not script.exists():
        raise click.UsageError(f"There is no {script}.")
    sys.argv = list(arguments)
    sys.path.insert(0, str(script.parent.resolve()))
    runpy.run_path(str(script), run_name="__main__")


@click.command()
def enable() -> None:
    """Patch every interpreter of this environment in which FLASHINFER_COMPAT_PATCH is set (to 1, or to a release)."""
    click.echo(f"{startup.enable()}: set {startup.VARIABLE}=1 to patch; undo with flashinfer-compat disable.")


@click.command()
def disable() -> None:
    """Undo `enable`."""
    path = startup.disable()
    click.echo(f"{path} removed." if path else "There was nothing to undo.")
