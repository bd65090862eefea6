"""What FlashInfer's metadata requires beside itself."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from .model import Finding, Machine, ok, problem


def floors(machine: Machine) -> Iterator[Finding]:
    """Every unconditional requirement of the installed FlashInfer is there, in a version that it allows."""
    distributions = machine.distributions.get("flashinfer-python") or machine.distributions.get("flashinfer") or []
    for distribution in distributions[:1]:
        failed = False
        for line in distribution.requires or ():
            for finding in _unmet(machine, line, f"FlashInfer {distribution.version}"):
                failed = True
                yield finding
        if not failed:
            yield ok(f"{len(distribution.requires or ())} requirements of FlashInfer {distribution.version}")


def _unmet(machine: Machine, line: str, who: str) -> Iterator[Finding]:
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return
    environment = {"extra": "", "python_full_version": machine.python}
    if requirement.marker is not None and not requirement.marker.evaluate(environment):
        return
    installed = machine.version(canonicalize_name(requirement.name))
    wanted = f"{requirement.name}{requirement.specifier}"
    if installed is None:
        yield problem(f"{requirement.name} is not installed; {who} requires {wanted}", f'pip install "{wanted}"')
        return
    try:
        # A pre-release that was installed on purpose counts: the floors themselves name some (4.6.2a0).
        fits = requirement.specifier.contains(installed, prereleases=True)
    except InvalidVersion:
        fits = False
    if not fits:
        yield problem(f"{requirement.name} {installed}; {who} requires {wanted}", f'pip install "{wanted}"')
