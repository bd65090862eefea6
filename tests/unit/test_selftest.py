"""`selftest` on the reference: its cases, what it says and how it exits. Each run is an interpreter of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import flashinfer_compat

torch = pytest.importorskip("torch", reason="the reference is written in PyTorch")
pytest.importorskip("click", reason="the command line is an extra: pip install flashinfer-compat[cli]")
pytest.importorskip("rich", reason="the command line is an extra")

from flashinfer_compat.selftest import building, table  # noqa: E402
from flashinfer_compat.selftest.case import TOLERANCES, Function, Measure, p_value  # noqa: E402
from flashinfer_compat.selftest.cases import CASES  # noqa: E402
from flashinfer_compat.selftest.cases.expert_parallel import CASES as EXPERT_PARALLEL  # noqa: E402
from flashinfer_compat.selftest.library import REFERENCE  # noqa: E402
from flashinfer_compat.selftest.running import Outcome, Result  # noqa: E402

ROOT = Path(flashinfer_compat.__path__[0]).parent
HAS_FLASHINFER = find_spec("flashinfer") is not None
CPU = torch.device("cpu")
#: What the reference has no name for, and where it promises no bits.
UNAVAILABLE = {"chunked prefill, bits of the whole", "MoeAlltoAll, one rank"}
USE = "import flashinfer_compat; flashinfer_compat.use_reference()\n"
NORMS = """
from flashinfer_compat.selftest import cases
cases.CASES = tuple(case for case in cases.CASES if case.name in ("rmsnorm", "rmsnorm, fp16", "gemma_rmsnorm"))
"""


def python(script: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "FLASHINFER_COMPAT_BACKEND"}
    # Threads that wait for each other's turn on a busy machine take a hundred times as long.
    variables["OMP_NUM_THREADS"] = "1"
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=variables, capture_output=True, text=True)


def selftest(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    # A machine with a GPU is to do here what one without does.
    without_gpu = "import torch; torch.cuda.is_available = lambda: False\n"
    return python(
        f"{without_gpu}{before}\nfrom flashinfer_compat.cli import main\nmain({['selftest', *arguments]!r})\n"
    )


@pytest.fixture(scope="module")
def everything() -> subprocess.CompletedProcess[str]:
    return selftest("--json", "--seed", "5")


def test_every_case_is_right(everything: subprocess.CompletedProcess[str]) -> None:
    assert everything.returncode == 0, everything.stderr
    run = json.loads(everything.stdout)
    outcomes = {each["case"]: each["outcome"] for each in run["cases"]}
    assert outcomes == {case.name: "unavailable" if case.name in UNAVAILABLE else "right" for case in CASES}
    for each in run["cases"]:
        if each["outcome"] == "unavailable":
            assert each["features"][-1] in each["reason"]
            assert (each["error"], each["facade_us"]) == (None, None)
        else:
            assert each["reason"] == ""
            assert each["facade_us"] > 0
            assert Measure(each["measure"]).accepts(each["error"], each["tolerance"])


def test_what_is_written(everything: subprocess.CompletedProcess[str]) -> None:
    run = json.loads(everything.stdout)
    assert set(run) == {
        "backend", "because", "flashinfer", "adapter", "inferred", "torch", "device", "seed", "quick", "cases",
    }  # fmt: skip
    assert (run["backend"], run["adapter"], run["seed"], run["quick"]) == ("reference", None, 5, False)
    assert run["torch"] == torch.__version__
    fields = {
        "case", "features", "support", "dtype", "measure", "error", "tolerance", "outcome", "facade_us", "native_us",
        "reason",
    }  # fmt: skip
    assert all(set(each) == fields for each in run["cases"])
    assert {each["native_us"] for each in run["cases"]} == {None}, "there is no FlashInfer to time"
    found = {each["case"]: each for each in run["cases"]}
    assert (found["verify step, uniform_q_len"]["support"], found["rmsnorm"]["support"]) == ("ignored", "emulated")
    assert (found["rmsnorm"]["dtype"], found["rmsnorm, fp16"]["dtype"]) == ("bfloat16", "float16")
    # Rounded once to 8 and to 11 bits: no case compares the reference with itself.
    assert 1e-3 < found["rmsnorm"]["error"] < 2**-8
    assert 1e-4 < found["rmsnorm, fp16"]["error"] < 2**-11


def test_it_says_why_flashinfer_is_not_run(everything: subprocess.CompletedProcess[str]) -> None:
    first, second = everything.stderr.splitlines()[:2]
    why = "is installed and there is no GPU" if HAS_FLASHINFER else "for FlashInfer is not installed"
    assert first.startswith("The reference in plain PyTorch on the CPU, ")
    assert why in first
    assert second == "seed 5"
    assert json.loads(everything.stdout)["because"] in first


def test_a_seed_repeats_a_case_whatever_else_is_run(everything: subprocess.CompletedProcess[str]) -> None:
    def errors(process: subprocess.CompletedProcess[str]) -> dict[str, float]:
        return {each["case"]: each["error"] for each in json.loads(process.stdout)["cases"]}

    every, again = errors(everything), errors(selftest("--format", "json", "--seed", "5", before=NORMS))
    other = errors(selftest("--json", "--seed", "6", before=NORMS))
    assert set(again) == set(other) == {"rmsnorm", "rmsnorm, fp16", "gemma_rmsnorm"}
    assert again == {name: every[name] for name in again}
    assert all(other[name] != every[name] for name in other)


def test_quick_and_a_fresh_seed() -> None:
    some = "paged prefill, causal", "paged prefill, window", "merge_state"
    process = python(f"""
import torch; torch.cuda.is_available = lambda: False
from flashinfer_compat.cli import main
from flashinfer_compat.selftest import cases
cases.CASES = tuple(case for case in cases.CASES if case.name in {some})
for _ in range(2):
    main(["selftest", "--quick"], standalone_mode=False)
""")
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    seeds = [line for line in lines if line.startswith("seed ")]
    assert len(seeds) == len(set(seeds)) == 2
    right = [" ".join(line.split()[1:]).partition(" emulated")[0] for line in lines if line.startswith(" right")]
    assert right == ["paged prefill, causal", "merge_state"] * 2
    assert lines[-1] == "2 right"
    assert 0 < sum(case.quick for case in CASES) < len(CASES)


def test_a_wrong_number_and_an_exception() -> None:
    faulty = """
right = flashinfer_compat.norm.rmsnorm
def broken(*arguments):
    raise RuntimeError("no kernel image")
def scaled(input, weight):
    return right(input, weight) * (1.02 if input.dtype is torch.float16 else 1.0)
flashinfer_compat.norm.rmsnorm, flashinfer_compat.norm.gemma_rmsnorm = scaled, broken
"""
    process = selftest("--seed", "1", before=USE + NORMS + faulty)
    assert process.returncode == 1
    lines = [line.split() for line in process.stdout.splitlines()]
    assert lines[0][:2] == ["The", "reference"]
    told = {" ".join(words[1:3]): words[0] for words in lines if words[0] in ("right", "wrong", "failed")}
    assert told == {"rmsnorm emulated": "right", "rmsnorm, fp16": "wrong", "gemma_rmsnorm emulated": "failed"}
    (wrong,) = [words for words in lines if words[0] == "wrong"]
    assert wrong[-4:-2] == ["2.0e-02", "2.0e-03"]
    assert "gemma_rmsnorm: RuntimeError: no kernel image" in process.stdout
    assert process.stdout.splitlines()[-1] == "1 right, 1 wrong, 1 failed"


def test_plot_without_matplotlib() -> None:
    process = selftest("--plot", "charts", before="import sys; sys.modules['matplotlib'] = None")
    assert (process.returncode, process.stdout) == (1, "")
    assert "--plot needs matplotlib, which is not installed: pip install flashinfer-compat[plot]" in process.stderr


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the charts are an extra: pip install flashinfer-compat[plot]")
    from flashinfer_compat.selftest import plot

    results = [
        Result(
            case=name, features=("norm.rmsnorm",), support="native", dtype="bfloat16", measure=str(Measure.ERROR),
            error=error, tolerance=1e-2, outcome=outcome, facade_us=12.5, native_us=native,
        )
        for name, error, outcome, native in (
            ("right", 1e-3, Outcome.RIGHT, 12.0), ("wrong", 0.5, Outcome.WRONG, None),
            ("exact", 0.0, Outcome.RIGHT, 1.0), ("not a number", None, Outcome.WRONG, None),
        )
    ]  # fmt: skip
    written = plot.draw(results, "FlashInfer 0.7.4", tmp_path / "charts")
    assert [path.name for path in written] == ["errors.png", "speed.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


@pytest.mark.skipif(not HAS_FLASHINFER, reason="needs a FlashInfer that could be run")
def test_the_reference_is_not_taken_where_flashinfer_can_run() -> None:
    process = python("""
import json, torch
torch.cuda.is_available, torch.cuda.current_device = (lambda: True), (lambda: 0)
from flashinfer_compat import namespace
from flashinfer_compat.selftest.setting import settle
setting = settle()
print(json.dumps([str(setting.device), setting.because, namespace.selected.backend]))
""")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == ["cuda:0", "", "flashinfer"]


class TestMeasures:
    def test_error_is_that_of_the_worst_row(self) -> None:
        right = torch.tensor([[3.0, 4.0], [30.0, 40.0], [0.0, 0.0]])
        got = torch.tensor([[3.0, 4.5], [30.0, 41.0], [0.0, 0.0]])
        assert Measure.ERROR.of((got,), (right,)) == pytest.approx(0.1)
        assert Measure.ERROR.of((right, got), (right, right)) == pytest.approx(0.1), "of the worst output"

    def test_infinities_and_what_is_not_a_number(self) -> None:
        right = torch.tensor([[1.0, -torch.inf], [-torch.inf, -torch.inf]])
        assert Measure.ERROR.of((right,), (right,)) == 0
        for wrong in (torch.nan, -torch.inf):
            got = right.clone()
            got[0, 0] = wrong
            assert Measure.ERROR.of((right, got, right), (right, right, right)) == torch.inf
        assert not Measure.ERROR.accepts(torch.inf, 1e-2)

    def test_bits(self) -> None:
        right = torch.tensor([1.0, torch.nan, 0.0]).bfloat16()
        assert Measure.DIFFERING.of((right,), (right.clone(),)) == 0
        assert Measure.DIFFERING.of((torch.tensor([1.0, torch.nan, -0.0]).bfloat16(),), (right,)) == 1

    def test_shapes(self) -> None:
        with pytest.raises(ValueError, match=r"outputs have shapes \[\(2,\)\]; expected are \[\(3,\)\]"):
            Measure.ERROR.of((torch.zeros(2),), (torch.zeros(3),))

    def test_p_value(self) -> None:
        """Of 100 tosses 60 heads: chi-square is 4 with one degree of freedom."""
        tosses = torch.tensor([0] * 60 + [1] * 40)
        assert p_value(tosses, torch.tensor([0.5, 0.5])) == pytest.approx(0.0455, abs=1e-4)
        assert p_value(tosses, torch.tensor([0.6, 0.4])) > 0.999
        assert p_value(tosses, torch.tensor([1.0, 0.0])) == 0, "what cannot be drawn"
        assert p_value(tosses + 1, torch.tensor([0.6, 0.4])) == 0, "out of range"

    def test_a_filter_off_by_one_token_is_found(self) -> None:
        (case,) = [case for case in CASES if case.name == "sampling, top-k"]
        samples = case.workload.prepare(case.draw(3, CPU), REFERENCE).run()
        (exact,) = case.workload.expected(case.draw(3, CPU))
        assert int((exact > 0).sum()) == 20
        assert case.measure.of(samples, (exact,)) >= case.tolerance
        without_last = torch.where(exact == exact[exact > 0].min(), 0, exact)
        assert case.measure.of(samples, (without_last,)) < case.tolerance


def test_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.dtype for case in CASES if case.measure is Measure.ERROR} <= set(TOLERANCES)


@pytest.mark.parametrize("case", [case for case in CASES if isinstance(case.workload, Function)], ids=str)
def test_a_function_is_given_the_same_inputs_by_each_library(case: Any) -> None:
    first, second = (case.workload.arguments(case.draw(4, CPU)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_expert_parallelism_on_the_reference() -> None:
    """The reference's communication, which the facade does not have on the reference."""
    case = EXPERT_PARALLEL[0]
    got = case.workload.prepare(case.draw(1, CPU), REFERENCE).run()
    error = case.measure.of(got, case.workload.expected(case.draw(1, CPU)))
    assert 1e-3 < error < 2**-8


def test_what_is_being_built(tmp_path: Path) -> None:
    def module(name: str, at: float, *, built: bool) -> None:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "build.ninja").write_text("")
        if built:
            (folder / f"{name}.so").write_text("")
        for each in (folder / "build.ninja", folder):
            os.utime(each, (at, at))

    module("norm", 100, built=True)
    module("rope", 200, built=False)
    module("abandoned", 50, built=False)
    assert building.being_built(tmp_path, since=90) == ["rope"]
    assert building.being_built(tmp_path, since=10) == ["abandoned", "rope"]
    assert building.being_built(tmp_path / "nowhere", since=0) == []


def written(version: str, *cases: dict[str, Any]) -> dict[str, Any]:
    return {
        "backend": "flashinfer", "flashinfer": version, "torch": "2.11", "device": "GPU", "seed": 7,
        "cases": list(cases),
    }  # fmt: skip


def found(case: str, **fields: Any) -> dict[str, Any]:
    return {
        "case": case, "dtype": "bfloat16", "measure": "relative error", "tolerance": 1e-2, "outcome": "right",
        "support": "native", "error": 1.5e-3, "facade_us": 10.5, "native_us": 10.0, **fields,
    }  # fmt: skip


def test_the_table_of_several_releases(tmp_path: Path) -> None:
    nothing = {"error": None, "facade_us": None, "native_us": None}
    runs = [
        written(
            "0.7.1",
            found("rmsnorm"),
            found("hint", support="emulated", native_us=None),
            found("scales", support="unavailable", outcome="unavailable", **nothing),
            found("top-p", measure="p-value", tolerance=1e-6, error=0.25),
        ),
        written(
            "0.7.4",
            found("rmsnorm", outcome="wrong", error=0.5),
            found("scales", outcome="failed", **nothing),
            found("top-p", measure="p-value", tolerance=1e-6, error=0.75),
            found("append", measure="entries that differ", tolerance=0.0, error=0.0),
        ),
    ]
    paths = [tmp_path / f"{run['flashinfer']}.json" for run in runs]
    for path, run in zip(paths, runs, strict=True):
        path.write_text(json.dumps(run))
    process = subprocess.run(
        [sys.executable, "-m", "flashinfer_compat.selftest.table", *map(str, paths)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert process.stdout == table.markdown(runs)
    assert [line for line in process.stdout.splitlines() if line.startswith("|")] == [
        "|  | PyTorch | device | seed | right | wrong or failed | unavailable |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| 0.7.1 | 2.11 | GPU | 7 | 3 | 0 | 1 |",
        "| 0.7.4 | 2.11 | GPU | 7 | 2 | 2 | 0 |",
        "| case | dtype | tolerance | 0.7.1 | 0.7.4 |",
        "| --- | --- | --- | --- | --- |",
        "| rmsnorm | bfloat16 | 1.0e-02 | 1.5e-03, 10.5 µs (1.05×) | **wrong**, 5.0e-01, 10.5 µs (1.05×) |",
        "| scales | bfloat16 | 1.0e-02 | unavailable | **failed** |",
        "| top-p | bfloat16 | p 1.0e-06 | p 2.5e-01, 10.5 µs (1.05×) | p 7.5e-01, 10.5 µs (1.05×) |",
        "| append | bfloat16 | 0 differ | not run | 0 differ, 10.5 µs (1.05×) |",
        "| hint | bfloat16 | 1.0e-02 | 1.5e-03, 10.5 µs, emulated | not run |",
    ]


def test_the_table_refuses_another_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"healthy": true}')
    with pytest.raises(ValueError, match="is not what flashinfer-compat selftest --json writes"):
        table.read(path)
