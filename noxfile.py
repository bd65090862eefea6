"""The sessions of tox.ini, for those who prefer nox."""

from __future__ import annotations

import nox

RELEASES = {"fi071": "0.7.1", "fi072": "0.7.2", "fi072post1": "0.7.2.post1", "fi073": "0.7.3", "fi074": "0.7.4"}
#: The CPU machine's torch; a plain "torch" would bring gigabytes of CUDA.
TORCH = "torch==2.13.0"

nox.options.sessions = ["lint", "docs", "nofi", "fi071", "fi072", "fi072post1", "fi074"]


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    session.install("ruff", "mypy", "packaging", "click")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, with the page that is made from the tables."""
    session.install(TORCH, ".[docs]")
    session.run("mkdocs", "build", "--strict", "--site-dir", f"{session.create_tmp()}/site")


@nox.session
def nofi(session: nox.Session) -> None:
    """The suite without FlashInfer."""
    session.install(".[test]")
    session.run("pytest", "-n", "auto", *session.posargs)


def on_release(session: nox.Session) -> None:
    """The suite on one FlashInfer release."""
    session.install(TORCH, f"flashinfer-python=={RELEASES[session.name]}", ".[test]")
    session.run("pytest", "-n", "auto", *session.posargs)
    if session.name == "fi074":
        session.run("python", "tests/presented_as.py", "0.7.3", "-m", "pytest", "-n", "auto", *session.posargs)
        session.run("python", "-m", "benchmarks", "--gate")


for name in RELEASES:
    nox.session(name=name)(on_release)
