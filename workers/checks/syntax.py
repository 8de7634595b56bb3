"""The names of a module that its statements read and bind."""

from __future__ import annotations

import ast
import symtable


def global_names(part: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the module's names that a statement of a module reads, and those that it binds."""
    top = symtable.symtable(ast.unparse(part), "part.py", "exec")
    read = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    bound = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    return read | _read_inside(top), bound


def _read_inside(table: symtable.SymbolTable) -> set[str]:
    """Return the module's names that the functions and classes of a scope read."""
    children = table.get_children()
    symbols = (symbol for child in children for symbol in child.get_symbols())
    read = {symbol.get_name() for symbol in symbols if symbol.is_global() and symbol.is_referenced()}
    return read.union(*map(_read_inside, children))
