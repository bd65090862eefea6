"""The errors are part of the interface: what catches them, and what they say."""

from __future__ import annotations

import copy
import pickle

import pytest

import flashinfer_compat
from flashinfer_compat import errors

#: Each error and the built-in classes whose handlers catch it.
CAUGHT_BY: dict[str, tuple[type[BaseException], ...]] = {
    "CompatError": (Exception,),
    "UnsupportedRelease": (ImportError,),
    "FeatureUnavailable": (AttributeError,),
    "MissingImport": (ImportError,),
    "MissingModule": (ImportError, ModuleNotFoundError),
    "UnsupportedArgument": (TypeError,),
    "UnsupportedCombination": (ValueError, NotImplementedError, RuntimeError),
    "InvalidArgument": (ValueError,),
    "InvalidPlan": (ValueError,),
    "RoundError": (RuntimeError, AssertionError),
}
BUILT_IN = (
    *(AttributeError, ImportError, TypeError, ValueError, RuntimeError, AssertionError),
    *(NotImplementedError, KeyError, ModuleNotFoundError),
)


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_bases(name: str) -> None:
    error = getattr(errors, name)
    assert issubclass(error, errors.CompatError)
    assert {base for base in BUILT_IN if issubclass(error, base)} == set(CAUGHT_BY[name]) - {Exception}


def test_the_table_above_is_complete() -> None:
    classes = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert classes == {*CAUGHT_BY, "CompatWarning"}


def test_the_warning_is_none_of_the_errors() -> None:
    assert issubclass(errors.CompatWarning, UserWarning)
    assert not issubclass(errors.CompatWarning, errors.CompatError)


@pytest.mark.parametrize("name", sorted({*CAUGHT_BY, "CompatWarning"} - {"MissingImport", "MissingModule"}))
def test_exported_at_the_root(name: str) -> None:
    # MissingImport and MissingModule are what the import system raises; engines catch ImportError.
    assert getattr(flashinfer_compat, name) is getattr(errors, name)


@pytest.mark.parametrize("duplicate", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_errors_cross_processes(name: str, duplicate: object) -> None:
    error = getattr(errors, name)("prefill.f: what, since, installed, instead")
    assert callable(duplicate)
    copied = duplicate(error)
    assert type(copied) is type(error)
    assert str(copied) == str(error) == "prefill.f: what, since, installed, instead"


@pytest.mark.parametrize(
    ("since", "installed", "message"),
    [
        ("0.7.4", "0.7.1", "f(x=): FlashInfer 0.7.4 and later have it; installed is 0.7.1. Use g."),
        (None, "0.7.4", "f(x=): no supported FlashInfer has it; installed is 0.7.4. Use g."),
        ("0.7.2", None, "f(x=): FlashInfer 0.7.2 and later have it; installed is none. Use g."),
    ],
)
def test_message(since: str | None, installed: str | None, message: str) -> None:
    assert errors.explained("f(x=)", since=since, installed=installed, instead="Use g.") == message
