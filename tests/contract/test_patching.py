"""Code that imports flashinfer itself, under `patch()`, on the real wheel; each in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flashinfer_compat
from flashinfer_compat.patching import startup
from flashinfer_compat.patching.as_release import written
from flashinfer_compat.surfaces.model import Parameter

Fresh = Callable[..., Any]
TREE = str(Path(flashinfer_compat.__path__[0]).parent)


def run_python(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), TREE)))
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_importing_flashinfer_stays_the_programs_affair(fresh: Fresh) -> None:
    def loaded() -> Any:
        import sys

        import flashinfer_compat

        flashinfer_compat.patch()
        return [name for name in ("flashinfer", "torch") if name in sys.modules]

    assert fresh(loaded) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_engine_gets_the_facades_objects_and_flashinfer_keeps_its_own(fresh: Fresh, when: str) -> None:
    def look(when: str) -> Any:
        import flashinfer_compat

        if when == "before":
            flashinfer_compat.patch()
        import flashinfer
        import flashinfer.sampling

        if when == "after":
            flashinfer_compat.patch()
        from flashinfer.prefill import BatchPrefillWithPagedKVCacheWrapper, fast_prefill_plan
        from flashinfer.sampling import top_k_sampling_from_probs

        name = "top_k_sampling_from_probs"
        return {
            "imported": top_k_sampling_from_probs is getattr(flashinfer_compat.sampling, name),
            "read": getattr(flashinfer.sampling, name) is top_k_sampling_from_probs,
            "exported elsewhere": getattr(flashinfer, name) is top_k_sampling_from_probs,
            "class": BatchPrefillWithPagedKVCacheWrapper is flashinfer_compat.BatchPrefillWithPagedKVCacheWrapper,
            "added": fast_prefill_plan is flashinfer_compat.prefill.fast_prefill_plan,
            "flashinfer's own": vars(flashinfer.sampling)[name].__module__,
            "untouched": flashinfer.norm.rmsnorm is vars(flashinfer.norm)["rmsnorm"],
        }

    found = fresh(look, when)
    assert found.pop("flashinfer's own") == "flashinfer.sampling"
    assert set(found.values()) == {True}


def test_what_needs_no_adaptation_is_read_as_plainly_as_before(fresh: Fresh) -> None:
    """A name with lines of which none applies on this release is a plain attribute after its first reading."""

    def still_dressed() -> Any:
        import flashinfer_compat

        flashinfer_compat.patch()
        import flashinfer

        names = [name for name in vars(flashinfer) if not name.startswith("_")]
        values = {name: getattr(flashinfer, name) for name in names}
        dressed = [name for name in vars(type(flashinfer)) if not name.startswith("__")]
        return [name for name in dressed if name in values and values[name] is vars(flashinfer)[name]]

    assert fresh(still_dressed) == []


def test_a_missing_name_says_which_releases_have_it(fresh: Fresh, release: str) -> None:
    def missing() -> Any:
        import flashinfer_compat

        flashinfer_compat.patch()
        import flashinfer
        import flashinfer.attention

        told = [hasattr(flashinfer.attention, "BatchDecodeWithAttentionSinkWrapper")]
        for statement in (
            "from flashinfer.attention import BatchDecodeWithAttentionSinkWrapper",
            "from flashinfer.attention._core import BatchDecodeWithAttentionSinkWrapper",
            "from flashinfer.norm import no_such_name",
            "import flashinfer.no_such_module",
        ):
            try:
                exec(statement)
                told.append("imported")
            except ImportError as error:
                told.append(str(error))
        return told

    has, *told = fresh(missing)
    assert has == (release in ("0.7.3", "0.7.4"))
    if has:
        assert told[:2] == ["imported", "imported"]
    else:
        assert all("FlashInfer 0.7.4 and later have it" in one for one in told[:2])
    assert "no_such_name" in told[2]
    assert "no_such_module" in told[3]


def test_it_is_undone_and_done_again(fresh: Fresh) -> None:
    def undo() -> Any:
        import multiprocessing.spawn
        import sys

        import flashinfer
        import flashinfer.attention

        import flashinfer_compat

        def state() -> Any:
            return [
                type(flashinfer).__name__,
                type(flashinfer) is type(sys),
                "__getattr__" in vars(flashinfer.sampling),
                len(sys.meta_path),
                multiprocessing.spawn.get_preparation_data.__module__,
                flashinfer.sampling.top_k_sampling_from_probs.__module__,
            ]

        before = state()
        flashinfer_compat.patch()
        flashinfer_compat.patch()
        patched = state()
        flashinfer_compat.unpatch()
        flashinfer_compat.unpatch()
        after = state()
        flashinfer_compat.patch()
        again = state()
        return [before == after, patched == again, before != patched, patched[-1]]

    assert fresh(undo) == [True, True, True, "flashinfer_compat.sampling"]


def test_modules_that_imported_before_are_named(fresh: Fresh) -> None:
    def warned() -> Any:
        import sys
        import types
        import warnings

        engine = types.ModuleType("engine_of_ours")
        sys.modules["engine_of_ours"] = engine
        exec("from flashinfer import top_k_sampling_from_probs as sample, rmsnorm", vars(engine))
        import flashinfer_compat

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", flashinfer_compat.CompatWarning)
            flashinfer_compat.patch()
        return [str(one.message) for one in caught if one.category is flashinfer_compat.CompatWarning]

    (told,) = fresh(warned)
    assert "engine_of_ours: sample." in told


def test_what_is_assigned_reaches_flashinfer_and_can_be_put_back(fresh: Fresh) -> None:
    def assign() -> Any:
        from unittest import mock

        import flashinfer_compat

        flashinfer_compat.patch()
        import flashinfer.sampling as sampling

        facade, native = sampling.softmax, vars(sampling)["softmax"]
        told = []
        with mock.patch.object(sampling, "softmax", len):
            told += [sampling.softmax is len, vars(sampling)["softmax"] is len]
        told += [sampling.softmax is facade, vars(sampling)["softmax"] is native]
        sampling.softmax = len
        del sampling.softmax
        told += [sampling.softmax is facade, vars(sampling)["softmax"] is native]
        return told

    assert fresh(assign) == [True] * 6


def test_what_was_replaced_before_the_patch_stays_the_programs(fresh: Fresh) -> None:
    """FlashInfer's lines say nothing of it; taken back, or put back from before, the name is the facade's."""

    def replaced() -> Any:
        import flashinfer.sampling as sampling

        native = sampling.top_k_sampling_from_probs
        sampling.top_k_sampling_from_probs = len
        import flashinfer_compat

        flashinfer_compat.patch()
        told = [sampling.top_k_sampling_from_probs is len]
        sampling.top_k_sampling_from_probs = native
        told += [sampling.top_k_sampling_from_probs.__module__, vars(sampling)["top_k_sampling_from_probs"] is native]
        sampling.top_k_sampling_from_probs = len
        flashinfer_compat.unpatch()
        told += [sampling.top_k_sampling_from_probs is len]
        flashinfer_compat.patch()
        told += [sampling.top_k_sampling_from_probs is len]
        return told

    assert fresh(replaced) == [True, "flashinfer_compat.sampling", True, True, True]


def test_reading_while_a_name_is_replaced_settles_nothing(fresh: Fresh) -> None:
    """Not of FlashInfer's other name for it, nor of the facade's, nor where the module's dictionary was written to."""

    def read() -> Any:
        from unittest import mock

        import flashinfer_compat

        flashinfer_compat.patch()
        import flashinfer
        import flashinfer.sampling as sampling

        told = []
        with mock.patch("flashinfer.sampling.top_k_sampling_from_probs", len):
            told.append(flashinfer.top_k_sampling_from_probs.__module__)
        told.append(flashinfer.top_k_sampling_from_probs is sampling.top_k_sampling_from_probs)
        with mock.patch("flashinfer.sampling.top_p_sampling_from_probs", len):
            told.append(flashinfer_compat.sampling.top_p_sampling_from_probs is len)
        told.append(sampling.top_p_sampling_from_probs is flashinfer_compat.sampling.top_p_sampling_from_probs)
        told.append(sampling.top_p_sampling_from_probs.__module__)
        for _ in range(2):
            with mock.patch.dict(vars(sampling), {"min_p_sampling_from_probs": len}):
                told.append(sampling.min_p_sampling_from_probs is len)
            told.append(sampling.min_p_sampling_from_probs.__module__)
        return told

    facades = "flashinfer_compat.sampling"
    assert fresh(read) == [facades, True, True, True, facades, True, facades, True, facades]


def test_a_reloaded_module_is_dressed_anew(fresh: Fresh) -> None:
    def reload() -> Any:
        import importlib
        from unittest import mock

        import flashinfer_compat

        flashinfer_compat.patch()
        import flashinfer.sampling as sampling

        told = [sampling.top_k_renorm_probs.__module__]
        importlib.reload(sampling)
        told.append(sampling.top_k_renorm_probs.__module__)
        with mock.patch("flashinfer.sampling.top_k_renorm_probs", len):
            told.append(sampling.top_k_renorm_probs is len)
        told.append(sampling.top_k_renorm_probs.__module__)
        flashinfer_compat.unpatch()
        return [*told, sampling.top_k_renorm_probs.__module__]

    facades = "flashinfer_compat.sampling"
    assert fresh(reload) == [facades, facades, True, facades, "flashinfer.sampling"]


def test_the_release_is_that_of_the_path_when_flashinfer_is_imported(fresh: Fresh, release: str) -> None:
    """A program may put another FlashInfer first, or the only one, once the facade is imported and has patched."""

    def chosen() -> Any:
        import sys

        path = list(sys.path)
        sys.path[:] = [each for each in path if "site-packages" not in each]
        import flashinfer_compat

        before = flashinfer_compat.flashinfer_version
        sys.path[:] = path
        flashinfer_compat.patch()
        __import__("flashinfer.sampling")

        report = flashinfer_compat.report()
        return [before, report["adapter"], flashinfer_compat.flashinfer_version == report["flashinfer"]]

    before, adapter, same = fresh(chosen)
    assert (adapter, same) == (release, True)
    assert before in (None, release)  # the wheel's folder may be called otherwise


def test_a_name_is_deleted_and_put_back(fresh: Fresh) -> None:
    """As monkeypatch.delattr does, to see what an engine does without it: a name of FlashInfer's, and one supplied."""

    def deleted() -> Any:
        import pytest

        import flashinfer_compat

        flashinfer_compat.patch()
        import flashinfer.prefill

        told = []
        for name in ("BatchPrefillWithPagedKVCacheWrapper", "fast_prefill_plan"):
            before = getattr(flashinfer.prefill, name)
            held = vars(flashinfer.prefill).get(name)
            with pytest.MonkeyPatch.context() as monkeypatch:
                monkeypatch.delattr(flashinfer.prefill, name)
                told += [hasattr(flashinfer.prefill, name), name in vars(flashinfer.prefill)]
            told += [getattr(flashinfer.prefill, name) is before, vars(flashinfer.prefill).get(name) is held]
        return told

    assert fresh(deleted) == [False, False, True, True] * 2


def test_names_that_flashinfer_lacks_are_listed(fresh: Fresh, release: str) -> None:
    def listed() -> Any:
        import flashinfer_compat

        flashinfer_compat.patch()
        import flashinfer.comm.trtllm_moe_alltoall as module
        import flashinfer.prefill

        everything: dict[str, Any] = {}
        exec("from flashinfer.comm.trtllm_moe_alltoall import *", everything)
        return [
            "fast_prefill_plan" in dir(flashinfer.prefill),
            "MoeAlltoAll" in dir(module),
            "MoeAlltoAll" in everything,
        ]

    assert fresh(listed) == [True, True, True]


def test_what_flashinfer_rebinds_to_an_adapted_object_is_the_facades(fresh: Fresh) -> None:
    """As a module does that fills in a name when it is first needed: the module has no name more than before."""

    def look() -> Any:
        import importlib

        import flashinfer_compat

        flashinfer_compat.patch()
        import flashinfer.jit.env as holder

        original = flashinfer_compat.namespace.native_object("prefill.BatchPrefillWithPagedKVCacheWrapper")
        vars(holder)["os"] = original
        importlib.import_module("flashinfer.green_ctx")  # the next import is when the loaded modules are looked at

        return {
            "facade's": holder.os is flashinfer_compat.prefill.BatchPrefillWithPagedKVCacheWrapper,
            "another": holder.os is not original,
        }

    assert fresh(look) == {"facade's": True, "another": True}


def test_a_module_that_is_imported_again_is_the_facades_again(fresh: Fresh) -> None:
    def again() -> Any:
        import importlib
        import sys

        import flashinfer_compat

        flashinfer_compat.patch()
        name = "top_k_sampling_from_probs"
        first = getattr(importlib.import_module("flashinfer.sampling"), name)
        del sys.modules["flashinfer.sampling"]
        second = getattr(importlib.import_module("flashinfer.sampling"), name)
        return [first.__module__, second.__module__]

    assert fresh(again) == ["flashinfer_compat.sampling"] * 2


def test_a_module_that_another_thread_is_executing_is_left_to_it(fresh: Fresh) -> None:
    """Dressed half-way it would take our way of reading missing names for its own, and lose its own with unpatch()."""

    def half_way() -> Any:
        import importlib
        import threading

        import flashinfer

        import flashinfer_compat
        from flashinfer_compat.patching import imports

        flashinfer_compat.patch()
        inside, go_on = threading.Event(), threading.Event()
        (watcher,) = [one for one in importlib.sys.meta_path if isinstance(one, imports._Watcher)]
        spec = watcher.find_spec("flashinfer.green_ctx", flashinfer.__path__)
        module = importlib.util.module_from_spec(spec)
        importlib.sys.modules[spec.name] = module
        executed = watcher.dressing(lambda module: (inside.set(), go_on.wait(60)))
        thread = threading.Thread(target=executed, args=(module,))
        thread.start()
        inside.wait(60)
        importlib.import_module("flashinfer.fp4_quantization")
        during = "__getattr__" in vars(module)
        go_on.set()
        thread.join()
        return [during, "__getattr__" in vars(module)]

    assert fresh(half_way) == [False, True]


def test_what_the_facade_has_for_itself_does_not_become_flashinfers(fresh: Fresh) -> None:
    def leaks() -> Any:
        import importlib.util

        import flashinfer_compat

        flashinfer_compat.patch()
        import flashinfer
        import flashinfer.__main__ as main

        found = [name for name in ("patch", "supports", "report") if hasattr(flashinfer, name)]
        found += [name for name in ("errors", "selftest") if importlib.util.find_spec(f"flashinfer.{name}")]
        return [*found, hasattr(main, "nothing")]

    assert fresh(leaks) == [False]


def test_unpatch_where_the_parent_of_a_supplied_module_is_gone(fresh: Fresh) -> None:
    def undone() -> Any:
        import sys

        import flashinfer_compat

        flashinfer_compat.patch()
        from flashinfer_compat.patching.modules import EmulatedModule

        sys.modules["flashinfer.gone.away"] = EmulatedModule("flashinfer.gone.away")
        flashinfer_compat.unpatch()
        import flashinfer.sampling

        return ["flashinfer.gone.away" in sys.modules, flashinfer.sampling.softmax.__module__]

    assert fresh(undone) == [False, "flashinfer.sampling"]


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        (["-m", "program", "--help"], ["--help"]),
        (["-m", "program", "-model", "x", "-m", "other"], ["-model", "x", "-m", "other"]),
        (["-mprogram", "--as", "0.7.9"], ["--as", "0.7.9"]),
        (["--as", "0.7.2", "-m", "program", "-vm", "3"], ["-vm", "3"]),
        (["program.py", "-m", "other", "--help"], ["-m", "other", "--help"]),
    ],
)
def test_what_follows_the_program_is_the_programs(tmp_path: Path, arguments: list[str], seen: list[str]) -> None:
    (tmp_path / "program.py").write_text("import sys; print(sys.argv[1:])\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    if arguments[0] == "program.py":
        arguments = [str(tmp_path / "program.py"), *arguments[1:]]
    done = run_python("-m", "flashinfer_compat", "run", *arguments, PYTHONPATH=f"{TREE}{os.pathsep}{path}")
    assert (done.returncode, done.stdout) == (0, f"{seen}\n"), done.stderr[-2000:]


@pytest.mark.parametrize("how", ["script", "module", "folder"])
def test_the_main_module_outlives_its_last_line(tmp_path: Path, how: str) -> None:
    """Threads and exit handlers go on: what they pickle, or spawn, is the main module's."""
    (tmp_path / "engine").mkdir()
    source = (
        "import atexit, multiprocessing, pickle, sys, threading\n"
        "class Request: pass\n"
        "def work(queue): queue.put(pickle.loads(pickle.dumps(Request())).__class__.__module__)\n"
        "def later():\n"
        "    threading.main_thread().join()\n"
        "    print(type(pickle.loads(pickle.dumps(Request()))) is Request)\n"
        "def start():\n"
        "    queue = context.SimpleQueue()\n"
        "    process = context.Process(target=work, args=(queue,))\n"
        "    process.start()\n"
        "    print(queue.get())\n"
        "    process.join()\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    if __spec__ is None or __spec__.name != '__main__': atexit.register(start)\n"
        "    threading.Thread(target=later).start()\n"
    )
    (tmp_path / "engine" / "__main__.py").write_text(source)
    (tmp_path / "engine" / "serve.py").write_text(source)
    program = {"script": ["engine/serve.py"], "module": ["-m", "engine.serve"], "folder": ["engine"]}[how]
    done = run_python("-m", "flashinfer_compat", "run", *program, cwd=tmp_path)
    # A folder's is not imported by what it spawns, with or without `run`.
    expected = "True\n" if how == "folder" else "True\n__mp_main__\n"
    assert done.stdout == expected, done.stderr[-2000:]


def test_the_main_module_looks_as_it_does_without_run(tmp_path: Path) -> None:
    look = (
        "import sys; print(__name__, __spec__ and __spec__.name, __package__, __file__, sys.argv, type(__loader__))\n"
    )
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__main__.py").write_text(look)
    (tmp_path / "engine" / "__init__.py").write_text("")
    (tmp_path / "serve").write_text(look)
    with zipfile.ZipFile(tmp_path / "engine.pyz", "w") as archive:
        archive.writestr("__main__.py", look)
    for program in (["serve", "1"], ["engine"], ["engine.pyz", "-x"], ["-m", "engine", "2"], ["-m", "engine.__main__"]):
        plain = run_python(*program, cwd=tmp_path)
        under = run_python("-m", "flashinfer_compat", "run", *program, cwd=tmp_path)
        assert (under.returncode, under.stdout) == (0, plain.stdout), under.stderr[-2000:]


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "__init__.py").write_text("import no_such_package_of_its\n")
    (tmp_path / "broken.py").write_text("x = = 1\n")
    for program, told in (
        (["-m", "no_such_module"], "Error: There is no module no_such_module that can be run.\n"),
        (["-m", "sys"], "Error: There is no module sys that can be run.\n"),
        (["no_such.py"], "Error: no_such.py cannot be run: No such file or directory.\n"),
        (["lacking"], "Error: There is no module lacking that can be run.\n"),
    ):
        done = run_python("-m", "flashinfer_compat", "run", *program, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (1, told)
    plain = run_python("broken.py", cwd=tmp_path)
    done = run_python("-m", "flashinfer_compat", "run", "broken.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, plain.stderr)
    done = run_python("-m", "flashinfer_compat", "run", "-m", "lacking.serve", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "No module named 'no_such_package_of_its'" in done.stderr


@pytest.mark.parametrize("error", ["EOFError('over')", "BrokenPipeError('gone')", "KeyboardInterrupt()"])
def test_how_a_program_ends_is_told_as_ever(tmp_path: Path, error: str) -> None:
    (tmp_path / "program.py").write_text(f"import errno\nraise {error}\n")
    done = run_python("-m", "flashinfer_compat", "run", str(tmp_path / "program.py"))
    assert done.returncode == (130 if "Keyboard" in error else 1)
    assert done.stderr.rstrip().splitlines()[-1].startswith(error.partition("(")[0])


def test_a_script_behind_a_link_sees_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "beside.py").write_text("NAME = 'beside'\n")
    (tmp_path / "real" / "app.py").write_text("import beside; print(beside.NAME)\n")
    (tmp_path / "app.py").symlink_to(tmp_path / "real" / "app.py")
    done = run_python("-m", "flashinfer_compat", "run", str(tmp_path / "app.py"))
    assert (done.returncode, done.stdout) == (0, "beside\n"), done.stderr[-2000:]


def test_a_spawned_process_finds_flashinfer_where_its_parent_did(tmp_path: Path) -> None:
    """On a path that the program itself put into sys.path."""
    script = tmp_path / "engine.py"
    script.write_text(
        "import sys\n"
        "def work(queue):\n"
        "    from flashinfer.sampling import top_k_sampling_from_probs as sample\n"
        "    queue.put(sample.__module__)\n"
        "if __name__ == '__main__':\n"
        f"    sys.path += {[*filter(None, sys.path), TREE]!r}\n"
        "    import multiprocessing, flashinfer_compat\n"
        "    flashinfer_compat.patch()\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=work, args=(queue,))\n"
        "    process.start()\n"
        "    print(queue.get(timeout=120))\n"
        "    process.join()\n"
    )
    bare = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    done = subprocess.run(
        [str(bare), "-W", "ignore", "-S", "-E", str(script)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "flashinfer_compat.sampling\n"), done.stderr[-2000:]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_processes_that_it_starts_are_patched(tmp_path: Path, method: str) -> None:
    script = tmp_path / "engine.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "def work(queue):\n"
        "    from flashinfer.sampling import top_k_sampling_from_probs as sample\n"
        "    queue.put(sample.__module__)\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=work, args=(queue,))\n"
        "    process.start()\n"
        "    print(queue.get())\n"
        "    process.join()\n"
        "    sys.exit(process.exitcode)\n"
    )
    done = run_python("-m", "flashinfer_compat", "run", str(script))
    assert (done.returncode, done.stdout) == (0, "flashinfer_compat.sampling\n"), done.stderr[-2000:]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_has_its_parents_latest_patch_and_path(tmp_path: Path, method: str) -> None:
    """A fork server hands on the patch of its start; sys.path may hold what is no string."""
    (tmp_path / "engine.py").write_text(
        "import multiprocessing, pathlib, sys\n"
        "def work(queue):\n"
        "    from flashinfer.quantization import fp4_quantize\n"
        "    import inspect\n"
        "    queue.put(inspect.signature(fp4_quantize).parameters['backend'].default)\n"
        "def told():\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=work, args=(queue,))\n"
        "    process.start()\n"
        "    process.join()\n"
        "    return queue.get(timeout=5), process.exitcode\n"
        "if __name__ == '__main__':\n"
        "    import flashinfer_compat\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    if sys.argv[1] == 'spawn': sys.path.append(pathlib.Path('nowhere'))\n"
        "    flashinfer_compat.patch()\n"
        "    print(told())\n"
        "    flashinfer_compat.unpatch()\n"
        "    flashinfer_compat.patch('0.7.2')\n"
        "    print(told())\n"
    )
    done = run_python(str(tmp_path / "engine.py"), method)
    assert (done.returncode, done.stdout) == (0, "('auto', 0)\n('cuda', 0)\n"), done.stderr[-2000:]


def test_what_others_put_around_the_preparation_stays(fresh: Fresh) -> None:
    """As coverage.py does for the processes that a program starts."""

    def around() -> Any:
        from multiprocessing import spawn

        import flashinfer_compat

        own = spawn.get_preparation_data
        flashinfer_compat.patch()
        ours = spawn.get_preparation_data
        spawn.get_preparation_data = lambda name: {**ours(name), "coverage": 1}
        flashinfer_compat.unpatch()
        told = [sorted({"coverage", "flashinfer_compat"} & {*spawn.get_preparation_data("x")})]
        flashinfer_compat.patch()
        told.append(sorted({"coverage", "flashinfer_compat"} & {*spawn.get_preparation_data("x")}))
        return [*told, spawn.get_preparation_data is own]

    assert fresh(around) == [["coverage"], ["coverage", "flashinfer_compat"], False]


def test_what_a_fork_server_preloads_is_patched(tmp_path: Path) -> None:
    (tmp_path / "preloaded.py").write_text(
        "from flashinfer.sampling import top_k_sampling_from_probs as sample\nHELD = sample.__module__\n"
    )
    (tmp_path / "engine.py").write_text(
        "import multiprocessing\n"
        "def work(queue):\n"
        "    import sys\n"
        "    queue.put(['preloaded' in sys.modules, __import__('preloaded').HELD])\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('forkserver')\n"
        "    context.set_forkserver_preload(['preloaded'])\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=work, args=(queue,))\n"
        "    process.start()\n"
        "    print(queue.get(timeout=120))\n"
        "    process.join()\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), TREE])
    done = run_python("-m", "flashinfer_compat", "run", str(tmp_path / "engine.py"), PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (0, "[True, 'flashinfer_compat.sampling']\n"), done.stderr[-2000:]


def test_run_gives_a_program_its_arguments_and_its_exit_status(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    script = tmp_path / "engine.py"
    script.write_text(
        "import sys, beside\nfrom flashinfer.prefill import fast_prefill_plan\n"
        "print(__name__, sys.argv[1:], beside.NAME)\nsys.exit(7)\n"
    )
    done = run_python("-m", "flashinfer_compat", "run", str(script), "--as", "x", "-m", "y")
    assert (done.returncode, done.stdout) == (7, "__main__ ['--as', 'x', '-m', 'y'] beside\n"), done.stderr[-2000:]
    module = run_python("-m", "flashinfer_compat", "run", "-m", "engine", "--tp", "2", PYTHONPATH=f"{TREE}:{tmp_path}")
    assert (module.returncode, module.stdout) == (7, "__main__ ['--tp', '2'] beside\n"), module.stderr[-2000:]


def test_a_programs_own_error_keeps_its_traceback(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text("import flashinfer_compat\nflashinfer_compat.require('decode.no_such_feature')\n")
    done = run_python("-m", "flashinfer_compat", "run", str(script))
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "engine.py" in done.stderr


def test_a_release_that_nobody_wrote_code_against_is_refused(tmp_path: Path) -> None:
    done = run_python("-m", "flashinfer_compat", "run", "--as", "0.6.9", "-m", "this")
    assert done.returncode == 1
    assert "FlashInfer 0.6.9 is no release to write code against. Supported: 0.7.1," in done.stderr
    assert "Traceback" not in done.stderr


class TestStartUpFile:
    """What `enable` writes, in an environment of which FlashInfer's folder comes to sys.path behind it."""

    LOOK = (
        "import sys; print('flashinfer_compat' in sys.modules); {also}"
        "import flashinfer.sampling; print(flashinfer.sampling.top_k_sampling_from_probs.__module__)"
    )

    @pytest.fixture
    def started(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
        monkeypatch.setattr(startup.sysconfig, "get_path", lambda name: str(tmp_path))
        assert startup.enable() == tmp_path / startup.FILE
        (tmp_path / "later.pth").write_text("".join(f"{path}\n" for path in [*filter(None, sys.path), TREE]))

        def run(value: str, *, also: str = "", look: str = self.LOOK) -> subprocess.CompletedProcess[str]:
            bare = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
            code = f"import site; site.addsitedir({str(tmp_path)!r}); {look.format(also=also)}"
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            return subprocess.run(
                [str(bare), "-S", "-W", "ignore", "-c", code],
                env={**environment, startup.VARIABLE: value},
                capture_output=True,
                text=True,
                check=False,
            )

        return run

    @pytest.fixture
    def facade_alone(self, tmp_path: Path) -> Path:
        """A folder of the facade without what else is installed beside it."""
        folder = tmp_path / "alone"
        folder.mkdir()
        (folder / "flashinfer_compat").symlink_to(flashinfer_compat.__path__[0])
        return folder

    @pytest.mark.parametrize(
        ("value", "module"),
        [
            ("", "flashinfer.sampling"),
            ("0", "flashinfer.sampling"),
            ("1", "flashinfer_compat.sampling"),
            (" 1", "flashinfer_compat.sampling"),
            ("0.7.2", "flashinfer_compat.sampling"),
        ],
    )
    def test_patches_as_the_variable_says(self, started: Callable[..., Any], value: str, module: str) -> None:
        done = started(value)
        assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["False", module])

    @pytest.mark.parametrize("value", ["true", "v0.7.2", "0.6.9"])
    def test_another_value_fails_at_each_import(self, started: Callable[..., Any], value: str) -> None:
        """Not as an ImportError, which engines take for "not installed"; and no second import passes by it."""
        look = (
            "import flashinfer_compat as compat\nfor again in range(2):\n"
            "    try:\n        import flashinfer\n"
            "    except compat.CompatError as error:\n        print(isinstance(error, ImportError), error)\n"
        )
        done = started(value, look=f"exec({look!r})")
        told = f"False FLASHINFER_COMPAT_PATCH is '{value}': FlashInfer {value} is no release to write code against."
        assert done.returncode == 0, done.stderr
        assert [line.startswith(told) for line in done.stdout.splitlines()] == [True, True]

    def test_what_the_program_says_itself_comes_first(self, started: Callable[..., Any]) -> None:
        also = "import flashinfer_compat.patching as p; p.patch('0.7.2'); "
        done = started("1", also=also + "print(p._active.as_release); ")
        assert (done.stderr, done.stdout.split()) == ("", ["False", "0.7.2", "flashinfer_compat.sampling"])

    def test_an_import_beside_the_facades_own(self, started: Callable[..., Any]) -> None:
        """Another thread is importing the facade, and has not chosen yet."""
        look = (
            "import sys, threading\n"
            "go, inside = threading.Event(), threading.Event()\n"
            "def slowly(event, arguments):\n"
            "    if event == 'import' and arguments[0] == 'flashinfer_compat.support':\n"
            "        inside.set(); go.wait(60)\n"
            "sys.addaudithook(slowly)\n"
            "thread = threading.Thread(target=__import__, args=('flashinfer_compat',))\n"
            "thread.start(); inside.wait(60)\n"
            "timer = threading.Timer(0.5, go.set); timer.start()\n"
            "import flashinfer.sampling\n"
            "thread.join(); print(flashinfer.sampling.top_k_sampling_from_probs.__module__)\n"
        )
        done = started("1", look=f"exec({look!r})")
        assert (done.stderr, done.stdout) == ("", "flashinfer_compat.sampling\n")

    def test_a_question_before_flashinfer_is_there(
        self, started: Callable[..., Any], tmp_path: Path, facade_alone: Path
    ) -> None:
        paths = [each for each in sys.path if each]
        (tmp_path / "later.pth").write_text(f"{facade_alone}\n")
        also = f"import importlib.util; print(importlib.util.find_spec('flashinfer')); sys.path += {paths!r}; "
        done = started("1", also=also)
        assert (done.stderr, done.stdout.split()) == ("", ["False", "None", "flashinfer_compat.sampling"])

    def test_an_unpatch_of_the_programs_is_meant(self, started: Callable[..., Any]) -> None:
        done = started("1", also="import flashinfer_compat as c; c.patch(); c.unpatch(); ")
        assert (done.stderr, done.stdout.split()) == ("", ["False", "flashinfer.sampling"])

    def test_an_environment_without_flashinfer(
        self, started: Callable[..., Any], tmp_path: Path, facade_alone: Path
    ) -> None:
        (tmp_path / "later.pth").write_text(f"{facade_alone}\n")
        look = "exec('try: import flashinfer\\nexcept ModuleNotFoundError as error: print(error)')"
        done = started("1", look=look)
        assert (done.stderr, done.stdout) == ("", "No module named 'flashinfer'\n")

    def test_is_removed_again(self, started: Callable[..., Any], tmp_path: Path) -> None:
        assert startup.disable() == tmp_path / startup.FILE
        assert startup.disable() is None
        assert started("1").stdout.split() == ["False", "flashinfer.sampling"]


class TestAsRelease:
    """Code written against one release: its positional orders and its defaults, whatever is installed."""

    @pytest.mark.parametrize(
        ("written_against", "backend", "use_fused_finalize"), [("0.7.2", "cuda", True), ("0.7.4", "auto", None)]
    )
    def test_defaults(self, fresh: Fresh, written_against: str, backend: str, use_fused_finalize: bool | None) -> None:
        """0.7.4 changed these."""

        def look(written_against: str) -> Any:
            import inspect

            import flashinfer_compat

            flashinfer_compat.patch(as_release=written_against)
            import flashinfer
            from flashinfer.quantization.fp4_quantization import fp4_quantize

            def default(function: Any, parameter: str) -> Any:
                return inspect.signature(function).parameters[parameter].default

            return [
                default(flashinfer.fp4_quantize, "backend"),
                default(fp4_quantize, "backend"),
                default(flashinfer.fused_moe.cutlass_fused_moe, "use_fused_finalize"),
                # What does not differ is the same object.
                flashinfer.top_k_sampling_from_probs is flashinfer_compat.top_k_sampling_from_probs,
            ]

        assert fresh(look, written_against) == [backend, backend, use_fused_finalize, True]

    def test_positional_order(self, fresh: Fresh) -> None:
        """0.7.4 puts numa_node and others before peer_p2p."""

        def look() -> Any:
            import inspect

            import flashinfer_compat

            flashinfer_compat.patch(as_release="0.7.2")
            from flashinfer.comm import UlyssesRankTopology

            parameters = inspect.signature(UlyssesRankTopology).parameters
            positional = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
            values = list(range(len(positional)))
            made = UlyssesRankTopology(*values)
            return [
                positional.index("peer_p2p"),
                [getattr(made, name) for name in positional] == values,
                UlyssesRankTopology(0).peer_p2p,
            ]

        assert fresh(look) == [5, True, {}]

    def test_one_object_for_all_names_that_it_has(self, fresh: Fresh) -> None:
        def same() -> Any:
            import pickle

            import flashinfer_compat

            flashinfer_compat.patch(as_release="0.7.2")
            import flashinfer
            import flashinfer.comm.ulysses_topology
            import flashinfer.quantization.fp4_quantization as defined

            Topology = flashinfer.comm.UlyssesRankTopology
            made = flashinfer.comm.ulysses_topology.UlyssesRankTopology(1)
            return [
                flashinfer.fp4_quantize is defined.fp4_quantize is flashinfer.quantization.fp4_quantize,
                Topology is type(made),
                made == Topology(1) == pickle.loads(pickle.dumps(made)),
                pickle.loads(pickle.dumps(defined.fp4_quantize)) is flashinfer.fp4_quantize,
            ]

        assert fresh(same) == [True] * 4

    def test_a_place_that_is_gone_is_kept(self) -> None:
        """So that a later argument does not take it; and a parameter's kind counts, not only its name."""

        def now(first: int, last: int = 3, *, added: int = 5) -> tuple[int, int, int]:
            return first, last, added

        then = tuple(
            Parameter(name, default=default)
            for name, default in (("first", None), ("gone", "1"), ("last", "3"), ("added", "5"))
        )
        function = written(now, then, "module.now", "0.7.2")
        assert function(1, last=4) == (1, 4, 5)
        assert function(1, added=6) == (1, 3, 6)
        with pytest.raises(
            flashinfer_compat.UnsupportedArgument, match=r"module\.now\(gone\): FlashInfer 0\.7\.2 took it"
        ):
            function(1, 2, 4)
        without = (Parameter("first"), Parameter("last", default="3"), Parameter("added", default="5"))
        assert written(now, without, "module.now", "0.7.2")(1, 2, 4) == (1, 2, 4)
