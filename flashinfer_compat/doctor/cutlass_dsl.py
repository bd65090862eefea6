"""``nvidia-cutlass-dsl`` comes as several distributions that overwrite and load each other's files."""

from __future__ import annotations

from collections.abc import Iterator

from .model import Finding, Machine, ok, problem

NAME = "nvidia-cutlass-dsl"


def one_version(machine: Machine) -> Iterator[Finding]:
    """All installed parts of it have one version."""
    parts = {
        name: machine.version(name) or ""
        for name in sorted(machine.distributions)
        if name == NAME or name.startswith(f"{NAME}-libs-")
    }
    if not parts:
        return
    if len(set(parts.values())) > 1:
        version = parts.get(NAME) or max(parts.values())
        extra = "[cu13]" if f"{NAME}-libs-cu13" in parts else ""
        yield problem(
            "split set: " + ", ".join(f"{name} {version}" for name, version in parts.items()),
            f'pip uninstall -y {" ".join(parts)} && pip install "{NAME}{extra}=={version}"',
        )
    else:
        yield ok(f"{NAME} {next(iter(parts.values()))}, {len(parts)} part{'s' if len(parts) > 1 else ''}")
