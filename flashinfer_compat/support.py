"""The four outcomes of a feature, and the absence of a native object."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Support(str, Enum):
    """What the installed release makes of a feature; there is no fifth outcome."""

    NATIVE = "native"
    EMULATED = "emulated"
    IGNORED = "ignored"
    UNAVAILABLE = "unavailable"

    def __str__(self) -> str:
        return self.value


class _Missing:
    """The absence of a native object (None could be one)."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()
