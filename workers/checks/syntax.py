"""What names in Python source refer to, as far as imports tell."""

from __future__ import annotations

import ast


class Names:
    """The imported names of a program: ``bye`` is ``os._exit`` after ``from os import _exit as bye``.

    A name that is imported twice has several meanings.
    """

    def __init__(self, tree: ast.AST) -> None:
        self._meanings: dict[str, set[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                for alias in node.names:
                    whole = prefix or alias.asname
                    meaning = f"{prefix}{alias.name}" if whole else alias.name.partition(".")[0]
                    self._meanings.setdefault(alias.asname or meaning.removeprefix(prefix), set()).add(meaning)

    def of(self, node: ast.AST | None) -> set[str]:
        """Return the dotted names that a name or an attribute may refer to; none for other expressions."""
        head, _, rest = ast.unparse(node).partition(".") if isinstance(node, ast.Name | ast.Attribute) else ("", "", "")
        return {f"{meaning}.{rest}" if rest else meaning for meaning in self._meanings.get(head, {head})} - {""}

    def of_all(self, node: ast.expr) -> set[str]:
        """Return the names of an expression, or of the parts of a tuple."""
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        return {name for part in parts for name in self.of(part)}


def called_name(node: ast.AST) -> str:
    """Return the last part of the name that a call calls; empty for other nodes."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def is_main_guard(node: ast.stmt) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``."""
    guards = ("__name__ == '__main__'", "'__main__' == __name__")
    return isinstance(node, ast.If) and ast.unparse(node.test) in guards
