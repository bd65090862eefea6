"""``flashinfer-compat``: record a release's surface, compare two."""

from __future__ import annotations

from pathlib import Path

import click

from .audit.cli import audit, pin
from .doctor import cli as installation
from .errors import CompatError
from .patching import cli as patching
from .selftest.cli import selftest
from .surfaces import names, recorder, report, store
from .surfaces.breakages import Severity
from .surfaces.diff import diff as compared
from .surfaces.model import Surface


class _Group(click.Group):
    """Our own errors end the command with their message, without a traceback; those of a program that is run do not."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CompatError as error:
            if ctx.invoked_subcommand == patching.run.name:
                raise
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group)
@click.version_option(package_name="flashinfer-compat")
def main() -> None:
    """What FlashInfer's releases have, and what changed between them."""


for command in (patching.run, patching.enable, patching.disable):
    main.add_command(command)
main.add_command(audit)
main.add_command(pin)
main.add_command(installation.doctor)
main.add_command(installation.explain)
main.add_command(installation.report)
main.add_command(selftest)


@main.command()
@click.argument("release", metavar="VERSION|WHEEL")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The file to write, RELEASE.jsonl.xz by default.")
@click.option("--base", help="Store only what differs from this recorded release.")
def record(release: str, output: Path | None, base: str | None) -> None:
    """Read a wheel's surface. The wheel is never imported or run; a VERSION is fetched with pip."""
    surface = recorder.record_release(release)
    data = store.write(surface, store.open_surface(base) if base else None)
    path = output or Path(store.file_name(surface.version))
    path.write_bytes(data)
    click.echo(f"{path}: FlashInfer {surface.version}, {len(surface.modules)} modules, {len(data):,} bytes")


@main.command()
@click.argument("old")
@click.argument("new")
@click.option("--public", is_flag=True, help="Only FlashInfer's public names.")
@click.option(
    "--used-by",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="Only names that the source below this path uses.",
)
@click.option("--symbol", multiple=True, help="Only this name: norm.rmsnorm, prefill.Wrapper.plan, file.cu:function.")
@click.option("--severity", type=click.Choice([str(one) for one in Severity]), help="Only this effect or a worse one.")
@click.option("--format", "style", type=click.Choice(["text", "json", "markdown"]), default="text")
def diff(
    old: str,
    new: str,
    public: bool,
    used_by: tuple[Path, ...],
    symbol: tuple[str, ...],
    severity: str | None,
    style: str,
) -> None:
    """What changed from OLD to NEW: recorded releases, or wheels or recorded files."""
    before, after = opened(old), opened(new)
    chosen: list[str] = []
    if public:
        chosen += [*names.public_names(before), *names.public_names(after)]
    if used_by:
        chosen += names.known_in(names.used_names(used_by), (before, after))
        chosen += names.used_templates(used_by, before)
    chosen = [*symbol, *names.distinct(chosen, before, after)]
    found = compared(before, after, chosen if public or used_by or symbol else None)
    least = next((one for one in Severity if str(one) == severity), Severity.NONE)
    found = [one for one in found if one.severity >= least]
    if style == "json":
        click.echo(report.as_json(before.version, after.version, found))
    elif style == "markdown":
        click.echo(report.as_markdown(before.version, after.version, found), nl=False)
    else:
        report.print_tables(before.version, after.version, found)


def opened(release: str) -> Surface:
    """The surface of a recorded release, of a recorded file or of a wheel."""
    path = Path(release)
    if path.suffix == ".whl":
        return recorder.record(path)
    if path.suffix == ".xz":
        return store.read(path.read_bytes())
    return store.open_surface(release)
