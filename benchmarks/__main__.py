"""``python -m benchmarks``: what the facade costs on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from . import gate, registry
from .measuring import Options, Row
from .results import Results, changes, facts_of, machine, markdown, ratios, run, table


def measured(names: Sequence[str], options: Options, json_file: Path | None = None) -> Results:
    def measure(name: str, options: Options) -> list[Row]:
        print(f"{name} …", file=sys.stderr, flush=True)
        return registry.measure(name, options)

    def write(results: Results) -> None:
        if json_file is not None:
            json_file.write_text(json.dumps(results.document(), indent=1) + "\n", encoding="utf-8")

    facts = machine() | {"quick": options.quick}
    return run(names, options, registry.why_not, measure, facts=facts, done=write)


def compare(old_file: Path, new_file: Path, margin: float) -> int:
    """Print the ratios that moved; 1 if one grew, or is no longer measured."""
    old, new = (json.loads(file.read_text(encoding="utf-8")) for file in (old_file, new_file))
    for fact in facts_of(old):
        if old[fact] != new.get(fact):
            print(f"{fact}: {old[fact]}, now {new.get(fact)}")
    moved = changes(ratios(old), ratios(new), margin)
    for change in moved:
        print(change)
    if not moved:
        print(f"No ratio moved by more than a factor of {margin:g}.")
    return int(any(change.worse for change in moved))


def hold() -> int:
    """Print the gate's ratios beside their limits; 1 if one is over."""
    verdict = gate.hold(lambda names: measured(names, Options(quick=True)))
    rows = [
        [str(number), *key, f"{ratio:.3f}", f"{gate.USUAL[key]:.3f}", f"{gate.USUAL[key] * gate.MARGIN:.3f}"]
        for number, results in enumerate(verdict.attempts, start=1)
        for key, ratio in ratios(results.document()).items()
        if key in gate.USUAL
    ]
    print(table(["attempt", "benchmark", "case", "variant", "ratio", "usual", "limit"], rows))
    failed = verdict.attempts[-1]
    for line in (*map(str, verdict.over), *failed.problems, *map(": ".join, failed.not_run.items())):
        print(line)
    return int(bool(verdict.over))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(registry.BENCHMARKS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, after each benchmark")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the printed table there too")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--fetch", action="store_true", help="fetch missing engines from the package index")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD.json", "NEW.json"), help="1 if a ratio grew")
    parser.add_argument("--margin", type=float, default=1.1, help="factor that --compare lets pass, %(default)s")
    parser.add_argument(
        "--gate", action="store_true", help="hold this machine's ratios to the limits; 1 if one is over"
    )
    args = parser.parse_args()
    if unknown := sorted({*args.names} - {*registry.BENCHMARKS}):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(registry.BENCHMARKS)}")
    if args.compare:
        old, new = args.compare
        return compare(old, new, args.margin)
    if args.gate:
        return hold()
    results = measured(args.names or list(registry.BENCHMARKS), Options(args.quick, args.fetch), args.json)
    text = markdown(results.document())
    print(text)
    if args.markdown is not None:
        args.markdown.write_text(text, encoding="utf-8")
    for problem in results.problems:
        print(problem, file=sys.stderr)
    # What was asked for by name has to run.
    return int(bool(results.problems or (args.names and results.not_run)))


if __name__ == "__main__":
    sys.exit(main())
