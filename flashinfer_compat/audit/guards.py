"""What becomes of an error, or of a No, at a use: the conditions and try statements around it decide."""

from __future__ import annotations

import ast

from .evaluate import Evaluator, catching
from .findings import Effect, Outcome
from .syntax import Attempt, Branch, ends, tail
from .uses import Use
from .values import Missing

#: Parts of the names of functions that only tell somebody that something is off.
_SAYING = ("warn", "log", "print", "info", "debug", "error", "exception", "skip", "exit")


def missed(missing: Missing, use: Use, evaluator: Evaluator, bound: str = "") -> Outcome:
    """What becomes of a use that misses a name, which it would bind as `bound`."""
    # What a try statement lacks after something else that it lacks is lost with it.
    if not reached(use, evaluator, after_failure=True):
        return Outcome(Effect.NOT_REACHED, "not reached")
    return handled(missing.error, f"{missing.error}: {missing.dotted}", use, evaluator, bound)


def reached(use: Use, evaluator: Evaluator, *, after_failure: bool = False) -> bool:
    """Whether the use is reached; in a try statement that fails earlier it is not, unless `after_failure` counts."""
    for guard in use.where.guards:
        if isinstance(guard, Attempt) and guard.part == "body":
            failed = evaluator.failure(guard.statement, use.file)
            if not after_failure and failed is not None and failed[0].lineno < use.node.lineno:  # type: ignore[attr-defined]
                return False
        elif evaluator.holds(guard, use.file) is False:
            return False
    return True


def handled(error: str, why: str, use: Use, evaluator: Evaluator, bound: str = "") -> Outcome:
    """What a handler, if there is one, does about an error: another path, nothing, or the error again."""
    handler = _handler(use, error)
    if handler is None:
        return Outcome(Effect.BREAKS, why)
    if ends(handler.body) and isinstance(handler.body[-1], ast.Raise):
        return Outcome(Effect.BREAKS, f"{why}, raised again")
    rebound: set[str] = set()
    for statement in handler.body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                if not isinstance(evaluator.import_failure(node, use.file), Missing):
                    return Outcome(Effect.ALTERNATIVE, f"{why}; another import takes its place")
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                return Outcome(Effect.ALTERNATIVE, f"{why}; a definition takes its place")
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                rebound.add(node.id)
            elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
                return Outcome(Effect.ALTERNATIVE, f"{why}; another path is taken")
    if bound and bound not in rebound and not ends(handler.body) and _read_unguarded(bound, use):
        return Outcome(Effect.LATER, f"{why} is caught, and {bound} is used all the same")
    return Outcome(Effect.OFF, f"{why} is caught, and the feature is off")


def _handler(use: Use, error: str) -> ast.ExceptHandler | None:
    """The handler of the innermost try statement around the use that catches an error."""
    for guard in reversed(use.where.guards):
        if isinstance(guard, Attempt) and guard.part == "body":
            handler = catching(guard.statement, error)
            if handler is not None:
                return handler
    return None


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


def turned_off(node: ast.expr, why: str, use: Use) -> Outcome:
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


def _contains(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))


def _does_something(statement: ast.stmt) -> bool:
    """Whether a statement is more than raising, logging or answering with a constant."""
    if isinstance(statement, (ast.Raise, ast.Pass)):
        return False
    if isinstance(statement, ast.Return):
        return not (statement.value is None or isinstance(statement.value, ast.Constant))
    if isinstance(statement, ast.Expr):
        value = statement.value
        return isinstance(value, ast.Call) and not any(word in tail(value.func).lower() for word in _SAYING)
    if isinstance(statement, ast.Assign):
        return not isinstance(statement.value, ast.Constant)
    return True
