"""Expert-parallel layers."""

from __future__ import annotations

from ...bridges import communication, expert_parallel
from ...bridges.classes import Extended
from ...bridges.rules import Check, Convert, KeywordOnly, Renamed
from ..model import Lines

_ROUND_SIZE = Renamed(
    parameter="runtime_max_tokens_per_rank", was="max_tokens_per_rank", note="renamed in 0.7.3 (moe_ep/core/comm)"
)
_RULES = "rounds keep the rules of 0.7.4 on every release, checked before any launch (moe_ep/core/comm)"
_LACKING = Extended(mixin=communication.lacking, note="is_workload_feasible, which engines call, is gone from 0.7.4")
_LACKING_ONE_SIDED = Extended(
    mixin=communication.lacking_one_sided,
    note="that, and before 0.7.3 active_rank_mask and the checkpoints of comm.MoeAlltoAll (moe_ep/core/comm)",
)
_OPENED = Convert(via=communication.dispatched, after=True, note=_RULES)
_ONE_SIDED = (
    _ROUND_SIZE,
    Check(via=communication.check_one_sided_dispatch, about=("a round out of turn",), note=_RULES),
    _OPENED,
)
_CLOSED = Convert(via=communication.combined, after=True, note=_RULES)
_ONE_SIDED_COMBINE = (
    Check(via=communication.check_one_sided_combine, about=("a round out of turn",), note=_RULES),
    _CLOSED,
)
_BUFFER = Check(via=communication.check_buffer, note=_RULES)
_CHECKPOINT = Check(via=communication.check_checkpoint, about=("a checkpoint inside a round",), note=_RULES)
_DESTROY = Check(via=communication.check_destroy, note=_RULES)

LINES: Lines = {
    "moe_ep.create_communication": Convert(
        via=expert_parallel.of_the_facade,
        takes=("result",),
        gives=("result",),
        after=True,
        note="what it makes is of the facade's classes, whose dispatch takes both names",
    ),
    "moe_ep.NVLinkOneSidedAlltoAll": _LACKING_ONE_SIDED,
    "moe_ep.NVLinkOneSidedAlltoAll.dispatch": _ONE_SIDED,
    "moe_ep.NVLinkOneSidedAlltoAll.combine": _ONE_SIDED_COMBINE,
    "moe_ep.NVLinkOneSidedAlltoAll.get_combine_input_buffer": _BUFFER,
    "moe_ep.NVLinkOneSidedAlltoAll.checkpoint_prepare": _CHECKPOINT,
    "moe_ep.NVLinkOneSidedAlltoAll.destroy": _DESTROY,
    "moe_ep.NVLinkTwoSidedAlltoAll": _LACKING,
    "moe_ep.NVLinkTwoSidedAlltoAll.dispatch": (
        _ROUND_SIZE,
        Check(via=communication.check_dispatch, about=("a round out of turn",), note=_RULES),
        _OPENED,
    ),
    "moe_ep.NVLinkTwoSidedAlltoAll.combine": (
        Check(via=communication.check_combine, about=("a round out of turn",), note=_RULES),
        _CLOSED,
    ),
    "moe_ep.NVLinkTwoSidedAlltoAll.destroy": _DESTROY,
    "moe_ep.CakeAlltoAll": _LACKING_ONE_SIDED,
    "moe_ep.CakeAlltoAll.dispatch": _ONE_SIDED,
    "moe_ep.CakeAlltoAll.combine": _ONE_SIDED_COMBINE,
    "moe_ep.CakeAlltoAll.get_combine_input_buffer": _BUFFER,
    "moe_ep.CakeAlltoAll.checkpoint_prepare": _CHECKPOINT,
    "moe_ep.CakeAlltoAll.destroy": _DESTROY,
    "moe_ep.MoEEpTensors.__init__": KeywordOnly(
        parameters=(
            "fc1_activation_per_token_scale",
            "recv_count",
            "num_tokens_per_expert",
            "output",
            "runtime_max_tokens_per_rank",
        ),
        note="0.7.4 puts fc1_activation_per_token_scale in front of recv_count: by keyword only",
    ),
}
