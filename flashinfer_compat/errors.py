"""What the facade raises. Every message says: what, which releases have it, which is installed, what to do."""

from __future__ import annotations


class CompatError(Exception):
    """Base of every error that flashinfer_compat raises itself."""


class UnsupportedRelease(CompatError, ImportError):
    """No FlashInfer that the facade supports is installed."""


class FeatureUnavailable(CompatError, AttributeError):
    """A name that the installed release does not have and that cannot be emulated.

    An ``AttributeError``, so that ``hasattr`` is False and ``from … import`` fails, as engines' guards expect.
    """


class MissingImport(CompatError, ImportError):
    """`FeatureUnavailable` as ``from … import`` reports it: the import system would drop the message of the former."""


class MissingModule(MissingImport, ModuleNotFoundError):
    """`MissingImport` of a whole module, or of a name that could be one."""


class UnsupportedArgument(CompatError, TypeError):
    """An argument that the installed release cannot honour."""


class InvalidArgument(CompatError, ValueError):
    """An argument that no release takes: its shape, dtype, device or range is wrong; nothing was launched."""


class UnsupportedCombination(CompatError, ValueError, NotImplementedError):
    """Arguments that no supported release computes together.

    Releases disagree whether this is a ``ValueError`` or a ``NotImplementedError``; either handler catches it.
    """


class InvalidPlan(CompatError, ValueError):
    """A plan that this wrapper cannot carry out; nothing was launched."""


class RoundError(CompatError, RuntimeError, AssertionError):
    """A dispatch or combine out of turn; nothing was launched.

    Releases disagree whether this is a ``RuntimeError`` or an ``AssertionError``; either handler catches it.
    """


class CompatWarning(UserWarning):
    """Something works, but not quite as on the newest release."""


def explained(what: str, *, since: str | None, installed: str | None, instead: str) -> str:
    """Put a message together: what, which releases have it, which is installed, what to do."""
    have = f"FlashInfer {since} and later have it" if since else "no supported FlashInfer has it"
    return f"{what}: {have}; installed is {installed or 'none'}. {instead}"
