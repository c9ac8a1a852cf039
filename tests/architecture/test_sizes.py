"""Small enough to read (docs/design.md, section 9). If a room outgrows that, it wants another room."""

import ast

FILE_LINES = 400
FUNCTION_LINES = 40
PARAMETERS = 8

# Each table: dotted name -> why it may be larger. An entry that is not needed any more fails its test.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
MANY_PARAMETERS: dict[str, str] = {
    "redraft.integrations.dspy.rlm.RLM.__init__": "DSPy's constructor, and the options of ours by name",
    "redraft.learn.bootstrap.BootstrapFewShot.__init__": "DSPy's constructor, and Evaluate's options by name",
    "redraft.rlm.rlm.RLM.__init__": "DSPy's constructor, old names and new, and the bounds of one call by name",
    "redraft.strategies.refine.Refine.__init__": "DSPy's constructor, and the ladder's options by name",
}


def functions(module):
    """(dotted name, node) of every function, methods and nested ones included."""

    def below(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield name, child
                yield from below(child, name)
            else:
                yield from below(child, prefix)

    yield from below(module.tree, module.name)


def is_public(name):
    """Neither the function nor what it stands in is private; `__init__` and `__call__` are the class's own face."""
    return not any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def parameters(function):
    """How many arguments a caller sees: without self or cls, each of *args and **kwargs once."""
    a = function.args
    names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if arg]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def lines(function):
    return function.end_lineno - function.lineno + 1


def test_a_file_is_at_most_400_lines(modules):
    long = {module.name for module in modules if module.text.count("\n") > FILE_LINES}
    assert long == set(LONG_FILES)


def test_a_function_is_at_most_40_lines(modules):
    long = {name for module in modules for name, f in functions(module) if lines(f) > FUNCTION_LINES}
    assert long == set(LONG_FUNCTIONS)


def test_a_public_signature_has_at_most_8_parameters(modules):
    many = {
        name for module in modules for name, f in functions(module) if is_public(name) and parameters(f) > PARAMETERS
    }
    assert many == set(MANY_PARAMETERS)


def test_how_a_signature_is_counted(module):
    source = """
        class Refine:
            def __init__(self, module, *, N, **more): pass
            def _private(self): pass
        def free(a, /, b, *rest): pass
    """
    counted = {name: parameters(f) for name, f in functions(module("redraft.x", source)) if is_public(name)}
    assert counted == {"redraft.x.Refine.__init__": 3, "redraft.x.free": 3}
