"""The raw FA2 planner: completed to the release's argument count, and guarded so that captured CUDA graphs stay true.

FlashInfer's wrappers store their JIT module in ``_cached_module`` and call ``_cached_module.plan(*args)``; engines' own
fast plans do the same. `PlannedWrapper` puts a `PlannedModule` between the two. The layout of the arguments is
FlashInfer's csrc/batch_prefill_jit_binding.cu; the TVM-FFI export takes exactly as many as it declares.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from ..errors import CompatWarning, InvalidPlan

#: Positions in the raw argument list, the same on every release that has them.
QO_INDPTR, FIRST_SCALAR, ENABLE_CUDA_GRAPH, FIXED_SPLIT_SIZE, UNIFORM_Q_LEN = 3, 6, 11, 16, 19
#: Page size and head dims among them.
GEOMETRY = (10, 12, 13)
#: Argument counts of the FA2 planner; other planners (FA3: 16, CUDA-core decode: 15) are passed through.
WITHOUT_FIXED_UNIFORM_Q_LEN, WITH_FIXED_UNIFORM_Q_LEN = 20, 21
#: What a captured kernel holds of the plan by value (scheduler.cuh, PrefillPlanInfo).
PADDED_BATCH_SIZE, CTA_TILE_Q, SPLIT_KV = 0, 3, 14

is_capturing: Callable[[], bool] = (
    torch.cuda.is_current_stream_capturing if torch.backends.cuda.is_built() else lambda: False
)


@cache
def raw_plan_arguments() -> int:
    """How many arguments the installed FA2 planner takes, read from the binding that FlashInfer compiles."""
    import flashinfer

    binding = Path(flashinfer.__file__).parent / "data" / "csrc" / "batch_prefill_jit_binding.cu"
    has_fixed = "fixed_uniform_q_len" in binding.read_text(encoding="utf-8")
    return WITH_FIXED_UNIFORM_Q_LEN if has_fixed else WITHOUT_FIXED_UNIFORM_Q_LEN


class CapturedTile:
    """The query tile of one wrapper: what the next plan asks for, what the last one got, what a graph has captured.

    ``uniform_q_len`` fixes the query tile and the padded grid when a CUDA graph is captured; a replay re-reads only the
    schedule. So once captured, each later plan must get the same tile, or the replay would compute nonsense.
    """

    __slots__ = ("captured", "captured_kernel", "captured_scalars", "plan_info", "requested", "scalars", "uniform")

    def __init__(self) -> None:
        #: plan(uniform_q_len=) where the wrapper's own Python cannot pass it on; C++ reads it in all releases.
        self.requested: int | None = None
        #: The last CUDA-graph plan: its raw arguments behind the tensors, none before the first, and what it returned.
        self.scalars: Sequence[Any] = ()
        self.plan_info: Any = None
        #: The hint that a graph has captured (0: none was given), the plan's scalars and its kernel.
        self.captured: int | None = None
        self.captured_scalars: Sequence[Any] = ()
        self.captured_kernel: tuple[int, int, int] | None = None
        #: The indptr of a uniform batch, and its query length: what a hint is compared with.
        self.uniform: tuple[int, torch.Tensor] | None = None

    def capture(self) -> None:
        """A graph now holds the last plan."""
        if self.scalars:
            self.captured, self.captured_scalars = self.scalars[UNIFORM_Q_LEN - FIRST_SCALAR], self.scalars
            self.captured_kernel = _kernel(self.plan_info)

    def uniform_q_len(self, forwarded: int, qo_indptr: torch.Tensor) -> int:
        """The query length to plan with, given what the wrapper forwards; 0 is no promise.

        A hint that does not describe the batch is dropped with a warning, as FlashInfer does from 0.7.2.post1 on
        (prefill.py, _resolve_uniform_q_len); one that a graph has captured cannot be dropped and raises.
        """
        requested, self.requested = forwarded or max(int(self.requested or 0), 0), None
        captured = self.captured
        if captured is None:
            if requested == forwarded or self.describes(requested, qo_indptr):
                return requested
            warnings.warn(
                f"uniform_q_len={requested} does not describe this batch; planning without it",
                CompatWarning,
                stacklevel=5,
            )
            return forwarded
        if captured == 0:
            if requested:
                warnings.warn(
                    f"a CUDA graph was captured without uniform_q_len; uniform_q_len={requested} is left out of this "
                    "plan. Make a new wrapper to capture with it",
                    CompatWarning,
                    stacklevel=5,
                )
            return 0
        if requested not in (0, captured) or (forwarded != captured and not self.describes(captured, qo_indptr)):
            raise InvalidPlan(
                f"A CUDA graph was captured with uniform_q_len={captured}; this batch "
                + (f"asks for {requested}" if requested not in (0, captured) else "has other query lengths")
                + ". The captured kernel keeps its query tile, so replaying this plan would corrupt its output. "
                "Plan such a batch on another wrapper; this one must be planned again before its next replay."
            )
        return captured

    def describes(self, uniform_q_len: int, qo_indptr: torch.Tensor) -> bool:
        """Whether every request has exactly `uniform_q_len` query rows."""
        if qo_indptr.numel() < 2 or uniform_q_len <= 0:
            return False
        if self.uniform is None or self.uniform[0] != uniform_q_len or self.uniform[1].numel() != qo_indptr.numel():
            end = qo_indptr.numel() * uniform_q_len
            self.uniform = uniform_q_len, torch.arange(0, end, uniform_q_len, dtype=qo_indptr.dtype)
        return torch.equal(qo_indptr, self.uniform[1]) or bool((qo_indptr.diff() == uniform_q_len).all())

    def check_geometry(self, page_size: int, head_dim_qk: int, head_dim_vo: int) -> None:
        """Before a replan: what the kernel was compiled for, and FlashInfer's wrappers do not keep, is as planned."""
        given = page_size, head_dim_qk, head_dim_vo
        planned = tuple(self.scalars[index - FIRST_SCALAR] for index in GEOMETRY) if self.scalars else given
        if given != planned:
            raise InvalidPlan(
                f"(page_size, head_dim_qk, head_dim_vo) is {given}; the wrapper was planned with {planned}."
            )

    def check_kernel(self, scalars: Sequence[Any], plan_info: Any) -> None:
        """After a plan on a captured wrapper: the captured kernel must be the one planned for.

        The same scalars give the same kernel, unless a fixed split size makes split-KV depend on the KV lengths.
        """
        if scalars == self.captured_scalars and scalars[FIXED_SPLIT_SIZE - FIRST_SCALAR] <= 0:
            return
        if _kernel(plan_info) != self.captured_kernel:
            raise InvalidPlan(
                "This plan needs another kernel (padded batch, query tile, split-KV: "
                f"{_kernel(plan_info)}) than the CUDA graph captured through this wrapper holds "
                f"({self.captured_kernel}), so replaying it would corrupt its output. Capture anew on another wrapper, "
                "or plan this one as it was captured before its next replay."
            )


def _kernel(plan_info: Any) -> tuple[int, int, int]:
    return plan_info[PADDED_BATCH_SIZE], plan_info[CTA_TILE_Q], plan_info[SPLIT_KV]


class PlannedModule:
    """A wrapper's JIT module, as the wrapper and engines see it: `plan` is completed and guarded, all else passes."""

    def __init__(self, module: Any, tile: CapturedTile) -> None:
        # The attributes are copied, so that run() reads them plainly; the module itself is shared and never changed.
        self.__dict__.update(getattr(module, "__dict__", {}))
        self.module = module
        self._tile = tile
        self._plan = module.plan
        self._arguments = raw_plan_arguments()
        self.plan = self._completed_plan
        for run in ("paged_run", "ragged_run"):
            if hasattr(module, run):
                setattr(self, run, _recording(getattr(module, run), tile))

    def __getattr__(self, name: str) -> Any:
        if name == "module":  # an object that copy or pickle has not filled yet
            raise AttributeError(name)
        return getattr(self.module, name)

    def _completed_plan(self, *args: Any) -> Any:
        tile = self._tile
        # 0.7.3 appended fixed_uniform_q_len; False is what a 20-argument caller meant, unless a graph captured True.
        if len(args) == WITHOUT_FIXED_UNIFORM_Q_LEN < self._arguments:
            args = (*args, bool(tile.captured_scalars and tile.captured_scalars[-1]))
        if len(args) < WITHOUT_FIXED_UNIFORM_Q_LEN or not args[ENABLE_CUDA_GRAPH]:
            tile.requested = None
            if tile.captured is not None:
                raise InvalidPlan(
                    "A CUDA graph was captured through this wrapper with the FA2 backend; another backend or an eager "
                    "plan overwrites its schedule. Use another wrapper."
                )
            tile.scalars = ()
            return self._plan(*args)
        if tile.requested or tile.captured not in (None, args[UNIFORM_Q_LEN]):
            planned = tile.uniform_q_len(args[UNIFORM_Q_LEN], args[QO_INDPTR])
            args = (*args[:UNIFORM_Q_LEN], planned, *args[UNIFORM_Q_LEN + 1 :])
        plan_info, scalars = self._plan(*args), args[FIRST_SCALAR:]
        if tile.captured is not None:
            tile.check_kernel(scalars, plan_info)
        tile.scalars, tile.plan_info = scalars, plan_info
        return plan_info


def _recording(run: Callable[..., Any], tile: CapturedTile) -> Callable[..., Any]:
    def recorded_run(*args: Any) -> Any:
        if tile.scalars and is_capturing():
            tile.capture()
        return run(*args)

    return recorded_run


class PlannedWrapper:
    """Mixin for FlashInfer's attention wrappers: their private attributes stay readable and writable, and guarded.

    The attributes are read in each run() and plan(), so their getters are C functions.
    """

    is_cuda_graph_enabled: bool

    @cached_property
    def _compat_tile(self) -> CapturedTile:
        return CapturedTile()

    def _set_cached_module(self, module: Any) -> None:
        held = self.__dict__.get("_compat_module")
        if held is not None and held.module is module:
            return
        if isinstance(module, PlannedModule) and module._tile is not self._compat_tile:
            module = module.module  # another wrapper's
        if module is not None and not isinstance(module, PlannedModule):
            module = PlannedModule(module, self._compat_tile)
        self.__dict__["_compat_module"] = module

    def _set_verify_state(self, state: Any) -> None:
        self.__dict__["_compat_verify_state"] = state
        # run() dispatches this kernel past the module, so its capture cannot be seen: it counts as captured.
        if state is not None and self.is_cuda_graph_enabled:
            self._compat_tile.capture()

    def _set_counters(self, buffer: torch.Tensor | None) -> None:
        # plan() allocates a new buffer each time, but a captured graph keeps the pointer to the first.
        held = self.__dict__.get("_compat_counters")
        keeps = held is not None and buffer is not None and self.is_cuda_graph_enabled and held.nbytes >= buffer.nbytes
        if not keeps:
            self.__dict__["_compat_counters"] = buffer

    _cached_module = property(attrgetter("_compat_module"), _set_cached_module)
    _eagle_verify_fp8kv_sm90_state = property(attrgetter("_compat_verify_state"), _set_verify_state)
    _trtllm_gen_multi_ctas_kv_counter_buffer = property(attrgetter("_compat_counters"), _set_counters)


def planned_wrapper(native: type) -> type:
    """The mixin for `native`."""
    return PlannedWrapper


def sized_with_hint(native: Callable[..., tuple[int, int]]) -> Callable[..., tuple[int, int]]:
    """`native` (``workspace_size``) with the keyword ``uniform_q_len``, where Python hides it.

    The release's own function is run with its module getter replaced by one that completes the raw arguments; nothing
    of FlashInfer's is changed, and nothing of it is written again.
    """
    function = inspect.unwrap(native)
    assert isinstance(function, FunctionType)

    def workspace_size(self: Any, *args: Any, uniform_q_len: int | None) -> tuple[int, int]:
        hint = max(0 if uniform_q_len is None else int(uniform_q_len), 0)
        if not hint or not self.is_cuda_graph_enabled:
            return native(self, *args)
        get_module = function.__globals__["get_batch_prefill_module"]

        def hinted_module(backend: str, *module_args: Any) -> _SizedModule:
            return _SizedModule(get_module(backend, *module_args), hint)

        hinted = FunctionType(
            function.__code__,
            {**function.__globals__, "get_batch_prefill_module": hinted_module},
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        sized = copy.copy(self)
        if sized._jit_module is not None:
            sized._jit_module = _SizedModule(sized._jit_module, hint)
        sizes: tuple[int, int] = hinted(sized, *args)
        return sizes

    return workspace_size


class _SizedModule:
    """A JIT module whose `workspace_size` is asked for a uniform query length."""

    #: The raw arguments are the planner's, with one workspace buffer in place of three.
    OFFSET = 2

    def __init__(self, module: Any, uniform_q_len: int) -> None:
        self.module, self.uniform_q_len = module, uniform_q_len

    @property
    def workspace_size(self) -> Callable[..., Any] | None:
        return None if self.module.workspace_size is None else self._workspace_size

    def _workspace_size(self, *args: Any) -> Any:
        arguments = list(args)
        if len(args) > UNIFORM_Q_LEN - self.OFFSET:
            tile = CapturedTile()
            tile.requested = self.uniform_q_len
            forwarded, qo_indptr = arguments[UNIFORM_Q_LEN - self.OFFSET], arguments[QO_INDPTR - self.OFFSET]
            arguments[UNIFORM_Q_LEN - self.OFFSET] = tile.uniform_q_len(forwarded, qo_indptr)
        return self.module.workspace_size(*arguments)
