"""A module imports only from lower floors (docs/design.md, section 3)."""

import ast
import sys

FLOORS = {
    # From the ground up. Every module and package right under src/redraft stands on one floor.
    "0": ("copies", "jsonable", "locks", "errors", "sockets", "types", "protocols", "turns", "budget", "result"),
    "1": (
        "notation",
        "coerce",
        "linear",
        "schemas",
        "signature",
        "sync",
        "record",
        "journal",
        "registry",
        "config",
        "retry",
        "grammar",
        "scoring",
        "frame",
        "ledger",
        "refusals",
        "cached",
        "takeover",
        "purchase",
        "run",
        "foreign",
        "testing",
    ),
    "2a": ("lm", "checks", "judges", "sandbox", "modules"),
    "2b": ("strategies", "rlm", "proactive"),
    "3": ("batch", "store"),
    "4": ("evaluate", "report", "learn"),
    "5": ("cli", "server", "integrations", "__main__"),
}

ORDERED = {
    # On these floors a room may import the rooms before it; on the others the rooms stand apart.
    "0": "values build on values",
    "1": "the parts that Run is made of come before it; the doubles that wrap it come after",
}

ALLOWED = {
    # (importer, imported) on one floor of rooms that stand apart.
    ("checks", "sandbox"): "a check may run the answer's code",
    ("cli", "integrations"): "`redraft mcp` starts that server",
    ("cli", "server"): "`redraft serve` starts it",
    ("learn", "evaluate"): "learning tries examples and asks a metric, as an evaluation does",
    ("__main__", "cli"): "python -m redraft is the command line",
    ("judges", "modules"): "an LM judge is a module with a signature of its own",
    ("proactive", "strategies"): "proactive decoding is a strategy, called, judged and kept like the others",
    ("checks", "judges"): "a rubric is a check that asks an LM judge, loaded when it is used",
}

TYPES_ONLY = {
    # (importer, imported) upwards, under `if TYPE_CHECKING:` alone.
    ("protocols", "run"): "the Strategy contract names the Run it acts through",
    ("errors", "types"): "errors carry attempts and usage",
    ("frame", "run"): "a frame says which run the code is part of",
    ("purchase", "run"): "a purchase is made by a run",
    ("modules", "batch"): "a module's `batch` gives items of a batch",
    ("coerce", "signature"): "it coerces to a signature's fields; signature calls it",
}

FREE_NAMES = {"__version__"}
"""What any module may import from the front; everything else comes from the room that defines it."""


def floor_of(room):
    return next((i for i, rooms in enumerate(FLOORS.values()) if room in rooms), None)


def may_import(importer, imported):
    if importer == imported or (importer, imported) in ALLOWED:
        return True
    here, there = floor_of(importer), floor_of(imported)
    if here is None or there is None or there > here:
        return False
    name, rooms = list(FLOORS.items())[here]
    return there < here or (name in ORDERED and rooms.index(imported) < rooms.index(importer))


def imports(tree):
    """(dotted name, line, only under TYPE_CHECKING) of every absolute import, wherever it stands."""
    guarded = {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, node in guarded) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "redraft":
            names = (alias.name for alias in node.names if alias.name not in FREE_NAMES)
            yield from ((f"redraft.{name}", node.lineno, node in guarded) for name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno, node in guarded


def wrong_imports(module):
    for dotted, line, only_types in imports(module.tree):
        package, _, rest = dotted.partition(".")
        room = rest.partition(".")[0]
        if package != "redraft" or may_import(module.room, room):
            continue
        if not (only_types and (module.room, room) in TYPES_ONLY):
            yield f"{module.name}:{line} imports {dotted}"


def test_every_module_stands_on_one_floor(modules):
    rooms = {module.room for module in modules if module.room}
    assert {room for room in rooms if floor_of(room) is None} == set(), (
        "name its floor in FLOORS, here and in the design"
    )


def test_no_room_stands_on_two_floors():
    rooms = [room for floor in FLOORS.values() for room in floor]
    assert len(rooms) == len(set(rooms))


def test_a_module_imports_only_from_lower_floors(modules):
    assert [wrong for module in modules if module.room for wrong in wrong_imports(module)] == []


def test_floor_0_needs_the_standard_library_only(modules):
    foreign = [
        f"{module.name}:{line} imports {dotted}"
        for module in modules
        if module.room in FLOORS["0"]
        for dotted, line, _ in imports(module.tree)
        if dotted.partition(".")[0] not in {"redraft", *sys.stdlib_module_names}
    ]
    assert foreign == []


def test_the_rule_catches_what_goes_up_or_sideways(module):
    def caught(name, text):
        return list(wrong_imports(module(name, text)))

    assert caught("redraft.lm.remote", "from redraft.run import Run\nimport redraft.lm.wire\nimport os") == []
    assert caught("redraft.run", "def f():\n    from redraft.testing import x") == [
        "redraft.run:2 imports redraft.testing"
    ]
    assert caught("redraft.lm", "from redraft import judges, __version__") == ["redraft.lm:1 imports redraft.judges"]
    assert caught("redraft.checks", "import redraft.sandbox") == []
    assert caught("redraft.sandbox", "import redraft.checks") == ["redraft.sandbox:1 imports redraft.checks"]
    assert caught("redraft.cli", "import redraft") == ["redraft.cli:1 imports redraft"]
    assert caught("redraft.cli", "import redraft.nowhere") == ["redraft.cli:1 imports redraft.nowhere"]


def test_a_type_may_look_up_only_where_the_table_says_so(module):
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from redraft.run import Run"
    assert list(wrong_imports(module("redraft.protocols", guarded))) == []
    assert list(wrong_imports(module("redraft.budget", guarded))) == ["redraft.budget:3 imports redraft.run"]
    assert list(wrong_imports(module("redraft.protocols", "import redraft.run"))) == [
        "redraft.protocols:1 imports redraft.run"
    ]
