"""comm.MoeAlltoAll on the installed release, as engines written for 0.7.1 use it: what reaches the compiled module.

The seams are the getter of the compiled module, which records, and the symmetric memory, which needs a driver.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import flashinfer_compat.comm as comm
import pytest
import torch

from flashinfer_compat import FeatureUnavailable, InvalidArgument, RoundError, UnsupportedArgument
from flashinfer_compat.bridges import moe_alltoall
from flashinfer_compat.bridges.expert_parallel import Rounds

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NEWEST = ("0.7.3", "0.7.4")
RANKS, RANK, TOKENS, TOP_K, EXPERTS, HIDDEN = 2, 1, 8, 2, 4, 32
MAPPING = SimpleNamespace(moe_ep_size=RANKS, moe_ep_rank=RANK, tp_size=RANKS)
LAYOUT = ("WORKSPACE_SIZE", "DISPATCH_PAYLOAD_SIZE", "COMBINE_INPUT_SIZE", "COMBINE_INPUT_OFFSET")


def align(size: int) -> int:
    return -(-size // 128) * 128


class Kernels:
    """Stands for the compiled module of either generation: rows arrive where nobody sent any."""

    def __init__(self, newest: bool) -> None:
        self.newest = newest
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("moe_a2a"):
            raise AttributeError(name)
        return lambda *arguments: self.calls.append((name.removeprefix("moe_a2a_"), arguments))

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]

    @property
    def launched(self) -> list[str]:
        return [name for name, _ in self.calls if name in ("dispatch", "combine", "sanitize_expert_ids")]

    def moe_a2a_get_metainfo_index_pairs(self) -> Any:
        return [], []

    def moe_a2a_get_aux_data_size(self, ranks: int, tokens: int, experts: int) -> int:
        return 1000 + 4 * ranks * experts

    def moe_a2a_get_workspace_layout(
        self, ranks: int, tokens: int, top_k: int, dispatch: int, combine: int, inbox: int, experts: int, cft: bool,
        metainfo: torch.Tensor,
    ) -> None:  # fmt: skip
        assert (inbox, cft) == (0, False)
        start = align(1000 + 8 * tokens * top_k + 4 * ranks * experts)
        offset = start + align(dispatch)
        metainfo.copy_(torch.tensor([offset + align(combine), align(dispatch), align(combine), offset]))

    def moe_a2a_dispatch(self, ids: Any, payloads: Any, workspace: Any, *rest: Any) -> Any:
        self.calls.append(("dispatch", (ids, payloads, workspace, *rest)))
        ranks, tokens = workspace.shape[0], rest[1]
        begin = 1024 + (0 if self.newest else RANK * workspace.stride(0))
        offsets, sizes = [], []
        for payload in payloads:
            offsets.append(begin)
            sizes.append(ranks * tokens * payload.shape[1] * payload.element_size())
            begin += align(sizes[-1])
        if self.newest:
            assert len(rest) == 15
            return offsets, int(rest[0][3]), 512
        assert len(rest) == 10
        return offsets, sizes, begin - RANK * workspace.stride(0), -1, 0


@pytest.fixture
def newest(release: str) -> bool:
    return release in NEWEST


def record(monkeypatch: pytest.MonkeyPatch, newest: bool) -> tuple[Kernels, dict[Any, Any]]:
    """FlashInfer with recording kernels and host memory; also the cache of workspaces that it keeps."""
    module = Kernels(newest)
    mnnvl = importlib.import_module("flashinfer.comm.mnnvl")

    class Memory:
        allocated_map: ClassVar[dict[int, Any]] = {}

        def __init__(self, mapping: Any, size: int) -> None:
            self.size, self.ptr, self.mapped = size, id(self), True
            self.allocated_map[self.ptr] = SimpleNamespace(comm=SimpleNamespace(barrier=lambda: None))

        @staticmethod
        def initialize() -> None: ...

        @staticmethod
        def set_comm_from_config(mapping: Any, config: Any) -> None: ...

        def as_torch_strided_tensor(self, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(RANKS, self.size, dtype=dtype)

    monkeypatch.setattr(mnnvl, "MnnvlMemory", Memory)
    if newest:
        native = importlib.import_module("flashinfer.moe_ep.backends.split.comm.nvlink_one_sided.kernels")
        indices = {f"{name}_INDEX": at for at, name in enumerate(LAYOUT)}
        limits = {"MAX_RANKS": 256, "MAX_PAYLOADS": 4, "WORKSPACE_ALIGNMENT": 128, "NUM_METAINFO_FIELDS": 4}
        monkeypatch.setattr(native, "get_nvlink_one_sided_alltoall_module", lambda: module)
        monkeypatch.setattr(native, "layout_constants", lambda: SimpleNamespace(**indices, **limits))
        cache = moe_alltoall.MoeAlltoAll._WORKSPACE_CACHE
    else:
        native = importlib.import_module("flashinfer.comm.trtllm_moe_alltoall")
        monkeypatch.setattr(native, "get_moe_alltoall_module", lambda *backend: module)
        monkeypatch.setattr(native, "MnnvlMemory", Memory)
        monkeypatch.setattr(native, "device_support_pdl", lambda device: False)
        cache = native.MoeAlltoAll._WORKSPACE_CACHE
    monkeypatch.setattr(moe_alltoall.expert_parallel, "is_capturing", lambda: False)
    return module, cache


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch, newest: bool) -> Iterator[Kernels]:
    module, cache = record(monkeypatch, newest)
    yield module
    cache.clear()
    Rounds._open.clear()


def size(experts: int = 0) -> int:
    made = comm.moe_a2a_get_workspace_size_per_rank(
        ep_size=RANKS,
        max_num_tokens=TOKENS,
        total_dispatch_payload_size_per_token=2 * HIDDEN + 8 * TOP_K,
        combine_payload_size_per_token=2 * HIDDEN,
        eplb_stats_num_experts=experts,
    )
    assert isinstance(made, int)
    return made


def make(**options: Any) -> Any:
    if "workspace_size_per_rank" not in options and "hidden_size" not in options:
        options["workspace_size_per_rank"] = size()
    return comm.MoeAlltoAll(MAPPING, max_num_tokens=TOKENS, top_k=TOP_K, num_experts=EXPERTS, **options)


def tokens(count: int = 3) -> tuple[torch.Tensor, list[torch.Tensor]]:
    ids = torch.arange(count * TOP_K, dtype=torch.int32).view(count, TOP_K) % EXPERTS
    return ids, [torch.ones(count, HIDDEN, dtype=torch.bfloat16), ids, torch.ones(count, TOP_K)]


def test_a_round_as_sglang_runs_it(kernels: Kernels) -> None:
    alltoall = make()
    ids, payloads = tokens()
    received = alltoall.dispatch(ids, payloads, 4, invalid_token_expert_id=-1, expert_id_payload_index=1)
    assert [tuple(each.shape) for each in received] == [(RANKS, 4, HIDDEN), (RANKS, 4, TOP_K), (RANKS, 4, TOP_K)]
    assert [each.dtype for each in received] == [torch.bfloat16, torch.int32, torch.float32]
    buffer = alltoall.get_combine_payload_tensor_in_workspace(4, HIDDEN, torch.bfloat16)
    assert buffer.shape == (RANKS, 4, HIDDEN)
    own = alltoall.workspace[RANK]
    assert own.data_ptr() <= buffer.data_ptr() < own.data_ptr() + own.nbytes
    for each in received:
        end = each.data_ptr() + each.nbytes
        assert own.data_ptr() <= each.data_ptr()
        assert end <= buffer.data_ptr()
    alltoall.combine(buffer, 4, payload_in_workspace=True)
    assert kernels.launched == ["dispatch", "sanitize_expert_ids", "combine"]


def test_the_newest_kernels_get_what_they_take(kernels: Kernels, newest: bool) -> None:
    if not newest:
        pytest.skip("FlashInfer's own class")
    alltoall = make()
    ids, payloads = tokens()
    alltoall.dispatch(ids, payloads, 4)
    (arguments,) = kernels.called("dispatch")
    assert arguments[0] is ids
    assert arguments[3] is alltoall.metainfo
    assert arguments[4:] == (4, RANK, RANKS, TOP_K, EXPERTS, None, False, -1, -1, False, False, None, 300, False)
    assert kernels.launched == ["dispatch"], "ids of rows without a token stay stale unless a value is asked for"
    output = torch.empty(3, HIDDEN, dtype=torch.bfloat16)
    payload = torch.zeros(RANKS, 4, HIDDEN, dtype=torch.bfloat16)
    assert alltoall.combine(payload, 4, output=output) is output
    (arguments,) = kernels.called("combine")
    assert arguments[0] is payload
    assert arguments[14] is output
    assert arguments[4:14] == (4, RANK, RANKS, TOP_K, int(alltoall.metainfo[3]), False, False, False, False, None)
    assert arguments[15:] == (300, False, False)


def test_what_an_older_source_does_not_declare_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    op = "moeA2ASanitizeExpertIdsOp"
    monkeypatch.setattr(moe_alltoall, "_declared", lambda name: ["metainfo", "expertIds", "epRank"])
    call = moe_alltoall._in_order(lambda *arguments: arguments, op)
    assert call("ids", "workspace", "metainfo", 1, -1, False) == ("metainfo", "ids", 1)
    monkeypatch.setattr(moe_alltoall, "_declared", lambda name: ["expertIds", "somethingElse"])
    with pytest.raises(FeatureUnavailable, match="somethingElse"):
        moe_alltoall._in_order(lambda *arguments: arguments, op)


def test_the_installed_source_declares_what_is_passed(newest: bool) -> None:
    if not newest:
        pytest.skip("FlashInfer's own class")
    for op, known in moe_alltoall._PARAMETERS.items():
        assert moe_alltoall._declared(op) == known.split()


def test_a_size_plus_something_is_a_workspace_of_its_own(kernels: Kernels) -> None:
    base = size()
    one, same, other = (make(workspace_size_per_rank=base + 128 * namespace) for namespace in (0, 0, 1))
    assert one.workspace is same.workspace
    assert other.workspace.data_ptr() != one.workspace.data_ptr()
    assert other.workspace.shape[1] == base + 128
    one.dispatch(*tokens(), 4)
    other.dispatch(*tokens(), 4)
    with pytest.raises(RoundError, match="shares this workspace"):
        same.dispatch(*tokens(), 4)
    assert kernels.launched == ["dispatch", "dispatch"]


def test_sizes_add_from_both_sides_and_survive_pickling() -> None:
    import pickle

    made = moe_alltoall.WorkspaceSize(1000, 600, 300)
    for added in (made + 128, 128 + made, pickle.loads(pickle.dumps(made)) + 128):
        assert added == 1128
        assert (added.dispatch_bytes, added.combine_bytes) == (600, 300)


def test_a_size_from_the_hidden_size(kernels: Kernels, newest: bool) -> None:
    alltoall = make(hidden_size=HIDDEN)
    assert alltoall.workspace_size_per_rank == comm.MoeAlltoAll.get_moe_workspace_size_per_rank(
        RANKS, TOP_K, TOKENS, HIDDEN
    )
    alltoall.dispatch(*tokens(8), 8)


def test_a_plain_number_of_bytes(kernels: Kernels, newest: bool) -> None:
    plain = int(size())
    make(workspace_size_per_rank=plain, hidden_size=HIDDEN).dispatch(*tokens(8), 8)
    if newest:
        with pytest.raises(UnsupportedArgument, match="moe_a2a_get_workspace_size_per_rank"):
            make(workspace_size_per_rank=plain)
        with pytest.raises(InvalidArgument, match="too small"):
            make(workspace_size_per_rank=1024, hidden_size=HIDDEN)
    else:
        make(workspace_size_per_rank=plain + 128).dispatch(*tokens(8), 8)  # a workspace of its own


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 0])
def test_payload_lists(kernels: Kernels, newest: bool, count: int) -> None:
    alltoall = make()
    ids, _ = tokens()
    payloads = [torch.zeros(3, 4, dtype=torch.uint8) for _ in range(count)]
    if count == 0:
        with pytest.raises(InvalidArgument, match="at least one"):
            alltoall.dispatch(ids, payloads, 4)
    elif newest and count > 4:
        with pytest.raises(UnsupportedArgument, match=r"0\.7\.1 to 0\.7\.2\.post1 take six"):
            alltoall.dispatch(ids, payloads, 4)
    else:
        assert len(alltoall.dispatch(ids, payloads, 4)) == count
        return
    assert kernels.launched == []
    alltoall.dispatch(*tokens(), 4)  # nothing has been begun


def test_nothing_is_launched_for_what_is_refused(kernels: Kernels) -> None:
    alltoall = make()
    ids, payloads = tokens()
    refused: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((ids, payloads, 2), {}),
        ((ids, payloads, 9), {}),
        ((ids, payloads, 0), {}),
        ((ids.long(), payloads, 4), {}),
        ((ids[:, :1], payloads, 4), {}),
        ((ids, [payloads[0][:2]], 4), {}),
        ((ids, payloads, 4), {"invalid_token_expert_id": -1}),
        ((ids, payloads, 4), {"invalid_token_expert_id": -1, "expert_id_payload_index": 0}),
        ((ids, payloads, 4), {"eplb_local_stats": torch.zeros(4, dtype=torch.int32)}),
        ((ids, payloads, 4), {"active_rank_mask": torch.ones(1, dtype=torch.uint64)}),
    ]
    for arguments, options in refused:
        with pytest.raises(InvalidArgument):
            alltoall.dispatch(*arguments, **options)
    payload = torch.zeros(RANKS, 4, HIDDEN, dtype=torch.bfloat16)
    with pytest.raises(RoundError, match="before dispatch"):
        alltoall.combine(payload, 4)
    with pytest.raises(RoundError, match="before dispatch"):
        alltoall.get_combine_payload_tensor_in_workspace(4, HIDDEN, torch.bfloat16)
    assert kernels.launched == []
    alltoall.dispatch(ids, payloads, 4)
    with pytest.raises(RoundError, match="twice"):
        alltoall.dispatch(ids, payloads, 4)
    with pytest.raises(InvalidArgument, match="was dispatched for 4"):
        alltoall.combine(torch.zeros(RANKS, 8, HIDDEN), 8)
    with pytest.raises(InvalidArgument, match="combine payload must be"):
        alltoall.combine(torch.zeros(8, HIDDEN), 4)
    with pytest.raises(RoundError, match="between dispatch and combine"):
        alltoall.checkpoint_prepare()
    assert kernels.launched == ["dispatch"]


def test_what_only_older_kernels_combine(kernels: Kernels, newest: bool) -> None:
    if not newest:
        pytest.skip("FlashInfer's own class")
    alltoall = make()
    alltoall.dispatch(*tokens(), 4)
    payload = torch.zeros(RANKS, 4, HIDDEN, dtype=torch.bfloat16)
    for arguments in (
        {"payload": payload.to(torch.float8_e4m3fn)},
        {"payload": payload, "output_dtype": torch.uint8},
        {"payload": payload, "output_scales": torch.zeros(1, dtype=torch.uint8)},
    ):
        with pytest.raises(UnsupportedArgument, match="mxfp8_quantize"):
            alltoall.combine(runtime_max_tokens_per_rank=4, **arguments)
    with pytest.raises(InvalidArgument, match="elsewhere"):
        alltoall.combine(payload, 4, payload_in_workspace=True)
    assert "combine" not in kernels.launched
    assert alltoall.combine(payload.float(), 4, use_low_precision=True).dtype is torch.bfloat16


def test_masks_and_statistics(kernels: Kernels, newest: bool) -> None:
    alltoall = make(workspace_size_per_rank=size(EXPERTS), eplb_stats_num_experts=EXPERTS, enable_rank_mask=True)
    mask = comm.moe_a2a_active_rank_mask([0, 1], RANKS)
    assert (mask.numel(), mask.device.type, int(mask[0])) == (4 if newest else 1, "cpu", 3)
    with pytest.raises(InvalidArgument, match="requires an active_rank_mask"):
        alltoall.dispatch(*tokens(), 4)
    statistics = torch.zeros(EXPERTS, dtype=torch.int32)
    alltoall.dispatch(*tokens(), 4, active_rank_mask=mask, eplb_local_stats=statistics)
    if newest:
        assert alltoall.eplb_gathered_stats.shape == (RANKS, EXPERTS)
        single = torch.tensor([3], dtype=torch.uint64)
        alltoall.combine(torch.zeros(RANKS, 4, HIDDEN), 4, active_rank_mask=single)
        (arguments,) = kernels.called("combine")
        assert arguments[13].tolist() == [3, 0, 0, 0]


def test_a_mask_is_not_captured(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    alltoall = make(enable_rank_mask=True)
    mask = comm.moe_a2a_active_rank_mask([0, 1], RANKS)
    monkeypatch.setattr(moe_alltoall.expert_parallel, "is_capturing", lambda: True)
    with pytest.raises(RoundError, match="captured"):
        alltoall.dispatch(*tokens(), 4, active_rank_mask=mask)


def test_the_combine_region_is_where_it_was(kernels: Kernels) -> None:
    alltoall = make()
    found = set()
    for runtime in (2, 8, 4):
        alltoall.dispatch(*tokens(2), runtime)
        buffer = alltoall.get_combine_payload_tensor_in_workspace(runtime, HIDDEN, torch.bfloat16)
        found.add(buffer.data_ptr())
        alltoall.combine(buffer, runtime, payload_in_workspace=True)
    assert len(found) == 1


def test_ids_out_of_range_are_not_routed_by(kernels: Kernels, newest: bool) -> None:
    ids = torch.tensor([[-1, 3], [EXPERTS, 1], [-1, 99], [2, 0]], dtype=torch.int32)
    alltoall = make()
    payload = ids.clone()
    alltoall.dispatch(ids, [payload], 4)
    (arguments,) = kernels.called("dispatch")
    # The newest kernels drop them; a rank beyond the last would be written to by the others.
    routed = ids.tolist() if newest else [[3, 3], [1, 1], [2, 2], [2, 0]]
    assert arguments[0].tolist() == routed
    assert arguments[1][0].tolist() == ids.tolist(), "the payload's are the caller's"


def test_an_unmapped_workspace_is_not_used(kernels: Kernels) -> None:
    alltoall = make()
    alltoall.mnnvl_mem.mapped = False
    with pytest.raises(RuntimeError, match="unmapped"):
        alltoall.dispatch(*tokens(), 4)
    assert kernels.launched == []


def test_a_payload_that_starts_elsewhere_than_on_16_bytes(kernels: Kernels, newest: bool) -> None:
    if not newest:
        pytest.skip("these kernels take it as it is")
    odd = torch.arange(3 * 4 + 1, dtype=torch.uint8)[1:].view(3, 4)
    make().dispatch(tokens()[0], [odd], 4)
    (arguments,) = kernels.called("dispatch")
    assert arguments[1][0].data_ptr() % 16 == 0
    assert torch.equal(arguments[1][0], odd)


def test_views_of_a_workspace() -> None:
    workspace = torch.arange(512, dtype=torch.int32).view(torch.uint8).view(2, 1024)
    view = comm.moe_a2a_wrap_payload_tensor_in_workspace(workspace, [2, 2], 1024 + 16, 1024 + 48, torch.int32)
    assert view.flatten().tolist() == list(range(260, 268))
    assert view.shape == (2, 2, 2)
    assert view.data_ptr() == workspace.data_ptr() + 1040


def test_the_names(newest: bool) -> None:
    from flashinfer_compat.comm import trtllm_moe_alltoall

    for name in ("MoeAlltoAll", "moe_a2a_get_workspace_size_per_rank", "moe_a2a_active_rank_mask"):
        assert getattr(comm, name) is getattr(trtllm_moe_alltoall, name)
    if newest:
        with pytest.raises(FeatureUnavailable, match=r"Use comm\.MoeAlltoAll"):
            comm.moe_a2a_dispatch  # noqa: B018
    else:
        assert issubclass(comm.MoeAlltoAll, importlib.import_module("flashinfer.comm").MoeAlltoAll)


def test_reading_a_retired_name_warns_the_reader(newest: bool, fresh: Any) -> None:
    if not newest:
        pytest.skip("FlashInfer has it")

    def read() -> list[str]:
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            from flashinfer_compat.comm import MoeAlltoAll  # noqa: F401
        return [str(one.message) + one.filename for one in caught if "moe_ep.create_communication" in str(one.message)]

    (message,) = fresh(read, presented_as=None)
    assert message.endswith("<string>")
