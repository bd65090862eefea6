"""The benchmarks' runner: what it lists, prints and compares. Nothing here is a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import audit_speed, engines, gate, registry
from benchmarks.measuring import Options, Row, Sample, compared, interleaved
from benchmarks.results import Change, Results, changes, markdown, ratios, run

FACTS = {"flashinfer": "0.7.4", "gpu": None}
PLAN = compared("paged", "µs", {"native": [10.0, 20.0, 30.0], "facade": [11.0, 24.0, 33.0]})


def results() -> Results:
    return Results(FACTS, {"plan_time": PLAN}, {"sampling": "needs a GPU"}, {"audit": "OSError: gone"})


class TestMeasuring:
    def test_each_round_measures_every_variant_once(self) -> None:
        order: list[str] = []

        def once(name: str) -> float:
            order.append(name)
            return float(len(order))

        taken = interleaved({"native": lambda: once("native"), "facade": lambda: once("facade")}, 2, warm=1)
        assert order == ["native", "facade"] * 3
        assert taken == {"native": [3.0, 5.0], "facade": [4.0, 6.0]}

    def test_a_sample_has_its_deciles(self) -> None:
        assert Sample.of([float(value) for value in range(11)]) == (5.0, 1.0, 9.0)
        assert Sample.of([7.0]) == (7.0, 7.0, 7.0)

    def test_ratios_are_those_within_a_round(self) -> None:
        # Of the medians it would be 1: the machine was ten times slower in the last round.
        (_, facade) = compared("call", "ns", {"native": [10.0, 12.0, 100.0], "facade": [20.0, 12.0, 200.0]})
        assert (facade.ratio, facade.difference) == (2.0, 10.0)

    def test_each_variant_may_be_held_against_another(self) -> None:
        taken = {"a, native": [1.0], "a, facade": [2.0], "b, native": [4.0], "b, facade": [5.0]}
        rows = compared("call", "µs", taken, {name: f"{name[0]}, native" for name in taken})
        assert [row.ratio for row in rows] == [1.0, 2.0, 1.0, 1.25]

    @pytest.mark.parametrize(("usual", "quick"), [(400, 100), (21, 5), (11, 3), (4, 3)])
    def test_quick_takes_a_quarter_of_the_rounds(self, usual: int, quick: int) -> None:
        assert (Options().rounds(usual), Options(quick=True).rounds(usual)) == (usual, quick)


class TestRun:
    def test_what_cannot_run_or_fails_does_not_hide_the_rest(self) -> None:
        def measure(name: str, options: Options) -> list[Row]:
            if name == "audit":
                raise OSError("gone")
            return PLAN

        seen: list[int] = []
        found = run(
            ["audit", "sampling", "plan_time"],
            Options(),
            lambda name, options: "needs a GPU" if name == "sampling" else "",
            measure,
            facts=FACTS,
            done=lambda so_far: seen.append(len(so_far.rows)),
        )
        assert found == results()
        assert seen == [0, 0, 1]
        assert found.problems == ["audit: OSError: gone"]

    def test_a_wrong_result_is_a_problem(self) -> None:
        row = Row("sglang==1", "audit", "CPU s", Sample.of([1.0]), problem="5 instead of 6")
        assert Results(FACTS, {"audit": [row]}).problems == ["audit: sglang==1, audit: 5 instead of 6"]

    def test_every_benchmark_is_a_module_that_measures(self) -> None:
        folder = Path(registry.__file__).parent
        modules = {path.stem for path in folder.glob("*.py") if "def measure(options: Options)" in path.read_text()}
        assert modules == set(registry.BENCHMARKS)

    def test_without_a_gpu_its_benchmarks_are_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registry, "has_gpu", lambda: False)
        monkeypatch.setattr(registry, "find_spec", lambda name: object())
        monkeypatch.setattr(engines, "CACHE", Path("nowhere"))
        reasons = {name: registry.why_not(name, Options()) for name in registry.BENCHMARKS}
        assert {name for name, reason in reasons.items() if reason == "needs a GPU"} == {
            "verify_hint", "plan_time", "sampling", "moe_dispatch",
        }  # fmt: skip
        assert reasons["audit"].startswith("needs the sources of published engines; --fetch gets ")
        assert registry.why_not("audit", Options(fetch=True)) == ""
        assert {name for name, reason in reasons.items() if not reason} == {
            "plan_cpu", "call_overhead", "import_time", "audit_speed",
        }  # fmt: skip

    def test_without_flashinfer_what_needs_it_is_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registry, "find_spec", lambda name: None)
        for name in ("import_time", "plan_cpu", "verify_hint"):
            assert registry.why_not(name, Options()) == "needs FlashInfer"
        assert registry.why_not("call_overhead", Options()) == ""


def test_the_document_is_json_and_says_everything() -> None:
    document = json.loads(json.dumps(results().document()))
    assert document["flashinfer"] == "0.7.4"
    assert document["not_run"] == {"sampling": "needs a GPU"}
    assert document["failed"] == {"audit": "OSError: gone"}
    assert document["results"][1] == {
        "benchmark": "plan_time", "case": "paged", "variant": "facade", "unit": "µs", "median": 24.0, "p10": 13.6,
        "p90": 31.2, "ratio": 1.1, "difference": 3.0, "against": "native", "remarks": {}, "problem": "",
    }  # fmt: skip


def test_the_table_has_every_benchmark() -> None:
    facts, _, *table = markdown(results().document()).splitlines()
    assert facts == "flashinfer 0.7.4"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert cells[0] == ["benchmark", "case", "variant", "median (p10 to p90)", "ratio", "difference", "to", "remarks"]
    assert cells[2:] == [
        ["plan_time", "paged", "native", "20.0 (12.0 to 28.0) µs", "", "", "", ""],
        ["plan_time", "paged", "facade", "24.0 (13.6 to 31.2) µs", "1.100", "+3.0", "native", ""],
        ["sampling", "not run: needs a GPU", "", "", "", "", "", ""],
        ["audit", "failed: OSError: gone", "", "", "", "", "", ""],
    ]


def test_one_measurement_has_no_spread() -> None:
    row = Row("sglang==1", "audit", "CPU s", Sample.of([3.7]), remarks={"files": 5, "MiB": 330})
    line = markdown(Results({}, {"audit": [row]}).document()).splitlines()[-1]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["audit", "sglang==1", "audit", "3.7 CPU s", "", "", "", "files 5, MiB 330"]


class TestChanges:
    KEY = ("plan_time", "paged", "facade")

    def test_a_variants_ratio_to_itself_is_none(self) -> None:
        assert ratios(results().document()) == {self.KEY: pytest.approx(1.1)}

    @pytest.mark.parametrize(
        ("new", "printed", "worse"),
        [
            (1.22, "slower: plan_time: paged, facade: 1.100 to 1.220", True),
            (0.99, "faster: plan_time: paged, facade: 1.100 to 0.990", False),
            (None, "not measured: plan_time: paged, facade (was 1.100)", True),
        ],
    )
    def test_beyond_the_margin(self, new: float | None, printed: str, worse: bool) -> None:
        (change,) = changes({self.KEY: 1.1}, {} if new is None else {self.KEY: new}, 1.1)
        assert (str(change), change.worse) == (printed, worse)

    @pytest.mark.parametrize("new", [1.2, 1.1, 1.01])
    def test_within_the_margin(self, new: float) -> None:
        assert changes({self.KEY: 1.1}, {self.KEY: new, ("plan_time", "paged", "new"): 9.0}, 1.1) == []

    @pytest.mark.parametrize(
        ("ratio", "status", "printed"),
        [
            (1.1, 0, "No ratio moved by more than a factor of 1.1."),
            (2.2, 1, "slower: plan_time: paged, facade: 1.100 to 2.200"),
            (0.5, 0, "faster: plan_time: paged, facade: 1.100 to 0.500"),
        ],
    )
    def test_command(
        self, ratio: float, status: int, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        old, new = results().document(), results().document() | {"flashinfer": "0.7.5"}
        new["results"][1]["ratio"] = ratio
        for name, document in (("old", old), ("new", new)):
            (tmp_path / name).write_text(json.dumps(document))
        assert command.compare(tmp_path / "old", tmp_path / "new", 1.1) == status
        assert capsys.readouterr().out.splitlines() == ["flashinfer: 0.7.4, now 0.7.5", printed]


class TestGate:
    FAST, SLOW = ("call_overhead", "call", "adapted"), ("plan_cpu", "paged", "facade")

    @pytest.fixture(autouse=True)
    def _two_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gate, "USUAL", {self.FAST: 2.0, self.SLOW: 1.0})

    def held(self, *plans: float) -> tuple[gate.Verdict, list[list[str]]]:
        """The verdict where planning takes so much in each attempt, and what was measured in each."""
        asked: list[list[str]] = []

        def measured(names: list[str]) -> Results:
            plan = plans[len(asked)]
            asked.append(names)
            rows = {
                "call_overhead": compared("call", "ns", {"direct": [1.0], "adapted": [2.0]}),
                "plan_cpu": compared("paged", "µs", {"native": [1.0], "facade": [plan]}),
            }
            return Results(FACTS, {name: rows[name] for name in names})

        return gate.hold(measured), asked

    def test_within_the_limits(self) -> None:
        verdict, asked = self.held(1.4)
        assert (verdict.over, asked) == ([], [["call_overhead", "plan_cpu"]])

    def test_what_is_over_is_measured_again_alone(self) -> None:
        verdict, asked = self.held(1.6, 1.4)
        assert (verdict.over, asked) == ([], [["call_overhead", "plan_cpu"], ["plan_cpu"]])

    def test_what_doubles_fails(self) -> None:
        verdict, asked = self.held(2.0, 2.1, 2.0)
        assert verdict.over == [Change(self.SLOW, 1.0, 2.0)]
        assert len(asked) == 3

    def test_what_gets_faster_passes(self) -> None:
        assert self.held(0.2)[0].over == []

    def test_what_cannot_be_measured_fails(self) -> None:
        verdict = gate.hold(lambda names: Results(FACTS, not_run=dict.fromkeys(names, "needs FlashInfer")))
        assert verdict.over == [Change(self.FAST, 2.0, None), Change(self.SLOW, 1.0, None)]


def test_the_gates_limits_are_of_benchmarks_that_need_no_gpu() -> None:
    for name, _, _ in gate.USUAL:
        assert set(registry.BENCHMARKS[name]) <= {registry.Need.FLASHINFER}


def test_the_tree_that_is_audited_breaks_and_is_mended(tmp_path: Path) -> None:
    from flashinfer_compat.audit.audited import audit

    audit_speed.write(tmp_path)
    found = audit([tmp_path], "0.7.2")
    assert (found.files, found.uses % audit_speed.FILES) == (audit_speed.FILES, 0)
    assert len(found.failing("0.7.4")) > len(found.failing("0.7.4", facade=True))
