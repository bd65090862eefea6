"""``flashinfer-compat run``, ``enable`` and ``disable``."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

import click

from ..errors import CompatError
from . import patch, program, startup


class _Run(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _ended(args))


def _ended(args: list[str]) -> list[str]:
    """`args` with a ``--`` behind ``-m MODULE``: what follows is the module's, as with ``python -m``."""
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] != "--":
        if args[at].startswith("-m"):
            end = at + (2 if args[at] == "-m" else 1)
            return [*args[:end], "--", *args[end:]]
        at += 2 if args[at] == "--as" else 1
    return args


@click.command(cls=_Run, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
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
    try:
        found = program.module(module) if module is not None else program.script(arguments[0])
        found.run(list(arguments if module is not None else arguments[1:]))
    except program.NoProgram as error:
        raise click.ClickException(str(error)) from error
    except SystemExit:
        raise
    except BaseException as error:
        # As of any program, and not in click's way.
        told = error.with_traceback(_of_the_program(error.__traceback__))
        sys.excepthook(type(told), told, told.__traceback__)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None


def _of_the_program(traceback: TracebackType | None) -> TracebackType | None:
    """`traceback` without what ran the program."""
    here = str(Path(__file__).parent)
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith((here, "<frozen importlib")):
        traceback = traceback.tb_next
    return traceback


@click.command()
def enable() -> None:
    """Patch every interpreter of this environment in which FLASHINFER_COMPAT_PATCH is set (to 1, or to a release)."""
    click.echo(f"{startup.enable()}: set {startup.VARIABLE}=1 to patch; undo with flashinfer-compat disable.")


@click.command()
def disable() -> None:
    """Undo `enable`."""
    path = startup.disable()
    click.echo(f"{path} removed." if path else "There was nothing to undo.")
