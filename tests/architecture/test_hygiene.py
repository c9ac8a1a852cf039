"""Habits that a reviewer would repeat: boundaries, leftovers, imports, prints, paths, words."""

import ast
import re

BOUNDARIES = {
    # The only places where any exception is caught, because any code may stand behind them.
    "redraft.run": "user code and the wire: errors are classified here",
    "redraft.jsonable": "user code: an exception whose own message cannot be made",
    "redraft.sync": "user code in a worker thread: what it raises travels to the caller",
    "redraft.modules.calls": "user code: what a tool raises is shown to the model that called it",
    "redraft.rlm.tools": "user code: what a tool raises is raised in the code that called it",
    "redraft.journal": "user code: a listener that fails must not hurt the run",
    "redraft.batch.work": "user code: what reading the items raises is raised to the caller",
    "redraft.batch.one": "user code: an item's error is a row",
    "redraft.batch.portable": "user code: an object's own way of being pickled",
    "redraft.batch.remote": "user code: what a result does when it is unpickled",
    "redraft.batch.worker": "user code: what a row's inputs do when they are unpickled",
    "redraft.checks.userfile": "user code: a check file is run to read its checks",
    "redraft.checks.harness": "user code: the child process in which a draft's program is tested",
    "redraft.proactive.guards": "user code: a check's guard, asked while a model writes, which is not at fault",
    "redraft.sandbox.cell": "user code: what a host function raises is raised in the cell that called it",
    "redraft.sandbox.monty_cell": "user code: what a host function raises is raised in the cell that called it",
    "redraft.sandbox.child.repl": "user code: a cell's error is shown to its author",
    "redraft.sandbox.child.show": "user code: an exception or a value whose own text cannot be made",
    "redraft.integrations.mcp.server": "the client of a tool: an answer, never a traceback",
    "redraft.server.app": "the client of a route: an answer in its API's form, never a traceback",
    "redraft.lm.native.model": "the wire: any of a dozen libraries may stand behind a request",
    "redraft.cli.app": "the person at the terminal: one paragraph, never a traceback",
}

LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|root|tmp)/")
NOT_USED = {"Agent", "Manager", "Handler", "Candidate", "Rollout", "Trace"}
"""docs/design.md, section 2."""


def found(modules, pattern):
    return [
        f"{module.name}:{number} {line.strip()}"
        for module in modules
        for number, line in enumerate(module.text.splitlines(), 1)
        if pattern.search(line)
    ]


def names_any_exception(node):
    return node is None or any(
        isinstance(part, ast.Name) and part.id in {"Exception", "BaseException"} for part in ast.walk(node)
    )


def catches_anything(module):
    """Lines with a bare except, `except Exception` or BaseException, or the same by contextlib.suppress."""
    for node in ast.walk(module.tree):
        broad = isinstance(node, ast.ExceptHandler) and names_any_exception(node.type)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"suppress", "contextlib.suppress"}:
            broad = any(names_any_exception(arg) for arg in node.args)
        if broad:
            yield f"{module.name}:{node.lineno}"


def prints(module):
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{module.name}:{node.lineno}"


def words(class_name):
    return set(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", class_name))


def test_any_exception_is_caught_at_the_boundaries_only(modules):
    assert [use for module in modules if module.name not in BOUNDARIES for use in catches_anything(module)] == []


def test_every_boundary_is_one(modules):
    assert set(BOUNDARIES) - {module.name for module in modules if list(catches_anything(module))} == set()


def test_nothing_is_left_for_later(modules):
    assert found(modules, LEFTOVERS) == []


def test_no_relative_imports(modules):
    relative = [
        f"{module.name}:{node.lineno}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_no_path_of_one_machine(modules, root):
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    assert found(modules, MACHINE_PATHS) == []
    assert [page.name for page in pages if MACHINE_PATHS.search(page.read_text(encoding="utf-8"))] == []


def test_only_the_command_line_prints(modules):
    assert [use for module in modules if module.room != "cli" for use in prints(module)] == []


def test_classes_use_the_words_of_the_design(modules):
    wrong = [
        f"{module.name}.{node.name}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and words(node.name) & NOT_USED
    ]
    assert wrong == []


def test_the_rules_catch_what_they_name(module):
    source = """
        try: pass
        except (ValueError, Exception): print("x")
        try: pass
        except: pass
        with suppress(BaseException): pass
        try: pass
        except OSError: pass
    """
    bad = module("redraft.x", source)
    assert sorted(catches_anything(bad)) == ["redraft.x:3", "redraft.x:5", "redraft.x:6"]
    assert list(prints(bad)) == ["redraft.x:3"]
    assert words("HTTPHandler") == {"HTTP", "Handler"}
    assert words("Traceback") == {"Traceback"}
    assert MACHINE_PATHS.search('open("/tmp/x")')
    assert not MACHINE_PATHS.search("https://host/tmp/x")
