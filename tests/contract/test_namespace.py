"""The facade in FlashInfer's place: every module and name of the installed release, and all the ways to get at them."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import multiprocessing
import os
import pickle
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import flashinfer
import flashinfer.attention
import flashinfer.cascade
import flashinfer.comm.mapping
import flashinfer.mla
import flashinfer.pod
import flashinfer.sparse
import pytest

import flashinfer_compat as facade
from flashinfer_compat import FeatureUnavailable, namespace
from flashinfer_compat.adapters.model import Adapter, split
from flashinfer_compat.bridges.classes import Extended, Follows
from flashinfer_compat.bridges.names import Added, Gone, Missing, Moved, Retired
from flashinfer_compat.lines import NameLine
from flashinfer_compat.support import MISSING
from flashinfer_compat.surfaces import store
from flashinfer_compat.surfaces.lifetimes import lifetime

ADAPTER = namespace.adapter()
CLASSES = [
    name
    for name, by_method in ADAPTER.names.items()
    if any(isinstance(line, (Extended, Follows)) for line in by_method.get("", ()))
    and (native := namespace.native_object(name)) is not MISSING
    and namespace.facade_object(name) is not native
]
MISSING_HERE = [
    name
    for name, by_method in ADAPTER.names.items()
    if any(isinstance(line, Missing) for line in by_method.get("", ())) and namespace.native_object(name) is MISSING
]


def importable(dotted: str) -> bool:
    """Whether FlashInfer has the module, and this machine what it and the packages around it need."""
    parts = dotted.split(".")
    try:
        for end in range(len(parts)):  # a package that failed leaves behind submodules that can be imported
            native_module(".".join(parts[: end + 1]))
    except ModuleNotFoundError:
        return False
    return True


def facade_module(dotted: str) -> ModuleType:
    return importlib.import_module(f"flashinfer_compat.{dotted}" if dotted else "flashinfer_compat")


def native_module(dotted: str) -> ModuleType:
    return importlib.import_module(f"flashinfer.{dotted}" if dotted else "flashinfer")


#: The modules that hold an adapted name.
ADAPTED_MODULES = sorted(filter(importable, {name.rpartition(".")[0] for name in ADAPTER.names}))

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture(autouse=True)
def _deprecated_names_are_read_here() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


# The whole of FlashInfer.


def walk() -> dict[str, Any]:
    """Each module of FlashInfer that this machine can import, name by name: where the facade answers otherwise."""
    import importlib
    import pathlib
    import sys
    import types
    from collections import Counter

    import flashinfer

    root = pathlib.Path(flashinfer.__file__).parent
    imported, not_imported = [""], Counter()
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] == "data" or parts[-1] == "__main__":
            continue  # C++ and third-party sources; a command
        dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        try:
            importlib.import_module(f"flashinfer.{dotted}" if dotted else "flashinfer")
        except (Exception, SystemExit) as error:  # a missing package or GPU, a script without a guard
            not_imported[type(error).__name__] += 1
        else:
            imported.append(dotted)

    # A package that fails leaves behind what it had imported; only whole ones are compared.
    whole = set(imported)
    imported = [
        name for name in imported if all(".".join(name.split(".")[:n]) in whole for n in range(name.count(".") + 1))
    ]

    from flashinfer_compat import namespace

    adapted = {}
    for dotted in namespace.adapter().names:
        native = namespace.native_object(dotted) if namespace.is_available(dotted) else None
        if callable(native):
            adapted[id(native)] = namespace.facade_object(dotted)

    def expected(value):
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] == "flashinfer":
            return sys.modules["flashinfer_compat" + value.__name__[len("flashinfer") :]]
        return adapted.get(id(value), value) if callable(value) else value

    def outcome(module, name):
        try:
            return getattr(module, name), None
        except Exception as error:
            return None, error

    names, wrong = Counter(), []
    for dotted in imported:
        native = sys.modules[f"flashinfer.{dotted}" if dotted else "flashinfer"]
        facade = importlib.import_module(f"flashinfer_compat.{dotted}" if dotted else "flashinfer_compat")
        for name in {*dir(native), *getattr(native, "__all__", ())}:
            if name.startswith("_") or f"{dotted}.{name}".lstrip(".") in namespace.adapter().names:
                continue
            there, error = outcome(native, name)
            here, facade_error = outcome(facade, name)
            names["raises" if error else "module" if isinstance(there, types.ModuleType) else "object"] += 1
            if error is not None:
                if not isinstance(facade_error, type(error)):
                    wrong.append(f"{dotted}.{name}: {error!r}, but {facade_error!r}")
            elif facade_error is not None or here is not expected(there):
                wrong.append(f"{dotted}.{name}: {facade_error or here!r}")
    return {"modules": len(imported), "not imported": not_imported, "names": names, "wrong": wrong}


def test_adapted_functions_are_pickled_by_their_name() -> None:
    found = 0
    for dotted, lines in namespace.adapter().names.items():
        # Those that warn do so once, in tests of their own.
        warns = any(isinstance(line, (Moved, Retired)) for line in lines.get("", ()))
        if not warns and namespace.is_available(dotted):
            value = namespace.facade_object(dotted)
            if inspect.isfunction(value) and value.__module__.startswith("flashinfer_compat"):
                assert pickle.loads(pickle.dumps(value)) is value, dotted
                found += 1
    assert found > 3


def test_every_name_of_every_module(fresh: Any, record_property: Any) -> None:
    result = fresh(walk)
    record_property("walk", {**result, "wrong": len(result["wrong"])})
    assert result["wrong"] == []
    # So much is there on every release even without a GPU and its packages.
    assert result["modules"] > 800
    assert result["names"]["object"] > 10_000
    assert result["names"]["module"] > 900


def first_read_of_each_alias() -> list[str]:
    """Each adapted object read first through each other name that FlashInfer has for it, in a process of its own."""
    import itertools
    import json
    import os
    import sys

    import flashinfer  # noqa: F401

    from flashinfer_compat import namespace

    def is_whole(name):
        """A package that failed for want of another leaves behind what it had imported."""
        parts = name.split(".")
        return parts[0] == "flashinfer" and all(".".join(parts[:end]) in sys.modules for end in range(1, len(parts)))

    def aliases():
        adapted = {}
        for dotted in namespace.adapter().names:
            try:
                native = namespace.native_object(dotted)
            except ModuleNotFoundError:  # of a package that FlashInfer does without here
                continue
            if callable(native):
                adapted.setdefault(id(native), []).append(dotted)
        for module in [module for name, module in sys.modules.items() if is_whole(name)]:
            for name, value in list(vars(module).items()):
                alias = f"{module.__name__}.{name}".removeprefix("flashinfer.")
                yield from ((dotted, alias) for dotted in adapted.get(id(value), ()) if alias != dotted)

    def in_a_child(work):
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                os.write(writer, json.dumps(work()).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as result:
            return json.load(result)

    def wrong(pairs):
        return [
            f"{alias} is not {dotted}"
            for dotted, alias in pairs
            if namespace.facade_object(alias) is not namespace.facade_object(dotted)
        ]

    by_object = {}
    for dotted, alias in in_a_child(lambda: list(aliases())):
        by_object.setdefault(dotted, []).append((dotted, alias))
    # A child for the first alias of every object, one for the second of every object, and so on.
    rounds = [list(filter(None, pairs)) for pairs in itertools.zip_longest(*by_object.values())]
    found = [one for pairs in rounds for one in in_a_child(lambda pairs=pairs: wrong(pairs))]
    return [str(sum(map(len, rounds))), *found]


@needs_fork
def test_an_adapted_object_is_one_under_all_its_names(fresh: Any) -> None:
    pairs, *wrong = fresh(first_read_of_each_alias)
    assert wrong == []
    assert int(pairs) > 15


@pytest.mark.parametrize(
    "statement",
    [
        "import {root} as f; value = f.rmsnorm",
        "from {root} import rmsnorm as value",
        "from {root}.norm import rmsnorm as value",
        "import {root}.norm; value = {root}.norm.rmsnorm",
        "from {root} import norm; value = norm.rmsnorm",
        "import {root}.comm.mapping as m; value = m.Mapping",
        "from {root}.comm import Mapping as value",
        "import importlib; value = importlib.import_module('{root}.comm.mapping').Mapping",
        "value = __import__('{root}.comm.mapping', fromlist=['Mapping']).Mapping",
        "import {root}; value = getattr({root}.utils, 'PosEncodingMode').NONE",
        "from {root} import *; value = single_decode_with_kv_cache",
        "from {root}.cascade import *; value = merge_state",
        "import {root}; value = {root}.__version__",
        "from {root}.version import __version__ as value",
        # Lazily exported (PEP 562).
        "from {root}.mla import resolve_cake_dsv4_sparse_metadata as value",
        "import {root}; value = {root}.mla.cake_dsv4_workspace_reset",
        "from {root}.comm import MNNVLAllReduceFusionWorkspace as value",
        # Functions with the name of a submodule.
        "import {root}; value = {root}.xqa",
        "from {root} import xqa as value",
        "import {root}.xqa; value = {root}.xqa",
        "import {root}.xqa as value",
        "from {root}.xqa import xqa as value",
        "from {root}.comm import all_gather_matmul as value",
        "import {root}.comm.all_gather_matmul; value = {root}.comm.all_gather_matmul",
        "from {root}.quantization import packbits as value",
        "from {root}.quantization.packbits import segment_packbits as value",
        "import importlib; value = importlib.import_module('{root}.quantization.packbits').segment_packbits",
    ],
)
def test_each_way_of_importing(statement: str) -> None:
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    exec(statement.format(root="flashinfer_compat"), ours)
    exec(statement.format(root="flashinfer"), theirs)
    assert ours["value"] is theirs["value"]


@pytest.mark.parametrize("module", ["", "comm", "quantization", "gemm", "fused_moe"])
def test_functions_that_carry_the_name_of_a_submodule(module: str) -> None:
    native = native_module(module)
    assert native.__file__ is not None
    for path in Path(native.__file__).parent.iterdir():
        value = None if path.stem.startswith("_") else getattr(native, path.stem, None)
        if value is not None and not isinstance(value, ModuleType):
            adapted = namespace.bound_name(value)
            value = namespace.facade_object(adapted) if adapted else value
            assert getattr(facade_module(module), path.stem) is value
            importlib.import_module(f"{facade_module(module).__name__}.{path.stem}")
            assert getattr(facade_module(module), path.stem) is value, "and importing the submodule leaves it so"


@pytest.mark.parametrize("name", ["norm", "comm", "comm.mapping", "mla._core", "fused_moe.core", "xqa", "triton"])
def test_a_module_is_found_without_being_imported(name: str) -> None:
    assert importlib.util.find_spec(f"flashinfer.{name}") is not None
    assert importlib.util.find_spec(f"flashinfer_compat.{name}") is not None


@pytest.mark.parametrize(
    "name", ["no_such_module", "comm.no_such_module", "norm.rmsnorm.no_such_module", "data.csrc.x"]
)
def test_a_module_that_is_not_there(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"flashinfer.{name}")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"flashinfer_compat.{name}")


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="triton is installed: nothing is missing")
@pytest.mark.parametrize("root", ["flashinfer", "flashinfer_compat"])
def test_a_module_whose_package_is_missing_fails_at_its_import(root: str) -> None:
    # As in engines' guards: try: import flashinfer.X except ImportError.
    with pytest.raises(ModuleNotFoundError, match="No module named 'triton'"):
        importlib.import_module(f"{root}.triton.activation")


def test_modules_are_mirrored_and_others_are_their_own() -> None:
    assert facade.comm is sys.modules["flashinfer_compat.comm"]
    assert facade.comm.mapping is sys.modules["flashinfer_compat.comm.mapping"]
    assert facade.comm is not flashinfer.comm
    assert facade.prefill.torch is sys.modules["torch"]
    assert facade.prefill.math is sys.modules["math"]


# Names that are missing.


@pytest.mark.skipif(not MISSING_HERE, reason="this release lacks none of the names in its table")
@pytest.mark.parametrize("name", MISSING_HERE or ["-"])
def test_a_name_that_this_release_lacks(name: str, release: str) -> None:
    module, _, attribute = name.rpartition(".")
    (line,) = (line for line in ADAPTER.names[name][""] if isinstance(line, Missing))
    assert not hasattr(facade_module(module), attribute)
    assert attribute not in dir(facade_module(module))
    with pytest.raises(FeatureUnavailable) as caught:
        getattr(facade_module(module), attribute)
    message = f"flashinfer.{name}: FlashInfer {line.since} and later have it; installed is {release}. {line.instead}"
    assert str(caught.value) == message
    with pytest.raises(ImportError) as caught_import:
        exec(f"from {facade_module(module).__name__} import {attribute}")
    assert isinstance(caught_import.value, facade.CompatError)
    assert str(caught_import.value) == message


@pytest.mark.parametrize("module", ["", "norm", "comm.mapping", "prefill"])
def test_a_name_that_nobody_knows(module: str) -> None:
    assert not hasattr(facade_module(module), "no_such_name")
    assert getattr(facade_module(module), "no_such_name", "default") == "default"
    dotted = f"{module}.no_such_name".lstrip(".")
    message = f"FlashInfer {facade.flashinfer_version} has no flashinfer.{dotted}"
    with pytest.raises(AttributeError, match=re.escape(message)):
        _ = facade_module(module).no_such_name
    with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
        exec(f"from {facade_module(module).__name__} import no_such_name")


@pytest.mark.parametrize("name", ["__wrapped__", "__no_such_name__", "__file__"])
def test_what_python_asks_of_modules_is_not_flashinfers_to_answer(name: str) -> None:
    assert not hasattr(facade.norm, name)


def test_a_module_that_the_adapter_alone_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    added = Added(factory=lambda: len, note="a module that this release no longer has")
    table = Adapter(ADAPTER.release, {**ADAPTER.lines, "gone.from_flashinfer.length": (added,)})
    monkeypatch.setattr(namespace, "adapter", lambda: table)
    for name in ("flashinfer_compat.gone", "flashinfer_compat.gone.from_flashinfer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from flashinfer_compat.gone.from_flashinfer import length  # type: ignore[import-not-found]

    gone = sys.modules["flashinfer_compat.gone.from_flashinfer"]
    assert length is len
    assert gone.length is len
    assert dir(gone) == ["length"]
    assert not hasattr(gone, "no_such_name")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flashinfer_compat.gone.no_such_module")


# Values that change.


def test_values_that_flashinfer_rebinds_are_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert facade.jit.env.FLASHINFER_JIT_DIR == flashinfer.jit.env.FLASHINFER_JIT_DIR
    another = Path("/another")
    monkeypatch.setattr(flashinfer.jit.env, "FLASHINFER_JIT_DIR", another)
    assert facade.jit.env.FLASHINFER_JIT_DIR is another


@pytest.mark.parametrize("read_within", [False, True])
@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize("way", ["monkeypatch", "mock", "assignment"])
@pytest.mark.parametrize(
    ("module", "name"),
    [("norm", "rmsnorm"), ("comm.mapping", "Mapping"), ("", "xqa"), ("jit.env", "FLASHINFER_JIT_DIR")],
)
def test_assigning_to_what_is_flashinfers_reaches_it_and_is_undone(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, way: str, read_before: bool, read_within: bool
) -> None:
    ours, theirs = facade_module(module), native_module(module)
    original, replacement, another = getattr(theirs, name), object(), object()
    vars(ours).pop(name, None)
    if read_before:
        assert getattr(ours, name) is original

    def check(value: object) -> None:
        assert getattr(theirs, name, None) is value
        if read_within or value is original:
            assert getattr(ours, name) is value

    try:
        if way == "mock":
            with mock.patch(f"{ours.__name__}.{name}", replacement):
                check(replacement)
                with mock.patch.object(ours, name, another):
                    check(another)
                check(replacement)
        elif way == "monkeypatch":
            with monkeypatch.context() as patched:
                patched.setattr(ours, name, replacement)
                check(replacement)
                patched.setattr(f"{ours.__name__}.{name}", another)
                check(another)
        else:
            setattr(ours, name, replacement)
            check(replacement)
            setattr(ours, name, original)
        check(original)
    finally:
        setattr(theirs, name, original)


def test_deleting_what_is_flashinfers(monkeypatch: pytest.MonkeyPatch) -> None:
    original = flashinfer.norm.rmsnorm
    vars(facade.norm).pop("rmsnorm", None)
    assert facade.norm.rmsnorm is original
    with monkeypatch.context() as patched:
        patched.delattr(facade.norm, "rmsnorm")
        assert not hasattr(facade.norm, "rmsnorm")
        assert not hasattr(flashinfer.norm, "rmsnorm")
        with pytest.raises(AttributeError):
            del facade.norm.rmsnorm
    assert flashinfer.norm.rmsnorm is original
    assert facade.norm.rmsnorm is original


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("prefill", "BatchPrefillWithPagedKVCacheWrapper"),  # bound by the adapter
        ("prefill", "raw_fa2_plan"),  # added by the adapter
        ("", "supports"),  # the facade's own
        ("", "comm"),  # the facade has its own module in that one's place
    ],
)
@pytest.mark.parametrize("way", ["monkeypatch", "mock"])
def test_assigning_to_what_is_the_facades_leaves_flashinfer_alone(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, way: str
) -> None:
    ours, theirs = facade_module(module), native_module(module)
    original, native, replacement = getattr(ours, name), getattr(theirs, name, MISSING), object()
    try:
        if way == "mock":
            with mock.patch(f"{ours.__name__}.{name}", replacement):
                assert getattr(ours, name) is replacement
                assert getattr(theirs, name, MISSING) is native
        else:
            with monkeypatch.context() as patched:
                patched.setattr(ours, name, replacement)
                assert getattr(ours, name) is replacement
                assert getattr(theirs, name, MISSING) is native
        assert getattr(ours, name) is original
        assert getattr(theirs, name, MISSING) is native
    finally:
        if native is not MISSING:
            setattr(theirs, name, native)


def test_a_new_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(facade.norm, "a_new_name", 1, raising=False)
        assert facade.norm.a_new_name == 1
        patched.setattr(facade.norm, "a_new_name", 2)
        assert facade.norm.a_new_name == 2
    assert not hasattr(facade.norm, "a_new_name")
    assert not hasattr(flashinfer.norm, "a_new_name")


# Listings.


@pytest.mark.parametrize("module", sorted({"", "comm", "norm", *ADAPTED_MODULES}))
def test_dir_lists_what_can_be_read(module: str) -> None:
    native = {name for name in dir(native_module(module)) if not name.startswith("_")}
    here = [name for name in ADAPTER.names if name.rpartition(".")[0] == module and namespace.is_available(name)]
    listed = dir(facade_module(module))  # last: asking for a name may import a submodule, which is a name then
    assert listed == sorted(set(listed))
    assert native | {name.rpartition(".")[2] for name in here} <= set(listed)
    added = {name for name in set(listed) - native if not name.startswith("__")}
    assert [name for name in added if not hasattr(facade_module(module), name)] == []


def test_dir_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in ADAPTED_MODULES:
            dir(facade_module(module))


def test_a_star_import_brings_flashinfers_names_and_ours() -> None:
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    exec("from flashinfer_compat import *", ours)
    exec("from flashinfer import *", theirs)
    additions = {name for name in ADAPTER.names if "." not in name and name not in MISSING_HERE}
    assert set(theirs) <= set(ours)
    assert {
        name for name in set(ours) - set(theirs) - set(dir(flashinfer)) if not name.startswith("_")
    } - additions == {
        *("CompatError", "CompatWarning", "FeatureUnavailable", "InvalidArgument", "InvalidPlan", "Support"),
        *("RoundError", "UnsupportedArgument", "UnsupportedCombination", "UnsupportedRelease"),
        *("explain", "flashinfer_version", "include_dirs", "patch", "report", "require", "supports", "unpatch"),
        "use_reference",
    }


def test_names_of_our_own_are_none_of_flashinfers() -> None:
    assert flashinfer.__file__ is not None
    package = Path(flashinfer.__file__).parent
    modules = {path.stem for path in package.iterdir() if path.suffix in ("", ".py", ".so")}
    ours = {module.name for module in pkgutil.iter_modules(facade.__path__)} - {"__main__"}
    ours |= {"supports", "require", "report", "explain", "Support", "flashinfer_version", "patch", "unpatch"}
    ours |= {"include_dirs"}
    ours |= {name for name in vars(importlib.import_module("flashinfer_compat.errors")) if name[:1].isupper()}
    assert ours & (modules | set(dir(flashinfer))) == set()


# Deprecated names.


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, by_method in ADAPTER.names.items()
        if any(isinstance(line, (Moved, Retired)) and line.instead for line in by_method.get("", ()))
    ],
)
def test_an_older_spelling_works_and_says_what_to_use(name: str, release: str) -> None:
    (line,) = (line for line in ADAPTER.names[name][""] if isinstance(line, (Moved, Retired)))
    module, _, attribute = name.rpartition(".")
    facade_name = facade_module(module).__name__
    vars(facade_module(module)).pop(attribute, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(f"from {facade_name} import {attribute}", __file__, "exec"), {})
        exec(compile(f"from {facade_name} import {attribute}", __file__, "exec"), {})
    native = namespace.native_object(name)
    if native is not MISSING:
        ours = getattr(facade_module(module), attribute)
        assert ours is native or ours.__name__ == native.__name__, "adapted, if it is not FlashInfer's own"
        assert caught == []
        return
    (warning,) = caught
    assert warning.category is DeprecationWarning
    assert str(warning.message) == f"flashinfer.{name} is gone from FlashInfer {release}; use {line.instead}"
    assert warning.filename == __file__, "the warning points at the caller"


@pytest.mark.parametrize("name", sorted(ADAPTER.names))
def test_only_names_that_are_gone_from_the_newest_release_are_deprecated(name: str) -> None:
    # The contract's names are 0.7.4's; of the others a warning says what to use.
    lived = lifetime(name)
    gone = lived is not None and "0.7.4" not in lived.releases
    # Functions beside MnnvlMoe, which the recorded surfaces do not have.
    gone = gone or (name.startswith("comm.trtllm_alltoall.") and lived is None)
    gone = gone or name in (
        "comm.trtllm_moe_alltoall.moe_a2a_active_rank_mask",  # known by the name that comm has for it
        "mla._core.get_trtllm_gen_multi_ctas_kv_counter_bytes",
        "prefill.prepare_cudnn_batch_prefill",
        "utils.determine_mla_backend",
    )
    lines = ADAPTER.names[name].get("", ())
    if any(isinstance(line, Gone) for line in lines):
        assert gone
        return
    deprecated = any(isinstance(line, (Moved, Retired)) and line.instead for line in lines)
    assert deprecated is gone


# Objects.


@pytest.mark.parametrize("name", CLASSES)
def test_an_extended_class_is_one_of_flashinfers(name: str) -> None:
    ours, theirs = namespace.facade_object(name), namespace.native_object(name)
    assert ours is not theirs
    assert issubclass(ours, theirs)
    assert not issubclass(theirs, ours)
    assert ours.__name__ == theirs.__name__
    assert ours.__doc__ == theirs.__doc__
    assert namespace.facade_object(f"{ours.__module__}.{ours.__qualname__}".removeprefix("flashinfer_compat.")) is ours
    # What FlashInfer says of its own classes holds for the facade's.
    for other in CLASSES:
        if issubclass(theirs, namespace.native_object(other)):
            assert issubclass(ours, namespace.facade_object(other))


def test_subclasses_follow() -> None:
    assert issubclass(
        facade.CUDAGraphBatchDecodeWithPagedKVCacheWrapper, facade.decode.BatchDecodeWithPagedKVCacheWrapper
    )
    assert issubclass(facade.BatchAttentionWithAttentionSinkWrapper, facade.BatchPrefillWithPagedKVCacheWrapper)


OBJECTS = {
    "enum member": lambda: facade.utils.PosEncodingMode.ROPE_LLAMA,
    "instance": lambda: facade.comm.Mapping(world_size=4, rank=1, tp_size=4),
    "class": lambda: facade.cascade.MultiLevelCascadeAttentionWrapper,
    "extended class": lambda: facade.BatchPrefillWithPagedKVCacheWrapper,
    "extended subclass": lambda: facade.decode.CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
    "function": lambda: facade.norm.rmsnorm,
    "adapted function": lambda: facade.prefill.trtllm_batch_context_with_kv_cache,
    "adapted method": lambda: facade.decode.BatchDecodeWithPagedKVCacheWrapper.plan,
    "added function": lambda: facade.mla.multi_ctas_kv_counter_bytes,
}


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize(
    "duplicate",
    [lambda value: pickle.loads(pickle.dumps(value)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deep"],
)
def test_pickle_and_copy(kind: str, duplicate: Any) -> None:
    value = OBJECTS[kind]()
    copied = duplicate(value)
    if kind == "instance":
        assert type(copied) is flashinfer.comm.Mapping
        assert copied is not value
        assert vars(copied) == vars(value)
        assert copied == value
    else:
        assert copied is value


def test_an_exception_of_flashinfer_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(facade.utils.BackendSupportedError("no backend")))
    assert type(error) is flashinfer.utils.BackendSupportedError
    assert str(error) == "no backend"


# Processes and threads.


def resolve_in_threads() -> list[list[str]]:
    """16 threads that read adapted names at once, the import of FlashInfer included: which came out twofold."""
    import sys
    import threading

    from flashinfer_compat import namespace

    assert not {"flashinfer", "torch"} & set(sys.modules), "FlashInfer is imported with the first name"
    names = [
        *("norm.rmsnorm", "comm.Mapping", "xqa", "BatchPrefillWithPagedKVCacheWrapper"),
        *("CUDAGraphBatchDecodeWithPagedKVCacheWrapper", "attention._core.BatchAttentionWithAttentionSinkWrapper"),
        *("prefill.BatchPrefillWithPagedKVCacheWrapper", "decode.BatchDecodeWithPagedKVCacheWrapper"),
        *("prefill.raw_fa2_plan", "prefill.trtllm_batch_context_with_kv_cache", "mla.BatchMLAPagedAttentionWrapper"),
    ]
    sys.setswitchinterval(1e-5)
    start = threading.Barrier(16)
    seen, failed = [], []

    def read(first):
        start.wait()
        try:
            seen.append({name: namespace.facade_object(name) for name in names[first:] + names[:first]})
        except BaseException as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=read, args=(first % len(names),)) for first in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [
        [name for name in names if any(found[name] is not seen[0][name] for found in seen)],
        failed,
        [str(len(seen))],
    ]


def test_threads_get_one_object(fresh: Any) -> None:
    assert fresh(resolve_in_threads) == [[], [], ["16"]]


def fork_while_resolving() -> list[int]:
    """Children forked while another thread makes bindings: their exit statuses, 0 where they could resolve."""
    import os
    import threading

    import flashinfer_compat
    from flashinfer_compat import namespace

    names = ["BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper", "raw_fa2_plan"]
    prefill = flashinfer_compat.prefill
    stop, resolving = threading.Event(), threading.Event()

    def resolve():
        while not stop.is_set():
            for name in names:
                vars(prefill).pop(name, None)
                getattr(prefill, name)
            resolving.set()

    thread = threading.Thread(target=resolve)
    thread.start()
    resolving.wait()
    statuses = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            try:
                own = [namespace.facade_object(f"prefill.{name}") for name in names]
                again = [namespace.facade_object(f"prefill.{name}") for name in names]
                other = namespace.facade_object("decode.CUDAGraphBatchDecodeWithPagedKVCacheWrapper")
                parent = namespace.facade_object("decode.BatchDecodeWithPagedKVCacheWrapper")
                os._exit(0 if own == again and issubclass(other, parent) else 1)
            except BaseException:
                os._exit(2)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    thread.join()
    return statuses


@needs_fork
def test_a_forked_child_resolves(fresh: Any) -> None:
    assert fresh(fork_while_resolving) == [0] * 8


def test_a_spawned_process_gets_the_same() -> None:
    by_reference = [
        facade.BatchPrefillWithPagedKVCacheWrapper,
        facade.prefill.trtllm_batch_context_with_kv_cache,
        facade.utils.PosEncodingMode.NONE,
    ]
    by_value = facade.comm.Mapping(world_size=2, rank=1, tp_size=2)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        *same, copied = pool.map(copy.copy, [*by_reference, by_value])
        (name,) = pool.map(repr, by_reference[:1])
    assert [one is other for one, other in zip(by_reference, same, strict=True)] == [True, True, True]
    assert copied == by_value
    assert name == "<class 'flashinfer_compat.prefill.BatchPrefillWithPagedKVCacheWrapper'>"


# The table is complete.


def subclasses(of: type) -> Iterator[type]:
    for subclass in of.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


@pytest.mark.parametrize("name", CLASSES)
def test_every_subclass_of_an_extended_class_has_its_line(name: str) -> None:
    lines = {namespace.native_object(known) for known in CLASSES}
    theirs = [cls for cls in subclasses(namespace.native_object(name)) if cls.__module__.startswith("flashinfer.")]
    assert [cls for cls in theirs if cls not in lines] == []


@pytest.mark.parametrize("key", sorted(ADAPTER.lines))
def test_every_line(key: str) -> None:
    name, method = split(key)
    lines = ADAPTER.lines[key]
    for line in lines:
        assert len(line.note.split()) >= 3, "a note says in a sentence what is done"
        assert line.note == line.note.strip()
        if hasattr(line, "to"):
            where, _, attribute = line.to.partition(":")
            assert hasattr(native_module(where), attribute), "where it is now"
    own_lines = [line for line in ADAPTER.names[name].get("", ()) if isinstance(line, NameLine)]
    if any(not isinstance(line, (Extended, Follows)) for line in own_lines):
        return  # a name that FlashInfer may not have here
    try:
        native = namespace.native_object(name)
    except ModuleNotFoundError:
        return  # of another package's, which FlashInfer does without here
    if native is MISSING:
        surface = store.open_surface(ADAPTER.release)
        assert namespace.absence(name) or surface.find(name), "a name that other releases have, or this one elsewhere"
    else:
        bound = namespace.facade_object(name) if any(isinstance(line, Extended) for line in own_lines) else native
        assert not method or hasattr(bound, method), "a method that FlashInfer has, or the facade gives its class"


@pytest.mark.parametrize("name", sorted(ADAPTER.names))
def test_every_available_name_is_bound(name: str) -> None:
    if name in MISSING_HERE or not namespace.is_available(name):
        pytest.skip("this release lacks it, or a package that it needs is missing")
    if namespace.native_object(name) is None:
        pytest.skip("FlashInfer could not import it here")
    assert namespace.facade_object(name) is not None
    assert namespace.facade_object(name) is namespace.facade_object(name)


# 0.7.3, which is on no index: the code of 0.7.4 under its number.


def rules_that_vanish() -> dict[str, Any]:
    """Where 0.7.4's signatures already have what 0.7.3's table adds."""
    import flashinfer

    import flashinfer_compat as facade

    def same(ours, theirs):
        return ours is theirs

    prefill, decode = (
        facade.prefill.BatchPrefillWithPagedKVCacheWrapper,
        facade.decode.BatchDecodeWithPagedKVCacheWrapper,
    )
    return {
        "report": {name: facade.report()[name] for name in ("flashinfer", "adapter", "inferred")},
        "native": [
            same(prefill.__init__, flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper.__init__),
            same(prefill.plan, flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper.plan),
            same(decode.__init__, flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper.__init__),
            same(facade.decode.trtllm_batch_decode_with_kv_cache, flashinfer.decode.trtllm_batch_decode_with_kv_cache),
            same(facade.mla.trtllm_batch_decode_sparse_mla_dsv4, flashinfer.mla.trtllm_batch_decode_sparse_mla_dsv4),
        ],
        "one sink wrapper": same(
            facade.BatchDecodeWithAttentionSinkWrapper, facade.attention.BatchDecodeWithAttentionSinkWrapper
        ),
        "a decode wrapper": issubclass(facade.BatchDecodeWithAttentionSinkWrapper, decode),
    }


@pytest.mark.skipif(facade.flashinfer_version != "0.7.4", reason="0.7.3 is tried on the code of 0.7.4")
def test_0_7_3_is_settled_by_the_installed_signatures(fresh: Any) -> None:
    assert fresh(rules_that_vanish, presented_as="0.7.3") == {
        "report": {"flashinfer": "0.7.3", "adapter": "0.7.3", "inferred": True},
        "native": [True] * 5,
        "one sink wrapper": True,
        "a decode wrapper": True,
    }


@pytest.mark.parametrize("first", ["supports", "import", "dir", "explain"])
def test_a_flashinfer_that_comes_to_the_path_later(fresh: Any, first: str, release: str) -> None:
    """Its folder may be added by a program, or by a start-up file behind ours: nothing was read, so nothing stands."""

    def later(first: str) -> Any:
        import importlib.metadata
        import sys

        path, version = list(sys.path), importlib.metadata.version
        sys.path[:] = [each for each in path if "site-packages" not in each]

        def none(name: str) -> str:
            raise importlib.metadata.PackageNotFoundError(name)

        importlib.metadata.version = none
        import flashinfer_compat

        before = [flashinfer_compat.flashinfer_version, str(flashinfer_compat.supports("prefill.uniform_q_len"))]
        sys.path[:], importlib.metadata.version = path, version
        if first == "import":
            import flashinfer_compat.sampling
        elif first == "dir":
            assert "BatchPrefillWithPagedKVCacheWrapper" in dir(flashinfer_compat)
        else:
            getattr(flashinfer_compat, first)("prefill.uniform_q_len")
        report = flashinfer_compat.report()
        return [*before, report["adapter"], report["flashinfer"] == flashinfer_compat.flashinfer_version]

    assert fresh(later, first) == [None, "unavailable", release, True]
