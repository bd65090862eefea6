"""Expert-parallel layers before 0.7.3."""

from __future__ import annotations

from ...bridges import communication
from ...bridges.rules import Convert
from ..model import Lines

_SAFE = Convert(
    via=communication.over_the_facades_alltoall,
    after=True,
    note="its comm.MoeAlltoAll becomes the facade's: ids out of range, and where the combine region is",
)

LINES: Lines = {
    "moe_ep.NVLinkOneSidedAlltoAll.__init__": _SAFE,
    "moe_ep.CakeAlltoAll.__init__": _SAFE,
}
