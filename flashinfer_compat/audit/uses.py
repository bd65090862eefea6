"""The uses of FlashInfer in the audited source, each with what becomes of it on every release."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import Version

from ..surfaces.model import PACKAGE, Kind
from ..surfaces.names import is_flashinfer
from . import findings
from .calls import Arguments, Bound, arguments_of, bind
from .evaluate import Evaluator, catching, is_module_name
from .findings import Effect, Finding, Outcome
from .releases import Releases
from .syntax import Attempt, Branch, Where, ends, tail
from .tree import SourceFile, SourceTree
from .values import UNKNOWN, Instance, Literal, Method, Missing, Partial, RawModule, Thing, Value, Values, truths

_PROBES = ("hasattr", "getattr", "find_spec", "callable", "import_module", "__import__")
_WORKS = Outcome(Effect.WORKS)


@dataclass(frozen=True)
class Use:
    """A place in a file that uses FlashInfer."""

    node: ast.AST
    where: Where
    file: SourceFile


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
        self.uses = 0

    def found(self) -> Iterator[Finding]:
        """The findings of all files, those that more files turn out to concern included."""
        pending = list(self.tree.files.values())
        while pending:
            self.tree.spread()
            imported = [(file, exported) for file in pending if (exported := self._exported(file))]
            pending = [other for file, exported in imported for other in self.tree.importers(file, exported)]
        for file in sorted(self.tree.files.values(), key=lambda one: one.path):
            yield from self._of_file(file)

    def _exported(self, file: SourceFile) -> set[str]:
        """The names of a module that stand for something of FlashInfer's, or for a class made of one."""
        evaluator = self.evaluators[self.pinned]
        found = set()
        for name in file.syntax.scope.bindings:
            if name in file.concern.names:
                values = evaluator._of_module(file, name)
                kinds = (Thing, Missing, Instance, Method, Partial)
                if any(isinstance(value, kinds) or self._derived(value) for value in values):
                    found.add(name)
        return found

    def _derived(self, value: Value) -> bool:
        node = getattr(value, "node", None)
        if not isinstance(node, ast.ClassDef):
            return False
        evaluator = self.evaluators[self.pinned]
        file = value.file  # type: ignore[union-attr]
        return any(isinstance(one, Thing) for base in node.bases for one in evaluator.values(base, file))

    def _of_file(self, file: SourceFile) -> Iterator[Finding]:
        seen: set[tuple[int, str]] = set()
        for node, where in file.syntax.nodes:
            for finding in self._of_use(Use(node, where, file)):
                if (finding.line, finding.symbol + finding.code.code) not in seen:
                    seen.add((finding.line, finding.symbol + finding.code.code))
                    yield finding

    def _tells_nothing(self, node: ast.expr, file: SourceFile) -> bool:
        """Whether the pinned release makes nothing of an expression, so that no other needs to be asked."""
        return self.evaluators[self.pinned].values(node, file) == (UNKNOWN,)

    def _of_use(self, use: Use) -> Iterator[Finding]:
        node, concern = use.node, use.file.concern
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from self._import(use, node)
        elif isinstance(node, ast.Attribute):
            if node not in concern:
                return
            if isinstance(node.ctx, ast.Load):
                yield from self._name(use, node)
            elif isinstance(node.ctx, ast.Store):
                yield from self._assignment(use, node)
        elif isinstance(node, ast.Call):
            if node.func in concern or node in concern:
                yield from self._call(use, node)
        elif isinstance(node, ast.Compare):
            if node in concern:
                yield from self._comparison(use, node)
        elif isinstance(node, ast.Tuple):
            yield from self._table(use, node)

    # Names

    def _import(self, use: Use, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        if any(isinstance(guard, Branch) and "TYPE_CHECKING" in ast.unparse(guard.test) for guard in use.where.guards):
            return  # read by type checkers alone
        for alias in node.names:
            if isinstance(node, ast.Import):
                dotted = alias.name
            elif node.level:
                continue
            else:
                dotted = str(node.module) if alias.name == "*" else f"{node.module}.{alias.name}"
            if not is_flashinfer(dotted):
                continue
            self.uses += 1
            outcomes = {}
            for version, evaluator in self.evaluators.items():
                value = self.releases.thing(version, dotted, "ImportError")
                bound = alias.asname or alias.name
                outcomes[version] = (
                    self._missing(value, use, evaluator, bound) if isinstance(value, Missing) else _WORKS
                )
            yield from self._finding(findings.MISSING_NAME, use, alias, dotted, outcomes)

    def _name(self, use: Use, node: ast.Attribute) -> Iterator[Finding]:
        if self._tells_nothing(node.value, use.file):
            return
        outcomes = {}
        symbol = ""
        for version, evaluator in self.evaluators.items():
            holders = evaluator.values(node.value, use.file)
            values = evaluator.values(node, use.file)
            if any(isinstance(value, (Thing, Method)) for value in values):
                symbol = symbol or _symbol(values)
            # What is missing already in front of the dot is reported there.
            fresh = holders and not any(isinstance(holder, Missing) for holder in holders)
            missing = [value for value in values if isinstance(value, Missing)]
            if fresh and missing and len(missing) == len(values):
                symbol = missing[0].dotted
                outcomes[version] = self._missing(missing[0], use, evaluator, "")
            else:
                outcomes[version] = _WORKS
        if symbol:
            self.uses += 1
            yield from self._finding(findings.MISSING_NAME, use, node, symbol, outcomes)

    def _assignment(self, use: Use, node: ast.Attribute) -> Iterator[Finding]:
        """A patch onto something of FlashInfer's: where the name is not there, nothing reads what is set."""
        if self._tells_nothing(node.value, use.file):
            return
        outcomes, symbol = {}, ""
        for version, evaluator in self.evaluators.items():
            outcomes[version] = _WORKS
            for holder in evaluator.values(node.value, use.file):
                if not isinstance(holder, Thing):
                    continue
                value = self.releases.thing(version, f"{holder.dotted}.{node.attr}")
                symbol = f"{holder.dotted}.{node.attr}"
                if isinstance(value, Missing) and self._reached(use, evaluator):
                    why = f"{symbol} is not there: nothing reads what is assigned"
                    outcomes[version] = Outcome(Effect.OFF, why)
        if symbol and self.releases.known(symbol):
            self.uses += 1
            yield from self._finding(findings.ASSIGNMENT, use, node, symbol, outcomes)

    def _missing(self, missing: Missing, use: Use, evaluator: Evaluator, bound: str) -> Outcome:
        """What becomes of a use that misses a name: its guards decide."""
        if not self._reached(use, evaluator):
            return Outcome(Effect.NOT_REACHED, "not reached")
        why = f"{missing.error}: {missing.dotted}"
        handler = self._caught(use, missing.error)
        return self._handled(handler, use, evaluator, bound, why)

    def _reached(self, use: Use, evaluator: Evaluator) -> bool:
        """Whether the use is reached; in a try statement that fails earlier it is not."""
        for guard in use.where.guards:
            if isinstance(guard, Attempt) and guard.part == "body":
                failed = evaluator.failure(guard.statement, use.file)
                if failed is not None and failed[0].lineno < use.node.lineno:  # type: ignore[attr-defined]
                    return False
            elif evaluator.holds(guard, use.file) is False:
                return False
        return True

    @staticmethod
    def _caught(use: Use, error: str) -> ast.ExceptHandler | None:
        """The handler of the innermost try statement around the use that catches an error."""
        for guard in reversed(use.where.guards):
            if isinstance(guard, Attempt) and guard.part == "body":
                handler = catching(guard.statement, error)
                if handler is not None:
                    return handler
        return None

    def _handled(
        self, handler: ast.ExceptHandler | None, use: Use, evaluator: Evaluator, bound: str, why: str
    ) -> Outcome:
        """What a handler, if there is one, does about an error: another path, nothing, or the error again."""
        if handler is None:
            return Outcome(Effect.BREAKS, why)
        if ends(handler.body) and isinstance(handler.body[-1], ast.Raise):
            return Outcome(Effect.BREAKS, f"{why}, raised again")
        rebound: set[str] = set()
        for statement in handler.body:
            for node in ast.walk(statement):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    missing = evaluator.import_failure(node, use.file)
                    if not isinstance(missing, Missing):
                        return Outcome(Effect.ALTERNATIVE, f"{why}; another import takes its place")
                elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    return Outcome(Effect.ALTERNATIVE, f"{why}; a definition takes its place")
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    rebound.add(node.id)
                elif (
                    isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant)
                ):
                    return Outcome(Effect.ALTERNATIVE, f"{why}; another path is taken")
        if bound and bound not in rebound and not ends(handler.body) and self._read_unguarded(bound, use):
            return Outcome(Effect.LATER, f"{why} is caught, and {bound} is used all the same")
        return Outcome(Effect.OFF, f"{why} is caught, and the feature is off")

    @staticmethod
    def _read_unguarded(name: str, use: Use) -> bool:
        """Whether a name that only the try statement binds is read somewhere without a condition."""
        bindings = use.where.scope.bindings.get(name, ())
        attempts = {guard for guard in use.where.guards if isinstance(guard, Attempt)}
        if any(not attempts & set(binding.where.guards) for binding in bindings):
            return False  # bound elsewhere too
        for node, where in use.file.syntax.nodes:
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                guards = [guard for guard in where.guards if guard not in use.where.guards]
                same = any(guard in attempts for guard in where.guards)
                if not same and not guards and where.scope is use.where.scope:
                    return True
        return False

    # Questions

    def _table(self, use: Use, node: ast.Tuple) -> Iterator[Finding]:
        """``("flashinfer.module", "name")`` in a table of names to look for."""
        texts = [one.value if isinstance(one, ast.Constant) else None for one in node.elts]
        if len(texts) == 2 and all(isinstance(text, str) for text in texts) and is_module_name(str(texts[0])):
            dotted = ".".join(map(str, texts))
            self.uses += self.releases.known(dotted)
            lost = Outcome(Effect.OFF, f"{dotted} is looked for and not found")
            yield from self._named(findings.PROBE, use, node, dotted, lost)

    def _named(self, code: findings.Code, use: Use, node: ast.AST, dotted: str, lost: Outcome) -> Iterator[Finding]:
        """A name of FlashInfer's given as text, `lost` on a release that does not have it."""
        if self.releases.known(dotted):
            outcomes = {
                version: lost if isinstance(self.releases.thing(version, dotted), Missing) else _WORKS
                for version in self.evaluators
            }
            yield from self._finding(code, use, node, dotted, outcomes)

    def _probe(self, use: Use, node: ast.Call) -> Iterator[Finding]:
        """A question whose answer FlashInfer's release decides."""
        if self._tells_nothing(node, use.file):
            return
        answers: dict[str, frozenset[bool]] = {}
        symbol = ""
        for version, evaluator in self.evaluators.items():
            values = evaluator.values(node, use.file)
            known = values and UNKNOWN not in values and all(isinstance(one, (Literal, Thing)) for one in values)
            answers[version] = truths(values) if known else frozenset()
            symbol = symbol or self._asked(node, use, evaluator)
        if answers.get(self.pinned) != frozenset((True,)) or not symbol:
            return
        self.uses += 1
        outcomes = {}
        for version, evaluator in self.evaluators.items():
            lost = answers[version] == {False} and self._reached(use, evaluator)
            outcomes[version] = self._turned_off(use, node, f"{symbol} is not there") if lost else _WORKS
        yield from self._finding(findings.PROBE, use, node, symbol, outcomes)

    def _asked(self, node: ast.Call, use: Use, evaluator: Evaluator) -> str:
        """What a question is about."""
        name = tail(node.func)
        if name in ("hasattr", "getattr") and len(node.args) > 1:
            holders = evaluator.values(node.args[0], use.file)
            names = evaluator.values(node.args[1], use.file)
            for holder in holders:
                if isinstance(holder, (Thing, Instance)) and len(names) == 1 and isinstance(names[0], Literal):
                    return f"{holder.dotted if isinstance(holder, Thing) else holder.of}.{names[0].value}"
        if name == "find_spec" and node.args and isinstance(node.args[0], ast.Constant):
            return str(node.args[0].value)
        return ""

    def _turned_off(self, use: Use, node: ast.expr, why: str) -> Outcome:
        """What a question that is answered No leads to: another path, or nothing."""
        for other, where in use.file.syntax.where.items():
            if not isinstance(other, ast.stmt):
                continue
            for guard in where.guards:
                if not isinstance(guard, Branch) or not guard.taken or not _contains(guard.test, node):
                    continue
                if any(map(_does_something, guard.otherwise)):
                    return Outcome(Effect.ALTERNATIVE, f"{why}; another path is taken")
        return Outcome(Effect.OFF, f"{why}, and the feature is off")

    def _comparison(self, use: Use, node: ast.Compare) -> Iterator[Finding]:
        """Versions compared as text, and exact comparisons that a post release fails."""
        evaluator = self.evaluators[self.pinned]
        sides = [evaluator.values(one, use.file) for one in (node.left, *node.comparators)]
        texts = [one.value for side in sides if len(side) == 1 and isinstance(one := side[0], Literal)]
        others = (
            self.evaluators[next(v for v in self.evaluators if v != self.pinned)]
            if len(self.evaluators) > 1
            else evaluator
        )
        varies = sides != [others.values(one, use.file) for one in (node.left, *node.comparators)]
        if len(texts) != 2 or not varies or len(node.ops) != 1:
            return
        ordered = isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        if ordered and all(isinstance(text, str) for text in texts):
            outcome = Outcome(Effect.CHANGED, "releases are ordered as text: 0.10 comes before 0.7")
            outcomes = {version: outcome if version != self.pinned else _WORKS for version in self.evaluators}
            yield from self._finding(findings.VERSION_TEXT, use, node, f"{PACKAGE}.__version__", outcomes)
            return
        outcomes = {}
        for version, other in self.evaluators.items():
            truth, here = other.truth(node, use.file), evaluator.truth(node, use.file)
            lost = here == {True} and truth == {False}
            why = f"FlashInfer {version} is not what is asked for"
            outcomes[version] = self._turned_off(use, node, why) if lost else _WORKS
        exact = isinstance(node.ops[0], ast.Eq) and any(Version(version).is_postrelease for version in outcomes)
        post = all(outcome == _WORKS for version, outcome in outcomes.items() if not Version(version).is_postrelease)
        code = findings.POST_RELEASE if exact and post else findings.PROBE
        yield from self._finding(code, use, node, f"{PACKAGE}.__version__", outcomes)

    # Calls

    def _call(self, use: Use, node: ast.Call) -> Iterator[Finding]:
        name = tail(node.func)
        if name in _PROBES:
            yield from self._probe(use, node)
        texts = [one.value if isinstance(one, ast.Constant) else None for one in node.args[:2]]
        named = len(texts) == 2 and is_module_name(str(texts[0])) and isinstance(texts[1], str)
        if named and name not in _PROBES and str(texts[1]).isidentifier():
            dotted = ".".join(map(str, texts))
            lost = Outcome(Effect.LATER, f"{dotted} is looked up when it is first used, and is not there")
            yield from self._named(findings.MISSING_NAME, use, node, dotted, lost)
        if self._tells_nothing(node.func, use.file):
            return
        functions = {version: evaluator.values(node.func, use.file) for version, evaluator in self.evaluators.items()}
        if any(isinstance(_inner(one), (Thing, Method)) for values in functions.values() for one in values):
            self.uses += 1
            yield from self._bound(use, node, functions)
        if any(isinstance(one, RawModule) for one in functions[self.pinned]):
            yield from self._raw(use, node, functions[self.pinned])

    def _bound(self, use: Use, node: ast.Call, functions: dict[str, Values]) -> Iterator[Finding]:
        """A call of FlashInfer's, bound to what each release takes."""
        fitting = {version: self._fit(use, node, values, version) for version, values in functions.items()}
        pinned = fitting[self.pinned]
        if pinned and not pinned[0].fits:
            return  # pieced together otherwise than it is written: what the pinned release takes is what is passed
        outcomes: dict[str, dict[findings.Code, Outcome]] = {version: {} for version in fitting}
        symbol = next((_symbol(values) for values in functions.values() if _symbol(values)), "")
        for version, fits in fitting.items():
            evaluator = self.evaluators[version]
            if not fits or not self._reached(use, evaluator):
                continue
            if all(not one.fits for one in fits):
                for code, why in _wrong(fits[0]):
                    handler = self._caught(use, "TypeError")
                    outcomes[version][code] = self._handled(handler, use, evaluator, "", f"TypeError: {why}")
            elif pinned and version != self.pinned:
                shifted = _shifted(pinned[0], fits[0])
                if shifted:
                    outcomes[version][findings.SHIFT] = Outcome(Effect.BREAKS, shifted)
                changed = _changed_defaults(pinned[0], fits[0])
                if changed:
                    outcomes[version][findings.DEFAULT] = Outcome(Effect.CHANGED, changed)
        for code in {code for by_code in outcomes.values() for code in by_code}:
            by_release = {version: by_code.get(code, _WORKS) for version, by_code in outcomes.items()}
            yield from self._finding(code, use, node, symbol, by_release)

    def _fit(self, use: Use, node: ast.Call, values: Values, version: str) -> list[Bound]:
        """How the call fits each function of FlashInfer's that it may call on a release."""
        evaluator = self.evaluators[version]
        found = []
        for value in values:
            taken = self.releases.signature(version, _inner(value))
            if taken is not None:
                parameters, accepts = taken
                arguments: Arguments = arguments_of(node, value, use.file, evaluator)
                shown = [one for one in parameters if one.kind is not Kind.VAR_POSITIONAL or arguments.positional]
                found.append(bind(arguments, shown, accepts))
            elif not isinstance(value, Missing):
                return []  # it may as well be something of the engine's own
        return found

    def _raw(self, use: Use, node: ast.Call, values: Values) -> Iterator[Finding]:
        """A call of a compiled module's function: TVM-FFI checks the number of arguments."""
        raw = next(one for one in values if isinstance(one, RawModule))
        arguments = arguments_of(node, raw, use.file, self.evaluators[self.pinned])
        if not raw.function or arguments.more_positional or arguments.more_keywords or arguments.keywords:
            return
        arities = {version: self._arities(version, raw) for version in self.evaluators}
        fits = {version: arguments.positional in found for version, found in arities.items()}
        if not fits[self.pinned] and not any(fits.values()):
            return
        self.uses += 1
        # Only the modules that the call can be for on the releases it fits.
        outcomes = {
            version: _WORKS
            if fits[version]
            else Outcome(
                Effect.BREAKS, f"TypeError: {arguments.positional} arguments, and no {raw.function} takes so many"
            )
            for version in self.evaluators
        }
        yield from self._finding(
            findings.RAW_ARITY, use, node, f"{raw.of or 'wrapper'}._cached_module.{raw.function}", outcomes
        )

    def _arities(self, version: str, raw: RawModule) -> set[int]:
        surface = self.releases.surfaces[version]
        family = "mla" if "MLA" in raw.of else "batch_"  # of an unknown wrapper all that there are
        return {
            len(found)
            for file in surface.sources
            if file.endswith("binding.cu") and family in file
            if (found := surface.sources[file].exports.get(raw.function)) is not None
        }

    # Results

    def _finding(
        self, code: findings.Code, use: Use, node: ast.AST, symbol: str, outcomes: dict[str, Outcome]
    ) -> Iterator[Finding]:
        """A finding, unless every release does what the pinned one does and that is no error."""
        pinned = outcomes.get(self.pinned, _WORKS)
        worse = any(
            outcome.effect > Effect.NOT_REACHED
            and (outcome.effect is not pinned.effect or outcome.effect is Effect.BREAKS)
            for outcome in outcomes.values()
        )
        if worse:
            line = getattr(node, "lineno", getattr(use.node, "lineno", 0))
            column = getattr(node, "col_offset", 0) + 1
            guards = use.where.guards
            guard = (
                ast.unparse(guards[-1].test) if guards and isinstance(guards[-1], Branch) else "try" if guards else ""
            )
            there = next((one for one in (self.releases.find(v, symbol) for v in self.evaluators) if one), None)
            defined = there.dotted if there is not None else symbol
            yield Finding(code, use.file.path, line, column, symbol, outcomes, guard=guard[:80], defined=defined)


def _inner(value: Value) -> Value:
    return _inner(value.function) if isinstance(value, Partial) else value


def _symbol(values: Values) -> str:
    for value in map(_inner, values):
        if isinstance(value, (Thing, Missing)):
            return value.dotted
        if isinstance(value, Method):
            return f"{value.of}.{value.name}"
    return ""


def _wrong(bound: Bound) -> Iterator[tuple[findings.Code, str]]:
    if bound.unknown:
        yield findings.UNKNOWN_KEYWORD, f"unexpected keyword {', '.join(bound.unknown)}"
    if bound.too_many is not None:
        yield findings.TOO_MANY, f"takes {bound.too_many} positional arguments"
    if bound.twice:
        yield findings.SHIFT, f"{', '.join(bound.twice)} is passed twice, by position and by keyword"
    if bound.missing:
        yield findings.REQUIRED, f"{', '.join(bound.missing)} is required"


def _shifted(pinned: Bound, here: Bound) -> str:
    """Positional arguments that reach another parameter which the pinned release has elsewhere, or not at all."""
    for before, after in zip(pinned.places, here.places, strict=False):
        known = {*here.places, *here.defaults}
        if before != after and before in known:
            return f"the argument for {before} is bound to {after}"
    return ""


def _changed_defaults(pinned: Bound, here: Bound) -> str:
    changed = [
        f"{name} defaults to {here.defaults[name]} instead of {text}"
        for name, text in pinned.defaults.items()
        if name in here.defaults and here.defaults[name] != text
    ]
    return "; ".join(changed)


def _contains(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))


def _does_something(statement: ast.stmt) -> bool:
    """Whether a statement is more than raising, logging or answering with a constant."""
    if isinstance(statement, (ast.Raise, ast.Pass)):
        return False
    if isinstance(statement, ast.Return):
        return not (statement.value is None or isinstance(statement.value, ast.Constant))
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, (ast.Call, ast.Constant))
    if isinstance(statement, ast.Assign):
        return not isinstance(statement.value, ast.Constant)
    return True
