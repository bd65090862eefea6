"""Attention sinks: scales of query and key, which the sink kernel only knows as a part of its own softmax scale."""

from __future__ import annotations

from typing import Any


def folded(args: tuple[Any, ...], q_scale: Any, k_scale: Any) -> tuple[tuple[Any, ...], Any, Any]:
    """The arguments of ``run(q, kv, sinks, sm_scale, …)`` with the scales in `sm_scale` (0.7.4: attention/_core.py).

    Older releases put them into their own `sm_scale`, which the kernel does not read once one is given.
    """
    if len(args) < 2:
        return args, q_scale, k_scale
    sm_scale = args[1]
    for scale in (q_scale, k_scale):
        if scale is not None:
            sm_scale = sm_scale * scale
    return (args[0], sm_scale, *args[2:]), None, None


def left_out() -> bool:
    """Whether the installed release leaves the scales out of the sink kernel's."""
    import flashinfer.attention._core as core

    return not hasattr(core, "_fold_qk_scale")
