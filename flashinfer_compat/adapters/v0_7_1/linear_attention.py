"""Linear attention (gdn, kda, mamba) before 0.7.2."""

from __future__ import annotations

from ...bridges.rules import new, new_values
from ..model import Lines

LINES: Lines = {
    "gdn_decode.gated_delta_rule_mtp": new(
        "0.7.2",
        "gdn_decode.py",
        cache_replayssm=False,
        replayssm_rawv=None,
        replayssm_rawk=None,
        replayssm_g=None,
        replayssm_beta=None,
    ),
    "gdn_kernels.run_mtp_decode": new(
        "0.7.2",
        "gdn_kernels/gdn_decode_mtp.py",
        cache_replayssm=False,
        replayssm_rawv=None,
        replayssm_rawk=None,
        replayssm_g=None,
        replayssm_beta=None,
    ),
    "kda.recurrent_kda": new_values(
        "0.7.2",
        "kda.py",
        backend=(
            "cute-dsl-persistent",
            "tirx",
            "ptx",
        ),
    ),
    "mamba.SSDCombined.run": new("0.7.2", "mamba/ssd_combined.py", num_seqs=None),
    "mamba.ssd_combined_fwd": new("0.7.2", "mamba/ssd_combined.py", num_seqs=None),
}
