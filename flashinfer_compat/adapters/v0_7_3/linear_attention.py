"""Linear attention (gdn, kda, mamba) before 0.7.4."""

from __future__ import annotations

from ...bridges.rules import Ignore, new, new_values
from ..model import Lines

LINES: Lines = {
    "cudnn.linear_attention.cudnn_chunk_gated_delta_product": new(
        "0.7.4", "cudnn/linear_attention.py", state_indices=None
    ),
    "cudnn.linear_attention.cudnn_chunk_gated_delta_rule": new(
        "0.7.4",
        "cudnn/linear_attention.py",
        state_indices=None,
        gate_domain="linear",
        use_gate_in_kernel=False,
        A_log=None,
        dt_bias=None,
        beta_is_logit=False,
    ),
    "cudnn.linear_attention.cudnn_chunk_gated_delta_rule2": new(
        "0.7.4", "cudnn/linear_attention.py", state_indices=None
    ),
    "cudnn.linear_attention.cudnn_recurrent_kda": new("0.7.4", "cudnn/linear_attention.py", state_indices=None),
    "chunk_gated_delta_product": (
        new("0.7.4", "gdp_prefill.py", state_indices=None),
        Ignore(adds={"cu_seqlens_cpu": None}, note="a copy on the host saves 0.7.4 a synchronisation"),
        new_values("0.7.4", "gdp_prefill.py", backend=("cake",)),
    ),
    "chunk_gated_delta_rule2": new("0.7.4", "gdn2_prefill.py", state_indices=None),
    "gdn_kernels.chunk_gated_delta_rule_sm100": new(
        "0.7.4",
        "gdn_kernels/blackwell/gdn_prefill.py",
        output_state_indices=None,
        checkpoint_state_indices=None,
        prefix_lens=None,
    ),
    "gdn_kernels.chunk_gated_delta_rule_sm120": new(
        "0.7.4",
        "gdn_kernels/delta_rule_dsl/delta_rule_sm120.py",
        output_state_indices=None,
        checkpoint_state_indices=None,
        prefix_lens=None,
    ),
    "gdn_kernels.chunk_gated_delta_rule_sm90": new(
        "0.7.4",
        "gdn_kernels/delta_rule_dsl/delta_rule_sm90.py",
        output_state_indices=None,
        checkpoint_state_indices=None,
        prefix_lens=None,
    ),
    "gdn_kernels.gated_delta_rule_mtp_ucache_flush": new(
        "0.7.4",
        "gdn_kernels/gdn_decode_bf16_wy_ucache_flush.py",
        backend="auto",
        stochastic_rounding=None,
        rand_seed=None,
        philox_rounds=10,
    ),
    "gdn_prefill.chunk_gated_delta_rule": (
        new(
            "0.7.4",
            "gdn_prefill.py",
            gate_domain="linear",
            use_gate_in_kernel=False,
            A_log=None,
            dt_bias=None,
            beta_is_logit=False,
            output_state_indices=None,
            checkpoint_state_indices=None,
            prefix_lens=None,
        ),
        Ignore(adds={"cu_seqlens_cpu": None}, note="a copy on the host saves 0.7.4 a synchronisation"),
        new_values("0.7.4", "gdn_prefill.py", backend=("sm120_cute",)),
    ),
    "mamba.SSDCombined.run": new("0.7.4", "mamba/ssd_combined.py", cu_seqlens=None),
    "mamba.ssd_combined_fwd": new("0.7.4", "mamba/ssd_combined.py", cu_seqlens=None),
}
