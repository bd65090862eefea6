"""Communication."""

from __future__ import annotations

from ...bridges.names import Moved
from ..model import Lines

_REEXPORT = "the re-export is gone from comm in 0.7.4"

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
}
