"""`import redraft` is a lazy front: one table says what it shows, and `__all__`, types and docstrings agree with it."""

import ast
import inspect
from importlib import import_module
from importlib.util import find_spec

import pytest

import redraft


@pytest.fixture
def table():
    exports = getattr(redraft, "_EXPORTS", None)
    if exports is None:
        pytest.skip("redraft/__init__.py has no _EXPORTS yet")
    return exports


def is_room(name):
    return find_spec(f"redraft.{name}") is not None


def test_all_is_sorted_and_complete(table):
    assert redraft.__all__ == sorted({*table, "__version__"})


def test_dir_shows_all(table):
    assert set(redraft.__all__) <= set(dir(redraft))


def test_every_export_comes_from_where_the_table_says(table):
    lost = [name for name, home in table.items() if not is_room(name) and not hasattr(import_module(home), name)]
    assert lost == []


def test_every_export_has_a_docstring(table):
    def documented(name):
        value = getattr(redraft, name)
        own = inspect.cleandoc(value.__doc__ or "")
        return len(own) > 10 and not own.startswith(f"{name}(")  # a dataclass's made-up docstring is its signature

    assert [name for name in table if not documented(name)] == []


def test_type_checkers_see_the_same_names(table, modules):
    front = next(module for module in modules if module.name == "redraft")
    seen = {
        alias.asname or alias.name: node.module
        for branch in front.tree.body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {n: m for n, m in seen.items() if not is_room(n)} == {n: m for n, m in table.items() if not is_room(n)}


def test_an_unknown_name_is_an_attribute_error(table):
    with pytest.raises(AttributeError, match="no_such_name"):
        redraft.no_such_name  # noqa: B018
