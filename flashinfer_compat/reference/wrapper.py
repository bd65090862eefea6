"""What the attention wrappers do alike: made, planned, and asked for what they hold."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch

from ..errors import CompatWarning, InvalidArgument, InvalidPlan
from .batch import Masks, Plan, check_backend, kind_of
from .checks import Lacking, check_layout, check_not_captured, check_tensor, refuse


def graph_buffers(**buffers: torch.Tensor | None) -> list[torch.Tensor]:
    """The buffers that a CUDA-graph wrapper cannot do without; `InvalidPlan` where one is missing."""
    for name, buffer in buffers.items():
        if not isinstance(buffer, torch.Tensor):
            raise InvalidPlan(f"{name} must be a tensor where use_cuda_graph=True; it is {buffer!r}")
    return [buffer for buffer in buffers.values() if buffer is not None]


class AttentionWrapper(Lacking):
    """What both wrappers do alike."""

    _plan: Plan | None = None
    _max_total_num_rows: int | None = None

    def _made(
        self, workspace: torch.Tensor, kv_layout: str, use_cuda_graph: bool, backend: str, **lacking: Any
    ) -> None:
        check_layout(kv_layout)
        check_backend(backend)
        refuse(type(self).__name__, **lacking)
        self._kv_layout, self._use_cuda_graph = kv_layout, use_cuda_graph
        self._float_workspace_buffer = self._int_workspace_buffer = workspace
        self.device = workspace.device
        self._requested_backend = self._backend = backend
        self._plan_info: Any = None
        self._masks = Masks()

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: torch.Tensor) -> None:
        """Other buffers; the reference reads of them only where they lie."""
        self._float_workspace_buffer, self._int_workspace_buffer = float_workspace_buffer, int_workspace_buffer
        self.device = float_workspace_buffer.device

    def end_forward(self) -> None:
        """Nothing to release."""

    def _accept(
        self,
        plan: Plan,
        masks: Masks,
        buffers: dict[str, tuple[torch.Tensor, torch.Tensor]],
        uniform_q_len: int | None,
    ) -> None:
        """Take the plan: copied into the buffers of a CUDA-graph wrapper, which fit it, or kept as given."""
        if self._use_cuda_graph:
            self._check_fits(plan)
            if not plan.is_described_by(uniform_q_len):
                warnings.warn(
                    f"uniform_q_len={uniform_q_len} does not describe this batch; planning without it",
                    CompatWarning,
                    stacklevel=3,
                )
            for name, (held, given) in buffers.items():
                if given.numel() > held.numel():
                    raise InvalidPlan(f"{name} has {given.numel()} entries; its buffer has {held.numel()}")
            masks = masks.copy_into(self._custom_mask_buf, self._mask_indptr_buf)
            for held, given in buffers.values():
                held[: given.numel()].copy_(given)
            self._max_total_num_rows = self._max_total_num_rows or plan.rows
        self._masks = masks
        self._plan, self._plan_info = plan, plan
        self._num_qo_heads, self._num_kv_heads = plan.num_qo_heads, plan.num_kv_heads
        self._qo_indptr_last, self._batch_size = plan.rows, len(plan.q_lens)
        self._causal, self._window_left = plan.kind.causal, plan.kind.window_left

    def _check_fits(self, plan: Plan) -> None:
        if len(plan.q_lens) != self._fixed_batch_size:
            raise InvalidPlan(
                f"{len(plan.q_lens)} requests; this CUDA-graph wrapper was made for {self._fixed_batch_size}"
            )
        if self._max_total_num_rows is not None and plan.rows > self._max_total_num_rows:
            raise InvalidPlan(
                f"{plan.rows} query rows exceed the {self._max_total_num_rows} of this CUDA-graph wrapper"
            )

    def _change_kind(self, **kind: Any) -> None:
        """What the deprecated ``forward`` does to the plan."""
        if self._plan is not None:
            self._plan = replace(self._plan, kind=kind_of(**kind))

    def _planned(self, q: torch.Tensor) -> Plan:
        if self._plan is None:
            raise InvalidPlan(f"{type(self).__name__}.run() was called before plan()")
        check_not_captured(q)
        if q.size(0) != self._plan.rows:
            raise InvalidArgument(f"q has {q.size(0)} rows; plan() was told {self._plan.rows}")
        return self._plan


def token_head_scales(kv_cache_sf: Any, pools: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``run(kv_cache_sf=)`` takes for ``plan(use_token_head_sf=True)``: float32, shaped as keys and values."""
    if not isinstance(kv_cache_sf, (tuple, list)) or len(kv_cache_sf) != 2:
        raise InvalidArgument("use_token_head_sf takes kv_cache_sf=(scales of keys, scales of values)")
    for name, scale, pool in zip(("keys", "values"), kv_cache_sf, pools, strict=True):
        check_tensor(f"kv_cache_sf of the {name}", scale, pool.shape[:-1], torch.float32, pool.device)
    return kv_cache_sf[0], kv_cache_sf[1]
