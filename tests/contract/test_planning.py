"""Which argument vector reaches the FA2 planner, for what a caller plans through the facade."""

from __future__ import annotations

import copy
import importlib
import pickle
from typing import Any

import pytest
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import CompatWarning, InvalidPlan, UnsupportedArgument, UnsupportedCombination

#: The module; `flashinfer.quantization.packbits` reads as the function of that name.
PACKBITS = importlib.import_module("flashinfer.quantization.packbits")

BATCH, HEADS, KV_HEADS, DIM, Q_LEN = 4, 32, 8, 128, 4
UNIFORM_Q_LEN = 19


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def uniform(q_len: int = Q_LEN, batch: int = BATCH) -> torch.Tensor:
    return torch.arange(0, (batch + 1) * q_len, q_len, dtype=torch.int32)


KV_INDPTR = int32(0, 2, 4, 5, 8)
KV_INDICES = torch.arange(8, dtype=torch.int32)
LAST_PAGE_LEN = int32(16, 3, 16, 1)
KV_LENS = int32(32, 19, 16, 33)
RAGGED_KV_INDPTR = int32(0, 32, 51, 67, 100)


def paged(graph: bool = True, **options: Any) -> Any:
    buffers: dict[str, Any] = {}
    if graph:
        buffers = {
            "qo_indptr_buf": torch.zeros(BATCH + 1, dtype=torch.int32),
            "paged_kv_indptr_buf": torch.zeros(BATCH + 1, dtype=torch.int32),
            "paged_kv_indices_buf": torch.zeros(16, dtype=torch.int32),
            "paged_kv_last_page_len_buf": torch.zeros(BATCH, dtype=torch.int32),
        }
    return flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(1024, dtype=torch.uint8), use_cuda_graph=graph, **buffers, **{"backend": "fa2", **options}
    )


def plan_paged(wrapper: Any, qo_indptr: torch.Tensor | None = None, **options: Any) -> None:
    qo_indptr = uniform() if qo_indptr is None else qo_indptr
    wrapper.plan(
        qo_indptr, KV_INDPTR, KV_INDICES, LAST_PAGE_LEN, HEADS, KV_HEADS, DIM, 16, q_data_type="bfloat16", **options
    )


def ragged(graph: bool = True) -> Any:
    buffers: dict[str, Any] = {}
    if graph:
        buffers = {
            "qo_indptr_buf": torch.zeros(BATCH + 1, dtype=torch.int32),
            "kv_indptr_buf": torch.zeros(BATCH + 1, dtype=torch.int32),
        }
    return flashinfer.BatchPrefillWithRaggedKVCacheWrapper(
        torch.empty(1024, dtype=torch.uint8), use_cuda_graph=graph, backend="fa2", **buffers
    )


def plan_ragged(wrapper: Any, **options: Any) -> None:
    wrapper.plan(uniform(), RAGGED_KV_INDPTR, HEADS, KV_HEADS, DIM, q_data_type="bfloat16", **options)


def fast_plan(wrapper: Any, **options: Any) -> None:
    arguments: dict[str, Any] = {
        "qo_indptr": uniform(),
        "paged_kv_indptr": KV_INDPTR,
        "paged_kv_indices": KV_INDICES,
        "paged_kv_last_page_len": LAST_PAGE_LEN,
        "num_qo_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "head_dim_qk": DIM,
        "page_size": 16,
        "causal": False,
        "q_data_type": "bfloat16",
        "qo_indptr_host": uniform(),
        "kv_indptr_host": KV_INDPTR,
        "kv_lens_host": KV_LENS,
        "max_q_len": Q_LEN,
        "max_kv_len": 33,
    }
    flashinfer.prefill.fast_prefill_plan(wrapper, **(arguments | options))


class TestHint:
    """plan(uniform_q_len=): native from 0.7.2.post1, emulated before, one meaning (FlashInfer #6144)."""

    @pytest.mark.parametrize(("make", "plan"), [(paged, plan_paged), (ragged, plan_ragged)], ids=["paged", "ragged"])
    @pytest.mark.parametrize(
        ("graph", "hint", "sent"),
        [(True, 4, 4), (True, None, 0), (True, 0, 0), (True, -1, 0), (False, 4, 0), (False, None, 0)],
    )
    def test_reaches_the_planner(
        self, module: Any, planner_arguments: int, make: Any, plan: Any, graph: bool, hint: int | None, sent: int
    ) -> None:
        wrapper = make(graph)
        plan(wrapper, uniform_q_len=hint)
        (arguments,) = module.plans
        assert len(arguments) == planner_arguments
        assert arguments[UNIFORM_Q_LEN] == sent
        assert arguments[20:] == (False,) * (planner_arguments - 20)

    def test_left_out_is_no_promise(self, module: Any) -> None:
        plan_paged(paged())
        assert module.plans[0][UNIFORM_Q_LEN] == 0

    def test_the_whole_argument_vector(self, module: Any, planner_arguments: int) -> None:
        wrapper = paged()
        plan_paged(wrapper, causal=True, window_left=7, fixed_split_size=2, disable_split_kv=True, uniform_q_len=4)
        (arguments,) = module.plans
        assert arguments[0] is wrapper._float_workspace_buffer
        assert arguments[1] is wrapper._int_workspace_buffer
        assert arguments[2] is wrapper._pin_memory_int_workspace_buffer
        assert arguments[3].tolist() == [0, 4, 8, 12, 16]
        assert arguments[4].tolist() == KV_INDPTR.tolist()
        assert arguments[5].tolist() == KV_LENS.tolist()
        tail = (16, BATCH, HEADS, KV_HEADS, 16, True, DIM, DIM, True, 7, 2, True, 0, 4, False)
        assert arguments[6:] == tail[: planner_arguments - 6]

    @pytest.mark.parametrize("qo_indptr", [int32(0, 4, 8, 12, 15), int32(0, 4, 8, 11, 16)])
    def test_a_batch_it_does_not_describe_is_planned_without(
        self, module: Any, qo_indptr: torch.Tensor, release: str
    ) -> None:
        wrapper = paged()
        if release in ("0.7.1", "0.7.2"):
            with pytest.warns(CompatWarning, match="uniform_q_len=4 does not describe this batch"):
                plan_paged(wrapper, qo_indptr, uniform_q_len=4)
        else:  # FlashInfer's own warning goes to its logger
            plan_paged(wrapper, qo_indptr, uniform_q_len=4)
        assert module.plans[0][UNIFORM_Q_LEN] == 0

    def test_an_offset_batch_is_described(self, module: Any) -> None:
        plan_paged(paged(), uniform() + 3, uniform_q_len=4)
        assert module.plans[0][UNIFORM_Q_LEN] == 4

    def test_is_not_kept_for_the_next_plan(self, module: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper, uniform_q_len=4)
        plan_paged(wrapper)
        assert [arguments[UNIFORM_Q_LEN] for arguments in module.plans] == [4, 0]

    def test_is_gone_when_the_plan_fails(self, module: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper)
        with pytest.raises(ValueError, match="batch size"):
            plan_paged(wrapper, int32(0, 4, 8), uniform_q_len=4)
        wrapper._cached_module.plan(*module.plans[0][:20])
        fast_plan(wrapper)
        assert [arguments[UNIFORM_Q_LEN] for arguments in module.plans] == [0, 0, 0]

    def test_is_each_wrappers_own(self, module: Any) -> None:
        hinted, plain = paged(), paged()
        plan_paged(hinted, uniform_q_len=4)
        plan_paged(plain)
        plan_paged(hinted, uniform_q_len=4)
        assert [arguments[UNIFORM_Q_LEN] for arguments in module.plans] == [4, 0, 4]

    def test_begin_forward_is_plan(self, module: Any) -> None:
        wrapper = paged()
        wrapper.begin_forward(
            uniform(), KV_INDPTR, KV_INDICES, LAST_PAGE_LEN, HEADS, KV_HEADS, DIM, 16, uniform_q_len=4
        )
        assert module.plans[0][UNIFORM_Q_LEN] == 4

    def test_reaches_the_size_query(self, module: Any, planner_arguments: int) -> None:
        wrapper = paged()
        arguments = (uniform(), KV_INDPTR, KV_INDICES, LAST_PAGE_LEN, HEADS, KV_HEADS, DIM, 16)
        assert wrapper.workspace_size(*arguments, uniform_q_len=4) == (1024, 2048)
        assert wrapper.workspace_size(*arguments) == (1024, 2048)
        hinted, plain = module.sizes
        assert [len(sizes) for sizes in module.sizes] == [planner_arguments - 2] * 2
        assert (hinted[17], plain[17]) == (4, 0)

    def test_size_query_leaves_flashinfer_as_it_was(self, module: Any) -> None:
        import flashinfer as native

        getter = native.prefill.get_batch_prefill_module
        paged().workspace_size(
            uniform(), KV_INDPTR, KV_INDICES, LAST_PAGE_LEN, HEADS, KV_HEADS, DIM, 16, uniform_q_len=4
        )
        assert native.prefill.get_batch_prefill_module is getter


class TestCapturedTile:
    """A plan that a captured graph cannot replay is an error, not silent corruption."""

    @pytest.fixture
    def hinted(self, module: Any, capturing: Any) -> Any:
        wrapper = paged()
        plan_paged(wrapper, uniform_q_len=4)
        capturing(wrapper)
        return wrapper

    def test_the_hint_is_carried(self, module: Any, hinted: Any) -> None:
        plan_paged(hinted)
        plan_paged(hinted, uniform_q_len=4)
        assert [arguments[UNIFORM_Q_LEN] for arguments in module.plans] == [4, 4, 4]

    def test_a_batch_that_cannot_carry_it_is_refused(self, module: Any, hinted: Any) -> None:
        for options in ({}, {"uniform_q_len": 4}):
            with pytest.raises(InvalidPlan, match="captured with uniform_q_len=4.*has other query lengths"):
                plan_paged(hinted, int32(0, 4, 8, 12, 15), **options)
        assert len(module.plans) == 1

    def test_another_hint_is_refused(self, module: Any, hinted: Any) -> None:
        with pytest.raises(InvalidPlan, match="captured with uniform_q_len=4.*asks for 2"):
            plan_paged(hinted, uniform(2), uniform_q_len=2)
        assert len(module.plans) == 1

    def test_a_hint_that_was_not_captured_is_left_out(self, module: Any, capturing: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper)
        capturing(wrapper)
        with pytest.warns(CompatWarning, match="captured without uniform_q_len"):
            plan_paged(wrapper, uniform_q_len=4)
        assert [arguments[UNIFORM_Q_LEN] for arguments in module.plans] == [0, 0]

    def test_plans_before_the_capture_are_free(self, module: Any, capturing: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper)
        wrapper._cached_module.paged_run()
        plan_paged(wrapper, uniform_q_len=4)
        capturing(wrapper)
        plan_paged(wrapper)
        assert [arguments[UNIFORM_Q_LEN] for arguments in module.plans] == [0, 4, 4]
        assert len(module.runs) == 2

    def test_another_kernel_is_refused(self, module: Any, hinted: Any) -> None:
        with pytest.raises(InvalidPlan, match=r"\(264, 16, 0\).*\(264, 16, 1\)"):
            plan_paged(hinted, uniform_q_len=4, disable_split_kv=True)

    def test_a_refused_plan_is_not_what_a_graph_holds(self, module: Any, hinted: Any, capturing: Any) -> None:
        with pytest.raises(InvalidPlan, match="needs another kernel"):
            plan_paged(hinted, uniform_q_len=4, disable_split_kv=True)
        capturing(hinted)
        with pytest.raises(InvalidPlan, match="needs another kernel"):
            plan_paged(hinted, uniform_q_len=4, disable_split_kv=True)
        plan_paged(hinted, uniform_q_len=4)
        assert module.plans[-1][17] is False

    def test_each_wrapper_has_its_own_capture(self, module: Any, capturing: Any) -> None:
        first, second = paged(), paged()
        plan_paged(first, uniform_q_len=4)
        plan_paged(second)
        second._cached_module = first._cached_module
        capturing(second)
        assert (first._compat_tile.captured, second._compat_tile.captured) == (None, 0)

    def test_eager_wrappers_are_never_bound(self, module: Any, capturing: Any) -> None:
        wrapper = paged(graph=False)
        plan_paged(wrapper, uniform_q_len=4)
        capturing(wrapper)
        plan_paged(wrapper, int32(0, 1, 2, 3, 9))
        assert len(module.plans) == 2

    def test_the_verify_kernel_counts_as_captured(self, module: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper, uniform_q_len=4)
        wrapper._eagle_verify_fp8kv_sm90_state = object()
        with pytest.raises(InvalidPlan, match="captured with uniform_q_len=4"):
            plan_paged(wrapper, int32(0, 1, 2, 3, 16))


class TestRawPlanner:
    """Engines' own fast plans: a list of 20 arguments through the wrapper's module, or the helpers."""

    def test_a_list_of_20_is_completed(self, module: Any, planner_arguments: int) -> None:
        wrapper = paged()
        plan_paged(wrapper)
        twenty = list(module.plans[0][:20])
        wrapper._plan_info = wrapper._cached_module.plan(*twenty)
        assert module.plans[1] == module.plans[0]
        assert len(module.plans[1]) == planner_arguments

    def test_a_list_of_20_carries_a_captured_hint(self, module: Any, capturing: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper, uniform_q_len=4)
        capturing(wrapper)
        twenty = [*module.plans[0][:19], 0]
        wrapper._cached_module.plan(*twenty)
        assert module.plans[1][UNIFORM_Q_LEN] == 4

    def test_other_backends_pass(self, module: Any) -> None:
        wrapper = paged()
        wrapper._cached_module = module
        wrapper._cached_module.plan(*range(16))
        assert module.plans == [tuple(range(16))]

    def test_the_shared_module_is_untouched(self, module: Any) -> None:
        before = dict(vars(module))
        wrapper = paged()
        plan_paged(wrapper, uniform_q_len=4)
        assert {name: value for name, value in vars(module).items() if name not in ("plans",)} == {
            name: value for name, value in before.items() if name not in ("plans",)
        }
        assert wrapper._cached_module.module is module
        assert wrapper._cached_module.runs is module.runs

    def test_raw_fa2_plan(self, module: Any, planner_arguments: int) -> None:
        wrapper = paged()
        plan_paged(wrapper, causal=True, uniform_q_len=4)
        plan_info = flashinfer.prefill.raw_fa2_plan(
            wrapper,
            qo_indptr_host=uniform(),
            kv_indptr_host=KV_INDPTR,
            kv_lens_host=KV_LENS,
            total_num_rows=16,
            batch_size=BATCH,
            num_qo_heads=HEADS,
            num_kv_heads=KV_HEADS,
            page_size=16,
            enable_cuda_graph=True,
            head_dim_qk=DIM,
            head_dim_vo=DIM,
            causal=True,
            uniform_q_len=4,
        )
        planned, raw = module.plans
        assert raw[6:] == planned[6:]
        assert len(raw) == planner_arguments
        assert plan_info[3] == 16


class TestFastPrefillPlan:
    def test_sends_what_plan_sends(self, module: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper, uniform_q_len=4)
        state = {
            name: value for name, value in vars(wrapper).items() if isinstance(value, (int, float, str, torch.dtype))
        }
        fast_plan(wrapper, uniform_q_len=4)
        planned, fast = module.plans
        assert [a.tolist() for a in fast[3:6]] == [a.tolist() for a in planned[3:6]]
        assert fast[6:] == planned[6:]
        assert state == {name: vars(wrapper)[name] for name in state}
        assert wrapper._qo_indptr_buf.tolist() == uniform().tolist()
        assert wrapper._paged_kv_indptr_buf.tolist() == KV_INDPTR.tolist()
        assert wrapper._paged_kv_indices_buf.tolist() == [*KV_INDICES.tolist(), *[0] * 8]
        assert wrapper._paged_kv_last_page_len_buf.tolist() == LAST_PAGE_LEN.tolist()

    def test_carries_a_captured_hint(self, module: Any, capturing: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper, uniform_q_len=4)
        capturing(wrapper)
        fast_plan(wrapper)
        assert module.plans[1][UNIFORM_Q_LEN] == 4

    def test_works_on_flashinfers_own_wrapper(self, module: Any, planner_arguments: int) -> None:
        import flashinfer as native

        made = paged()
        wrapper = native.BatchPrefillWithPagedKVCacheWrapper(
            torch.empty(1024, dtype=torch.uint8),
            use_cuda_graph=True,
            qo_indptr_buf=made._qo_indptr_buf,
            paged_kv_indptr_buf=made._paged_kv_indptr_buf,
            paged_kv_indices_buf=made._paged_kv_indices_buf,
            paged_kv_last_page_len_buf=made._paged_kv_last_page_len_buf,
            backend="fa2",
        )
        plan_paged(wrapper)
        fast_plan(wrapper, uniform_q_len=4)
        assert len(module.plans[1]) == planner_arguments
        assert module.plans[1][UNIFORM_Q_LEN] == 4

    def test_clears_the_verify_state(self, module: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper, uniform_q_len=4)
        wrapper._eagle_verify_fp8kv_sm90_state = object()
        fast_plan(wrapper, uniform_q_len=4)
        assert wrapper._eagle_verify_fp8kv_sm90_state is None

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"uniform_q_len": 3}, "not every request has 3 query rows"),
            ({"qo_indptr_host": uniform().long()}, "qo_indptr_host must be a contiguous int32 CPU tensor"),
            ({"kv_indptr_host": int32(0, 2, 4, 5)}, r"kv_indptr_host must be .* shape \(5,\)"),
            ({"kv_indptr_host": int32(0, 2, 4, 5, 9)}, "kv_indptr_host counts 9"),
            ({"kv_lens_host": KV_LENS[::1].view(2, 2)}, r"kv_lens_host must be .* shape \(4,\)"),
            ({"qo_indptr_host": torch.arange(0, 40, 4, dtype=torch.int32)[::2]}, r"strides \(2,\)"),
            ({"kv_lens_host": torch.zeros(8, dtype=torch.int32)[::2]}, r"strides \(2,\)"),
            ({"qo_indptr_host": uniform(5)}, "20 query rows exceed the 16"),
            ({"qo_indptr_host": uniform(batch=3), "kv_indptr_host": int32(0, 1, 2, 3), "kv_lens_host": int32(1, 1, 1)},
             "batch size 3, but this CUDA-graph wrapper was made for 4"),
            ({"q_data_type": "float16"}, "q_data_type=torch.float16 .planned: torch.bfloat16"),
            ({"causal": True}, "causal=True .planned: False"),
            ({"window_left": 5}, "window_left=5 .planned: -1"),
            ({"page_size": 8}, r"is \(8, 128, 128\); the wrapper was planned with \(16, 128, 128\)"),
            ({"head_dim_vo": 64}, r"is \(16, 128, 64\)"),
            ({"qo_indptr": int32(4)}, r"qo_indptr must have shape \(5,\); it has \(1,\)"),
            ({"paged_kv_last_page_len": int32(1)}, r"paged_kv_last_page_len must have shape \(4,\)"),
            ({"paged_kv_indptr": KV_INDPTR.view(1, 5)}, r"paged_kv_indptr must have shape \(5,\)"),
            ({"paged_kv_indices": torch.zeros(32, dtype=torch.int32)}, "has 32 pages.*buffer holds 16"),
            ({"custom_mask": torch.ones(4, dtype=torch.bool)}, "needs custom_mask_buf and mask_indptr_buf"),
        ],
    )  # fmt: skip
    def test_bad_input_changes_nothing(self, module: Any, monkeypatch: Any, options: Any, message: str) -> None:
        monkeypatch.setattr(PACKBITS, "get_quantization_module", lambda: module)
        module.segment_packbits = None
        wrapper = paged()
        plan_paged(wrapper)
        before = wrapper._paged_kv_indices_buf.clone()
        with pytest.raises(InvalidPlan, match=message):
            fast_plan(wrapper, **options)
        assert len(module.plans) == 1
        assert torch.equal(wrapper._paged_kv_indices_buf, before)

    def test_takes_paged_wrappers_without_items(self, module: Any) -> None:
        other = ragged()
        plan_ragged(other)
        with pytest.raises(InvalidPlan, match="takes a paged prefill wrapper"):
            fast_plan(other)
        items = paged()
        plan_paged(items)
        items._prefix_len_ptr = int32(0, 0, 0, 0)
        with pytest.raises(InvalidPlan, match="multi-item scoring"):
            fast_plan(items)

    def test_needs_a_plan_and_a_graph(self, module: Any) -> None:
        with pytest.raises(InvalidPlan, match="needs an earlier plan"):
            fast_plan(paged())
        eager = paged(graph=False)
        plan_paged(eager)
        with pytest.raises(InvalidPlan, match="use_cuda_graph=False"):
            fast_plan(eager)

    def test_packs_a_custom_mask_without_reading_back(self, module: Any, monkeypatch: Any) -> None:
        packed: list[Any] = []
        module.segment_packbits = lambda *args: packed.append([a.tolist() if torch.is_tensor(a) else a for a in args])
        monkeypatch.setattr(PACKBITS, "get_quantization_module", lambda: module)
        wrapper = paged(
            custom_mask_buf=torch.zeros(256, dtype=torch.uint8), mask_indptr_buf=torch.zeros(5, dtype=torch.int32)
        )
        plan_paged(wrapper)
        mask = torch.arange(400) % 3 == 0
        fast_plan(wrapper, custom_mask=mask)
        bits, packed_bytes = [0, 128, 204, 268, 400], [0, 16, 26, 34, 51]
        assert packed == [[mask.tolist(), bits, packed_bytes, "little", [0] * 256]]
        assert wrapper._mask_indptr_buf.tolist() == packed_bytes
        for wrong, message in ((mask[:-1], "399 entries, the batch 400"), (mask.int(), "must be bool")):
            with pytest.raises(InvalidPlan, match=message):
                fast_plan(wrapper, custom_mask=wrong)


class TestKeywords:
    """Newest keywords on every release; what cannot be had raises before anything is planned."""

    @pytest.mark.parametrize("plan", [lambda **o: plan_paged(paged(), **o), lambda **o: plan_ragged(ragged(), **o)])
    def test_token_head_scales(self, module: Any, release: str, plan: Any) -> None:
        plan(use_token_head_sf=False)
        assert len(module.plans) == 1
        if release in ("0.7.3", "0.7.4"):  # FlashInfer's own check: this plan's KV is not fp8
            with pytest.raises(ValueError, match="use_token_head_sf"):
                plan(use_token_head_sf=True)
        else:
            with pytest.raises(UnsupportedArgument, match=f"0.7.4 and later have it; installed is {release}"):
                plan(use_token_head_sf=True)
        assert len(module.plans) == 1

    def test_max_total_num_rows(self, module: Any) -> None:
        wrapper = paged(max_total_num_rows=64)
        plan_paged(wrapper)
        assert module.plans[0][6] == 64
        with pytest.raises(ValueError, match="max_total_num_rows requires use_cuda_graph"):
            paged(graph=False, max_total_num_rows=64)
        for wrong in (-1, 1.5):
            with pytest.raises(ValueError, match="nonnegative integer"):
                paged(max_total_num_rows=wrong)

    def test_max_sequence_kv(self, module: Any) -> None:
        wrapper = paged()
        plan_paged(wrapper, max_sequence_kv=4096)
        assert module.plans[0][5].tolist() == KV_LENS.tolist()

    def test_strided_tensors_reach_the_planner_dense(self, module: Any) -> None:
        def strided(tensor: torch.Tensor) -> torch.Tensor:
            return torch.stack([tensor, tensor * 0 - 1], dim=1)[:, 0]

        wrapper = paged()
        tensors = [strided(t) for t in (uniform(), KV_INDPTR, KV_INDICES, LAST_PAGE_LEN)]
        wrapper.plan(*tensors, HEADS, KV_HEADS, DIM, 16, seq_lens=strided(KV_LENS))
        (arguments,) = module.plans
        assert all(arguments[i].is_contiguous() for i in (3, 4, 5))
        assert [arguments[i].tolist() for i in (3, 4, 5)] == [uniform().tolist(), KV_INDPTR.tolist(), KV_LENS.tolist()]
        eager = paged(graph=False)
        eager.plan(*tensors, HEADS, KV_HEADS, DIM, 16)
        assert eager._paged_kv_indices_buf.is_contiguous()

    def test_ragged_host_indptr(self, module: Any) -> None:
        wrapper = ragged()
        plan_ragged(wrapper, qo_indptr_cpu=uniform(), kv_indptr_cpu=RAGGED_KV_INDPTR)
        assert module.plans[0][3].tolist() == uniform().tolist()
        assert module.plans[0][4].tolist() == RAGGED_KV_INDPTR.tolist()
        assert wrapper._kv_indptr_buf.tolist() == RAGGED_KV_INDPTR.tolist()
        for wrong in (uniform(batch=3), uniform().long(), uniform().to("meta")):
            with pytest.raises(ValueError, match="qo_indptr_cpu|CPU tensor"):
                plan_ragged(wrapper, qo_indptr_cpu=wrong, kv_indptr_cpu=RAGGED_KV_INDPTR)
        assert len(module.plans) == 1

    def test_ragged_keywords_whose_place_moved_are_keyword_only(self, module: Any) -> None:
        import inspect

        parameters = inspect.signature(type(ragged()).plan).parameters.values()
        assert sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) == 33
        with pytest.raises(TypeError, match="positional"):
            ragged().plan(uniform(), RAGGED_KV_INDPTR, HEADS, KV_HEADS, DIM, *[None] * 28)

    def test_paged_noncausal_window_on_trtllm_gen(self, module: Any) -> None:
        wrapper = paged(backend="trtllm-gen")
        before = dict(vars(wrapper))
        with pytest.raises(NotImplementedError, match=r"window_left"):
            plan_paged(wrapper, causal=False, window_left=4)
        assert vars(wrapper) == before


class TestDecode:
    def wrapper(self, **options: Any) -> Any:
        return flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(1024, dtype=torch.uint8), **{"backend": "fa2", "use_tensor_cores": True, **options}
        )

    def plan(self, wrapper: Any, *tail: Any, **options: Any) -> None:
        wrapper.plan(KV_INDPTR, KV_INDICES, LAST_PAGE_LEN, HEADS, KV_HEADS, DIM, 16, *tail, **options)

    def test_plans(self, module: Any, planner_arguments: int) -> None:
        self.plan(self.wrapper(), q_data_type="bfloat16", window_left=9, fixed_split_size=3)
        (arguments,) = module.plans
        assert len(arguments) == planner_arguments
        assert arguments[15:17] == (9, 3)

    def test_unknown_keyword(self, module: Any) -> None:
        with pytest.raises(TypeError, match="unexpected keyword argument 'windw_left'"):
            self.plan(self.wrapper(), windw_left=1)
        assert module.plans == []

    def test_positional_tail(self, module: Any) -> None:
        with pytest.warns(DeprecationWarning, match="by keyword"):
            self.plan(self.wrapper(), "NONE", 9, 0.0, "bfloat16")
        assert module.plans[0][15] == 9

    @pytest.mark.parametrize(
        ("tail", "message"),
        [
            (("NONE", -1, 0.0, "bfloat16", "bfloat16", 0.125), "has o_data_type where 0.125 was passed"),
            (("NONE", True), "has window_left where True"),
            ((-1,), "has pos_encoding_mode where -1"),
            (("NONE", -1, 0.0, None, None, None, None, None, None, None, 1.0), "has non_blocking where 1.0"),
            (("NONE",) * 17, "17 positional arguments after page_size"),
        ],
    )
    def test_a_tail_that_slipped(self, module: Any, tail: Any, message: str) -> None:
        with pytest.raises(UnsupportedArgument, match=f"(?s){message}.*by keyword"):
            self.plan(self.wrapper(), *tail)
        assert module.plans == []

    def test_position_and_keyword(self, module: Any) -> None:
        with pytest.raises(UnsupportedArgument, match="window_left both by position and by keyword"):
            self.plan(self.wrapper(), "NONE", 9, window_left=8)

    def test_fixed_split_of_cuda_core_decode(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        import flashinfer as native

        plans: list[Any] = []
        cores = type("Module", (), {"plan": staticmethod(lambda *args: plans.append(args)), "run": None})()
        monkeypatch.setattr(native.decode, "get_batch_decode_module", lambda *args: cores)
        wrapper = self.wrapper(use_tensor_cores=False)
        self.plan(wrapper, fixed_split_size=-1)
        assert len(plans) == 1
        with pytest.raises(ValueError, match="fixed_split_size"):
            self.plan(wrapper, fixed_split_size=2)

    def test_strided_tensors(self, module: Any) -> None:
        strided = torch.stack([KV_INDPTR, KV_INDPTR * 0], dim=1)[:, 0]
        self.wrapper().plan(strided, KV_INDICES, LAST_PAGE_LEN, HEADS, KV_HEADS, DIM, 16)
        assert module.plans[0][4].is_contiguous()
        assert module.plans[0][4].tolist() == KV_INDPTR.tolist()

    def test_jit_kwargs(self, module: Any, release: str) -> None:
        self.wrapper(jit_kwargs=None)
        if release not in ("0.7.3", "0.7.4"):
            with pytest.raises(UnsupportedArgument, match="jit_kwargs"):
                self.wrapper(jit_kwargs={"a": 1})

    def test_resolved_backend(self, module: Any) -> None:
        wrapper = self.wrapper()
        self.plan(wrapper)
        assert wrapper.resolved_backend == "fa2"

    def test_fast_decode_plan_has_one_identity(self) -> None:
        from flashinfer_compat.decode import fast_decode_plan

        assert fast_decode_plan is flashinfer.decode.fast_decode_plan is flashinfer.fast_decode_plan

    def test_a_list_of_20_is_completed(self, module: Any, planner_arguments: int) -> None:
        wrapper = self.wrapper()
        self.plan(wrapper)
        wrapper._cached_module.plan(*module.plans[0][:20])
        assert len(module.plans[1]) == planner_arguments


class TestCounters:
    def test_bytes(self) -> None:
        assert flashinfer.mla.multi_ctas_kv_counter_bytes(1, 1, "cpu") == 32
        assert flashinfer.mla.multi_ctas_kv_counter_bytes(8, 128, "cpu") == 4096
        assert flashinfer.mla.multi_ctas_kv_counter_bytes(3, 3, "cpu") == 64
        for wrong in ((0, 8), (8, 0), (-1, 8)):
            with pytest.raises(UnsupportedCombination, match="at least 1"):
                flashinfer.mla.multi_ctas_kv_counter_bytes(*wrong, "cpu")

    @pytest.mark.parametrize(
        ("rows", "heads", "multiprocessors"), [(1, 1, 132), (8, 128, 132), (7, 5, 8), (33, 16, 148)]
    )
    def test_bytes_are_flashinfers(self, monkeypatch: Any, rows: int, heads: int, multiprocessors: int) -> None:
        from flashinfer.utils import get_trtllm_gen_multi_ctas_kv_counter_bytes

        from flashinfer_compat.bridges import counters

        monkeypatch.setattr(counters, "_multiprocessors", lambda device: multiprocessors)
        assert flashinfer.mla.multi_ctas_kv_counter_bytes(rows, heads) == get_trtllm_gen_multi_ctas_kv_counter_bytes(
            rows, heads, multiprocessors
        )

    def test_allocated_zeroed_and_aligned(self) -> None:
        buffer = flashinfer.mla.allocate_multi_ctas_kv_counters(5, 8, "cpu")
        assert buffer.dtype is torch.uint8
        assert buffer.tolist() == [0] * 160
        assert buffer.data_ptr() % 16 == 0

    def test_the_private_helper_is_found_on_every_release(self, release: str) -> None:
        import flashinfer.utils as native
        import flashinfer_compat.mla._core as core

        vars(core).pop("_get_trtllm_gen_multi_ctas_kv_counter_buffer", None)
        if release in ("0.7.3", "0.7.4"):
            with pytest.warns(DeprecationWarning, match="allocate_multi_ctas_kv_counters"):
                helper = core._get_trtllm_gen_multi_ctas_kv_counter_buffer
        else:
            helper = core._get_trtllm_gen_multi_ctas_kv_counter_buffer
        assert helper is native._get_trtllm_gen_multi_ctas_kv_counter_buffer

    def test_a_captured_graph_keeps_its_buffer(self, module: Any) -> None:
        wrapper = paged()
        assert wrapper._trtllm_gen_multi_ctas_kv_counter_buffer is None
        first, same, larger = (torch.zeros(n, dtype=torch.uint8) for n in (64, 64, 128))
        for given, kept in ((first, first), (same, first), (larger, larger), (same, larger)):
            wrapper._trtllm_gen_multi_ctas_kv_counter_buffer = given
            assert wrapper._trtllm_gen_multi_ctas_kv_counter_buffer is kept
        eager = paged(graph=False)
        eager._trtllm_gen_multi_ctas_kv_counter_buffer = first
        eager._trtllm_gen_multi_ctas_kv_counter_buffer = same
        assert eager._trtllm_gen_multi_ctas_kv_counter_buffer is same


class TestChunkAlign:
    @pytest.mark.parametrize(
        ("heads", "kv_heads", "dim", "dim_vo", "tokens", "tile", "smaller_up_to"),
        [
            (32, 8, 128, None, 32, 128, 16),
            (64, 8, 128, None, 16, 128, 8),
            (8, 8, 128, None, 128, 128, 64),
            (28, 4, 128, None, 128, 128, 9),  # a group of 7 divides no tile
            (24, 4, 128, None, 64, 128, 10),
            (4, 1, 256, None, 16, 64, 4),
            (16, 1, 192, 128, 8, 128, 4),
            (128, 1, 576, 512, 1, 32, 0),
            (4, 1, 512, 128, 4, 16, 0),
        ],
    )
    def test_alignment(
        self, heads: int, kv_heads: int, dim: int, dim_vo: int | None, tokens: int, tile: int, smaller_up_to: int
    ) -> None:
        align = flashinfer.prefill.prefill_chunk_align(heads, kv_heads, dim, dim_vo)
        assert (align, align.query_tile, align.smaller_tile_up_to) == (tokens, tile, smaller_up_to)

    @pytest.mark.parametrize("backend", ["fa3", "auto", "cudnn", "trtllm-gen", "cute-dsl"])
    def test_no_guarantee(self, backend: str) -> None:
        assert flashinfer.prefill.prefill_chunk_align(32, 8, 128, backend=backend) is None

    def test_says_when_a_batch_is_small(self) -> None:
        large = flashinfer.prefill.prefill_chunk_align(32, 8, 128, qo_indptr_host=int32(0, 17, 34))
        with pytest.warns(CompatWarning, match="averages 64 packed query rows.*smaller than 128.*above 16 tokens"):
            small = flashinfer.prefill.prefill_chunk_align(32, 8, 128, qo_indptr_host=int32(0, 16, 32))
        assert (large, small) == (32, 32)

    def test_can_be_sent_to_a_worker(self) -> None:
        align = flashinfer.prefill.prefill_chunk_align(32, 8, 128)
        for copied in (pickle.loads(pickle.dumps(align)), copy.deepcopy(align)):
            assert (copied, copied.query_tile, copied.smaller_tile_up_to) == (32, 128, 16)

    def test_heads_must_divide(self) -> None:
        with pytest.raises(UnsupportedCombination, match="multiple of num_kv_heads"):
            flashinfer.prefill.prefill_chunk_align(30, 8, 128)

    def test_pinning(self, module: Any, release: str) -> None:
        for wrapper in (paged(backend="auto"), ragged(), paged()):
            assert flashinfer.prefill.use_deterministic_backend(wrapper) is wrapper
            assert wrapper._backend == "fa2"
            assert getattr(wrapper, "_requested_backend", "fa2") == "fa2"
        planned = paged()
        plan_paged(planned)
        for wrapper in (planned, paged(backend="trtllm-gen")):
            with pytest.raises(InvalidPlan, match="unplanned wrapper"):
                flashinfer.prefill.use_deterministic_backend(wrapper)


class TestEngineAttributes:
    """The private attributes that engines' own plans read and write (sglang 0.5.23, vLLM 0.33.0)."""

    READ = (
        "_backend", "_cached_module", "device", "_float_workspace_buffer", "_int_workspace_buffer",
        "_pin_memory_int_workspace_buffer", "_max_total_num_rows", "_qo_indptr_buf", "_paged_kv_indptr_buf",
        "_paged_kv_indices_buf", "_paged_kv_last_page_len_buf", "_custom_mask_buf", "_mask_indptr_buf", "_window_left",
        "_logits_soft_cap", "_sm_scale", "_causal", "is_cuda_graph_enabled", "_plan_info",
    )  # fmt: skip
    WRITTEN = (
        "_qo_indptr_last", "_max_q_len", "_max_kv_len", "_max_total_num_rows", "_batch_size", "_num_qo_heads",
        "_num_kv_heads", "_prefix_len_ptr", "_token_pos_in_items_ptr", "_token_pos_in_items_len", "_max_item_len_ptr",
        "_cached_q_data_type", "_cached_kv_data_type", "_cached_o_data_type", "_block_tables", "_plan_info",
    )  # fmt: skip

    def test_read_as_on_flashinfers_wrapper(self, module: Any) -> None:
        import flashinfer as native

        wrapper = paged()
        plan_paged(wrapper)
        assert isinstance(wrapper, native.BatchPrefillWithPagedKVCacheWrapper)
        assert [name for name in self.READ if not hasattr(wrapper, name)] == []

    @pytest.mark.parametrize("name", WRITTEN)
    def test_written_as_on_flashinfers_wrapper(self, module: Any, name: str) -> None:
        wrapper = paged()
        plan_paged(wrapper)
        value = object()
        setattr(wrapper, name, value)
        assert getattr(wrapper, name) is value

    def test_verify_state_is_there_where_flashinfer_has_it(self, module: Any, release: str) -> None:
        assert hasattr(paged(), "_eagle_verify_fp8kv_sm90_state") == (release not in ("0.7.1", "0.7.2"))

    def test_begin_forward_can_be_replaced(self, module: Any) -> None:
        from functools import partial

        wrapper = paged()
        plan_paged(wrapper)
        wrapper.begin_forward = partial(flashinfer.prefill.fast_prefill_plan, wrapper)
        assert wrapper.begin_forward.func is flashinfer.prefill.fast_prefill_plan
        wrapper.begin_forward(
            uniform(), KV_INDPTR, KV_INDICES, LAST_PAGE_LEN, HEADS, KV_HEADS, DIM, 16, q_data_type="bfloat16",
            qo_indptr_host=uniform(), kv_indptr_host=KV_INDPTR, kv_lens_host=KV_LENS, max_q_len=4, max_kv_len=33,
        )  # fmt: skip
        assert len(module.plans) == 2

    def test_is_freed_at_once(self, module: Any) -> None:
        import gc
        import weakref

        wrapper = paged()
        plan_paged(wrapper, uniform_q_len=4)
        gone = weakref.ref(wrapper)
        gc.disable()
        try:
            del wrapper
            assert gone() is None
        finally:
            gc.enable()
