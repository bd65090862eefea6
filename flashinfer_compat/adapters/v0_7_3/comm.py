"""Communication before 0.7.4."""

from __future__ import annotations

from ...bridges.rules import AnswerNo, Ignore, new
from ..model import Lines

LINES: Lines = {
    "comm.PcieIpcAllReduceWorkspace.__init__": new("0.7.4", "comm/pcie_ipc_ar.py", ce_slow_hops=None),
    "comm.decide_ulysses_backend": new("0.7.4", "comm/ulysses_topology.py", allow_experimental_auto=False),
    "comm.pack_strided_memory": new("0.7.4", "comm/dlpack_utils.py", owner=None),
    "comm.probe_ulysses_rank_topology": Ignore(
        adds={"probe_pcie": True}, note="there is no PCIe backend to probe for before 0.7.4 (comm/ulysses_topology.py)"
    ),
    "comm.tp_moe_finalize_rmsnorm.init_tp_moe_finalize_rmsnorm": new(
        "0.7.4", "comm/tp_moe_finalize_rmsnorm.py", backend="auto"
    ),
    "comm.tp_moe_finalize_rmsnorm.supports_tp_moe_finalize_rmsnorm": AnswerNo(
        adds={"backend": "auto"}, note="a choice of backends is new in 0.7.4 (comm/tp_moe_finalize_rmsnorm.py)"
    ),
    "comm.tp_moe_finalize_rmsnorm.tp_moe_finalize_rmsnorm": new(
        "0.7.4", "comm/tp_moe_finalize_rmsnorm.py", backend="auto"
    ),
    "comm.ulysses.UlyssesCommunicator.__init__": new("0.7.4", "comm/ulysses.py", max_bytes=None, nvlink_kernel="auto"),
    "comm.ulysses.UlyssesCommunicator.gather_heads": new("0.7.4", "comm/ulysses.py", dtype=None),
    "comm.ulysses.UlyssesCommunicator.scatter_heads": new("0.7.4", "comm/ulysses.py", dtype=None),
}
