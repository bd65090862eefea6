"""report() has every name that the engines look for before they use it, so that `report --compare` shows one go."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import flashinfer_compat
from flashinfer_compat.features import FEATURES
from flashinfer_compat.gates import GATES

from .conftest import ENGINES, engine_source

#: Looked for, and in no release that the engine can have: FlashInfer's 0.6 had them, or nobody.
NOWHERE = {"decode._grouped_size_compiled_for_decode_kernels", "gemm.Sm120BlockScaledDenseGemmKernel"}
#: Read for a message or a cache's key; nothing depends on it.
TOLD = {"__version__"}
CAUGHT = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"}
PROBES = {"hasattr", "getattr"}
#: Found by reading: parameters, looked up in signatures; attributes of classes and objects; a module that is found.
BY_HAND = {gate for gate in GATES if "(" in gate} | {
    "fused_moe.core.ActivationType.Situ",
    "gemm.gemm_base._cute_dsl_gemm_mxfp8_runner",
    "jit.cake_blackwell_softmax",
    "moe_ep.MoEEpCommParams.dispatch_format",
    "moe_ep.NVLinkOneSidedAlltoAll.checkpoint_prepare",
    "moe_ep.NVLinkOneSidedAlltoAll.checkpoint_restore",
}


def gated(source: Path) -> dict[str, str]:
    """The names below ``flashinfer`` that an engine's code, tests aside, tries or probes, and where."""
    found: dict[str, str] = {}
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source)
        text = path.read_text(encoding="utf-8", errors="replace")
        if "flashinfer" in text and not {"test", "tests"} & set(file.parts):
            for node in ast.walk(ast.parse(text)):
                for name in _gates(node):
                    found.setdefault(name, f"{file}:{getattr(node, 'lineno', 0)}")
    return found


def _gates(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Try) and any(handler.type is None or CAUGHT & _names(handler) for handler in node.handlers):
        aliases: dict[str, str] = {}
        for inner in (inner for statement in node.body for inner in ast.walk(statement)):
            if isinstance(inner, ast.ImportFrom) and _below(inner.module) is not None:
                yield from (_joined(_below(inner.module), alias.name) for alias in inner.names)
            elif isinstance(inner, ast.Import):
                aliases.update({alias.asname: alias.name for alias in inner.names if alias.asname})
            elif isinstance(inner, ast.Call) and inner.args and isinstance(inner.args[0], ast.Name):
                module = _below(aliases.get(inner.args[0].id))
                if module is not None and _called(inner) in PROBES:
                    yield from (_joined(module, name) for name in _texts(*inner.args[1:2]))
    elif isinstance(node, ast.FunctionDef):
        # vLLM's has_…(): a module is got, and names are looked up in it.
        calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        modules = [name for call in calls if _called(call) == "_get_submodule" for name in _texts(*call.args)]
        if len(modules) == 1 and _below(modules[0]) is not None:
            for call in calls:
                if _called(call) in PROBES and ast.unparse(call.args[0]) in ("mod", "module"):
                    yield from (_joined(_below(modules[0]), name) for name in _texts(*call.args[1:2]))
            for loop in (inner for inner in ast.walk(node) if isinstance(inner, ast.comprehension)):
                yield from (_joined(_below(modules[0]), name) for name in _texts(loop.iter))
        if any(_called(call) == "_get_submodule" for call in calls):
            for pair in (inner for inner in ast.walk(node) if isinstance(inner, ast.Tuple)):
                yield from _pair(_texts(*pair.elts))
    elif isinstance(node, ast.Call) and _called(node) == "_lazy_import_wrapper":
        yield from _pair(_texts(*node.args))


def _pair(texts: list[str]) -> Iterator[str]:
    if len(texts) == 2 and _below(texts[0]) is not None:
        yield _joined(_below(texts[0]), texts[1])


def _below(module: str | None) -> str | None:
    """``"comm.mnnvl"`` for ``"flashinfer.comm.mnnvl"``, None for what is not FlashInfer's."""
    root, _, below = (module or "").partition(".")
    return below if root == "flashinfer" else None


def _joined(module: str | None, name: str) -> str:
    return f"{module}.{name}" if module else name


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _texts(*nodes: ast.AST) -> list[str]:
    inner = (inner for node in nodes for inner in ast.walk(node))
    return [one.value for one in inner if isinstance(one, ast.Constant) and isinstance(one.value, str)]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_gate_is_reported(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    gates = gated(engine_source(engine))
    reported = {*FEATURES, *FEATURES.values(), *GATES, *NOWHERE, *TOLD}
    assert {name: where for name, where in gates.items() if name not in reported} == {}
    outcomes = flashinfer_compat.report()["gates"]
    off = sorted(name for name in gates if outcomes.get(name) == "unavailable")
    with capsys.disabled():
        print(
            f"\n{engine} {ENGINES[engine][0]} gates on {len(gates)} names; unavailable here: {', '.join(off) or 'none'}"
        )
    assert len(gates) > 40


def test_nothing_is_listed_that_no_engine_gates_on() -> None:
    known = {name for engine in ENGINES for name in gated(engine_source(engine))}
    assert set(GATES) - BY_HAND - known == set()
    assert sorted(set(GATES)) == list(GATES)
