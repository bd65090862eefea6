"""The rules of the audit, by the kind of node that they look at; a file a kind of finding."""

from __future__ import annotations

import ast

from ..uses import Rule
from . import assignments, calls, compiled, names, probes, unpacking, unresolved, versions

RULES: dict[type[ast.AST], tuple[Rule, ...]] = {
    ast.Import: (names.imported,),
    ast.ImportFrom: (names.imported, unresolved.starred),
    ast.Attribute: (names.read, assignments.assigned),
    ast.Call: (probes.asked, names.named, calls.bound, compiled.called, assignments.set_by_name, unresolved.called),
    ast.Compare: (versions.compared, probes.compared),
    ast.Tuple: (probes.listed,),
    ast.Assign: (unpacking.unpacked,),
}
