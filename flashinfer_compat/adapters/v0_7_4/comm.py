"""Communication."""

from __future__ import annotations

from ...bridges.names import Gone, Moved
from ..model import Lines

_REEXPORT = "the re-export is gone from comm in 0.7.4"

_ONE_SIDED = Gone(
    had="0.7.1 to 0.7.2.post1",
    instead="Use moe_ep.create_communication with NVLinkOneSidedConfig, on 0.7.2 and later.",
    note="removed in 0.7.3 in favour of moe_ep",
)

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
    "comm.trtllm_moe_alltoall.MoeAlltoAll": _ONE_SIDED,
    "comm.trtllm_moe_alltoall.moe_a2a_combine": _ONE_SIDED,
    "comm.trtllm_moe_alltoall.moe_a2a_dispatch": _ONE_SIDED,
    "comm.trtllm_moe_alltoall.moe_a2a_get_workspace_size_per_rank": _ONE_SIDED,
    "comm.trtllm_moe_alltoall.moe_a2a_initialize": _ONE_SIDED,
    "comm.trtllm_moe_alltoall.moe_a2a_sanitize_expert_ids": _ONE_SIDED,
    "comm.trtllm_moe_alltoall.moe_a2a_wrap_payload_tensor_in_workspace": _ONE_SIDED,
    "comm.moe_a2a_active_rank_mask": _ONE_SIDED,
    "comm.trtllm_alltoall.MnnvlMoe": Gone(
        had="0.7.1 to 0.7.2.post1",
        instead="Use moe_ep.create_communication with NVLinkTwoSidedConfig.",
        note="the two-sided all-to-all is in moe_ep from 0.7.3 on",
    ),
}
