"""Communication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...bridges import moe_alltoall, two_sided
from ...bridges.names import Exported, Gone, Moved, Retired
from ...bridges.rules import Check, Convert
from ..model import Lines

_REEXPORT = "the re-export is gone from comm in 0.7.4"

_MODULE = "comm.trtllm_moe_alltoall"
_TWO_SIDED = "comm.trtllm_alltoall"
_GONE = Gone(
    had="0.7.1 to 0.7.2.post1",
    instead="Use comm.MoeAlltoAll, or moe_ep.create_communication with NVLinkOneSidedConfig.",
    note="the kernels from 0.7.3 on need the layout that the class keeps (csrc/nvlink_one_sided_alltoall.cu)",
)


def _one_sided(factory: Callable[[], Any]) -> Retired:
    return Retired(
        factory=factory,
        instead="moe_ep.create_communication",
        note="over the functions of moe_ep's compiled module (moe_ep/backends/split/comm/nvlink_one_sided/kernels.py)",
    )


def _exported(name: str) -> Exported:
    return Exported(
        of=f"{_MODULE}.{name}", instead="moe_ep.create_communication", note="comm exports it up to 0.7.2.post1"
    )


def _two_sided(factory: Callable[[], Any]) -> Retired:
    return Retired(
        factory=factory,
        instead="moe_ep.create_communication",
        note="over the kernels of moe_ep's two-sided class (moe_ep/backends/split/comm/nvlink_two_sided)",
    )


_RULES = "rounds keep the rules of moe_ep on every release, checked before any launch"
_OUT_OF_TURN = ("a round out of turn",)

LINES: Lines = {
    "comm.gen_pcie_ipc_comm_module": Moved(
        to="jit.comm:gen_pcie_ipc_comm_module", instead="flashinfer.jit.comm.gen_pcie_ipc_comm_module", note=_REEXPORT
    ),
    "comm.gen_trtllm_comm_module": Moved(
        to="jit.comm:gen_trtllm_comm_module", instead="flashinfer.jit.comm.gen_trtllm_comm_module", note=_REEXPORT
    ),
    "comm.gen_ulysses_a2a_module": Moved(
        to="jit.comm:gen_ulysses_a2a_module", instead="flashinfer.jit.comm.gen_ulysses_a2a_module", note=_REEXPORT
    ),
    "comm.gen_vllm_comm_module": Moved(
        to="jit.comm:gen_vllm_comm_module", instead="flashinfer.jit.comm.gen_vllm_comm_module", note=_REEXPORT
    ),
    "comm.get_pcie_ipc_comm_module": Moved(
        to="comm.pcie_ipc_ar:get_pcie_ipc_comm_module",
        instead="flashinfer.comm.pcie_ipc_ar.get_pcie_ipc_comm_module",
        note=_REEXPORT,
    ),
    "comm.get_ulysses_a2a_module": Moved(
        to="comm.ulysses:get_ulysses_a2a_module",
        instead="flashinfer.comm.ulysses.get_ulysses_a2a_module",
        note=_REEXPORT,
    ),
    f"{_MODULE}.MoeAlltoAll": _one_sided(lambda: moe_alltoall.MoeAlltoAll),
    f"{_MODULE}.MoeAlltoAll.dispatch": (
        Check(via=moe_alltoall.check_dispatch, about=_OUT_OF_TURN, note=_RULES),
        Convert(via=moe_alltoall.dispatched, after=True, note=_RULES),
    ),
    f"{_MODULE}.MoeAlltoAll.get_combine_payload_tensor_in_workspace": Check(
        via=moe_alltoall.check_buffer, about=_OUT_OF_TURN, note=_RULES
    ),
    f"{_MODULE}.MoeAlltoAll.combine": (
        Check(via=moe_alltoall.check_combine, about=_OUT_OF_TURN, note=_RULES),
        Convert(via=moe_alltoall.combined, after=True, note=_RULES),
    ),
    f"{_MODULE}.MoeAlltoAll.checkpoint_prepare": Check(
        via=moe_alltoall.check_checkpoint, about=_OUT_OF_TURN, note=_RULES
    ),
    f"{_MODULE}.moe_a2a_active_rank_mask": _one_sided(lambda: moe_alltoall.active_rank_mask),
    f"{_MODULE}.moe_a2a_get_workspace_size_per_rank": _one_sided(lambda: moe_alltoall.get_workspace_size_per_rank),
    f"{_MODULE}.moe_a2a_wrap_payload_tensor_in_workspace": _one_sided(
        lambda: moe_alltoall.wrap_payload_tensor_in_workspace
    ),
    f"{_MODULE}.moe_a2a_combine": _GONE,
    f"{_MODULE}.moe_a2a_dispatch": _GONE,
    f"{_MODULE}.moe_a2a_initialize": _GONE,
    f"{_MODULE}.moe_a2a_sanitize_expert_ids": _GONE,
    "comm.MoeAlltoAll": _exported("MoeAlltoAll"),
    "comm.moe_a2a_active_rank_mask": _exported("moe_a2a_active_rank_mask"),
    "comm.moe_a2a_get_workspace_size_per_rank": _exported("moe_a2a_get_workspace_size_per_rank"),
    "comm.moe_a2a_wrap_payload_tensor_in_workspace": _exported("moe_a2a_wrap_payload_tensor_in_workspace"),
    f"{_TWO_SIDED}.MnnvlMoe": _two_sided(lambda: two_sided.MnnvlMoe),
    f"{_TWO_SIDED}.MoEAlltoallInfo": _two_sided(lambda: two_sided.MoEAlltoallInfo),
    f"{_TWO_SIDED}.get_moe_commworkspace_size_per_rank": _two_sided(
        lambda: two_sided.get_moe_commworkspace_size_per_rank
    ),
    f"{_TWO_SIDED}.get_moe_prepare_workspace_size_per_rank": _two_sided(
        lambda: two_sided.get_moe_prepare_workspace_size_per_rank
    ),
    f"{_TWO_SIDED}.set_moe_max_usable_sm_count": _two_sided(lambda: two_sided.set_moe_max_usable_sm_count),
}
