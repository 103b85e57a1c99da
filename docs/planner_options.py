"""An extension of Griffe that takes the text and the default of a planner's field from `option()`."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class PlannerOptions(griffe.Extension):
    """Replaces `option(default, text)` by the default, and lists the texts under "Args" of the planner."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # path of a field -> its text

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        value = attr.value
        if isinstance(value, griffe.ExprCall) and str(value.function) == "option":
            default, text = value.arguments[:2]
            attr.value = default
            if isinstance(text, griffe.ExprName):  # of several planners
                text = attr.module[text.name].value
            self._texts[attr.path] = str(ast.literal_eval(str(text)))

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        self._visit(pkg)

    def _visit(self, owner: griffe.Module | griffe.Class) -> None:
        for member in owner.members.values():
            if member.is_alias:
                continue
            if isinstance(member, griffe.Class) and member.docstring:
                self._document(member)
            if isinstance(member, griffe.Module | griffe.Class):
                self._visit(member)

    def _document(self, planner: griffe.Class) -> None:
        """Add the texts of the fields of a planner, its own first, to its docstring."""
        texts: dict[str, str] = {}
        for owner in [planner, *planner.mro()]:
            for name in owner.members:
                if f"{owner.path}.{name}" in self._texts:
                    texts.setdefault(name, self._texts[f"{owner.path}.{name}"])
        if texts:
            summary, raises, rest = planner.docstring.value.partition("Raises:\n")
            lines = [f"    {name}: {text}" for name, text in texts.items()]
            planner.docstring.value = "\n".join([summary.rstrip(), "", "Args:", *lines, "", raises + rest])
