"""The uses of FlashInfer in the audited source; the rules say what becomes of each on every release."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .evaluate import Evaluator
from .findings import WORKS, Code, Effect, Finding, Outcome, Unresolved
from .releases import Releases
from .syntax import Branch, Where
from .tree import SourceFile, SourceTree
from .values import UNKNOWN, Instance, Method, Missing, Partial, Thing, Value, Values


class Use(NamedTuple):
    """A place in a file that may use FlashInfer."""

    node: ast.AST
    where: Where
    file: SourceFile


Rule = Callable[["Audit", Use], Iterator[Finding]]


class Audit:
    """A source tree held against releases. `pinned`: the release that the source is written for."""

    def __init__(self, tree: SourceTree, releases: Releases, pinned: str) -> None:
        self.tree = tree
        self.releases = releases
        self.pinned = pinned
        pattern = Evaluator(tree, releases, pinned)
        self.evaluators = {
            version: pattern if version == pinned else Evaluator(tree, releases, version, pattern)
            for version in releases.surfaces
        }
        #: How many uses the rules have looked at.
        self.uses = 0
        self.unresolved: list[Unresolved] = []
        self._told: dict[ast.expr, bool] = {}

    def found(self, progress: Callable[[int, int], None] = lambda done, of: None) -> Iterator[Finding]:
        """The findings of all files, those that more files turn out to concern included; tells of files done."""
        from .rules import RULES

        self.load()
        files = sorted(self.tree.files.values(), key=lambda one: one.path)
        for number, file in enumerate(files):
            progress(number, len(files))
            yield from self._of_file(file, RULES)
        progress(len(files), len(files))

    def load(self) -> None:
        """Parse what else has to do with FlashInfer: files that import something of it from files that are parsed."""
        pending = list(self.tree.files.values())
        while pending:
            self.tree.spread()
            # Asked of an evaluator of its own: what it remembers, a file parsed later may change.
            evaluator = Evaluator(self.tree, self.releases, self.pinned)
            imported = [(file, exported) for file in pending if (exported := _exported(file, evaluator))]
            pending = [other for file, exported in imported for other in self.tree.importers(file, exported)]

    def _of_file(self, file: SourceFile, rules: dict[type[ast.AST], tuple[Rule, ...]]) -> Iterator[Finding]:
        seen: set[tuple[int, str]] = set()
        for node, where in file.syntax.nodes:
            concerned = rules.get(type(node))
            if concerned is None:
                continue
            use = Use(node, where, file)
            for rule in concerned:
                for finding in rule(self, use):
                    if (finding.line, finding.symbol + finding.code.code) not in seen:
                        seen.add((finding.line, finding.symbol + finding.code.code))
                        yield finding

    # What rules ask

    def symbol(self, values: dict[str, Values]) -> str:
        """The dotted name of what is used: as the pinned release has it, else as another, else as it is missing."""
        ordered = [values[self.pinned], *values.values()]
        there = [symbol_of([one for one in found if not isinstance(inner(one), Missing)]) for found in ordered]
        return next(filter(None, (*there, *map(symbol_of, ordered))), "")

    def tells(self, node: ast.expr, file: SourceFile) -> bool:
        """Whether an expression stands for something on the pinned release; else no other need be asked."""
        if node not in self._told:
            known = node in file.concern and self.evaluators[self.pinned].values(node, file) != (UNKNOWN,)
            self._told[node] = known
        return self._told[node]

    def by_release(self, node: ast.expr, file: SourceFile) -> dict[str, Values]:
        return {version: evaluator.values(node, file) for version, evaluator in self.evaluators.items()}

    def finding(
        self, code: Code, use: Use, node: ast.AST, symbol: str, outcomes: dict[str, Outcome]
    ) -> Iterator[Finding]:
        """A finding, unless every release does what the pinned one does and that is no error."""
        there = next((one for one in (self.releases.find(v, symbol) for v in self.evaluators) if one), None)
        defined = there.dotted if there is not None else symbol
        for version, outcome in outcomes.items():
            if outcome.effect.is_failure and self.releases.guesses(version, defined):
                why = f"{outcome.why}, as far as its neighbours tell: this release is on no index"
                outcomes[version] = Outcome(Effect.NOT_KNOWN, why)
        pinned = outcomes.get(self.pinned, WORKS)
        worse = any(
            outcome.effect > Effect.NOT_REACHED
            and (outcome.effect is not pinned.effect or outcome.effect is Effect.BREAKS)
            for outcome in outcomes.values()
        )
        if worse:
            line, column = _place(node, use)
            guards = use.where.guards
            guard = (
                ast.unparse(guards[-1].test) if guards and isinstance(guards[-1], Branch) else "try" if guards else ""
            )
            yield Finding(code, use.file.path, line, column, symbol, outcomes, guard=guard[:80], defined=defined)

    def not_resolved(self, use: Use, node: ast.AST, symbol: str, why: str) -> None:
        """Note a use of which it cannot be said what it comes to."""
        self.unresolved.append(Unresolved(use.file.path, *_place(node, use), symbol, why))


def _place(node: ast.AST, use: Use) -> tuple[int, int]:
    return getattr(node, "lineno", getattr(use.node, "lineno", 0)), getattr(node, "col_offset", 0) + 1


def _exported(file: SourceFile, evaluator: Evaluator) -> set[str]:
    """The names of a module that stand for something of FlashInfer's, or for a class made of one."""
    found = set()
    for name in file.syntax.scope.bindings:
        if name in file.concern.names:
            values = evaluator.of_module(file, name)
            kinds = (Thing, Missing, Instance, Method, Partial)
            if any(isinstance(value, kinds) or _derived(value, evaluator) for value in values):
                found.add(name)
    return found


def _derived(value: Value, evaluator: Evaluator) -> bool:
    node = getattr(value, "node", None)
    if not isinstance(node, ast.ClassDef):
        return False
    file = value.file  # type: ignore[union-attr]
    return any(isinstance(one, Thing) for base in node.bases for one in evaluator.values(base, file))


def inner(value: Value) -> Value:
    """The function behind ``partial(function, …)``."""
    return inner(value.function) if isinstance(value, Partial) else value


def symbol_of(values: Iterable[Value]) -> str:
    """The dotted name of the first thing of FlashInfer's among the values."""
    for value in map(inner, values):
        if isinstance(value, (Thing, Missing)):
            return value.dotted
        if isinstance(value, Method):
            return f"{value.of}.{value.name}"
    return ""
