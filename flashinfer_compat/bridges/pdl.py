"""Programmatic dependent launch: a hint that costs nothing but time where it is left out."""

from __future__ import annotations


def without() -> bool:
    return False
