"""The public API as text: what `public_api.txt` pins. `python tests/architecture/public_api.py` writes that file.

Read from the source alone, so that it is the same on every Python and whatever is installed. Public is what a module of
`MODULES` lists in `__all__` (or defines without an underscore, where it has none); of a class its constructor, its fields
and its methods, those of its bases in redraft included.
"""

import ast
import sys
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).with_suffix(".txt")

NOT_PUBLIC = {
    # A module with an `__all__` that nobody imports from outside.
    "redraft.cli": "its interface is the command line",
}
WITHOUT_ALL = ("redraft.errors", "redraft.protocols", "redraft.types")
"""Public in whole: what users catch, implement and read."""

INTERNAL = {"__repr__", "__eq__", "__hash__", "__post_init__", "__setattr__", "__delattr__", "__dir__", "__reduce__"}
MARKS = ("property", "cached_property", "classmethod", "staticmethod", "overload", "abstractmethod")


class Source:
    """The package's modules by name, and what a name in one of them stands for."""

    def __init__(self, folder):
        self.folder = folder

    @cached_property
    def modules(self):
        paths = sorted((self.folder / "redraft").rglob("*.py"))
        return {
            ".".join(path.relative_to(self.folder).with_suffix("").parts).removesuffix(".__init__"): path
            for path in paths
        }

    def tree(self, module):
        found = self.modules[module]
        if isinstance(found, Path):
            found = self.modules[module] = ast.parse(found.read_text(encoding="utf-8"))
        return found

    def names(self, module):
        """What the module shows: `__all__`, or None if it has none."""
        found = self.modules[module]
        if isinstance(found, Path) and "__all__" not in found.read_text(encoding="utf-8"):
            return None  # parsing all of them would take seconds
        for node in self.tree(module).body:
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
                return ast.literal_eval(node.value)
        return None

    def defined(self, module):
        nodes = statements(self.tree(module).body)
        return [
            name
            for node in nodes
            for name in bound(node)
            if not name.startswith("_") and not isinstance(node, ast.ImportFrom)
        ]

    def find(self, module, name):
        """(module, node) where the name is defined; (module, None) for a module, and for what is not of redraft."""
        for node in statements(self.tree(module).body):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("redraft"):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        inner = f"{node.module}.{alias.name}"
                        return (inner, None) if inner in self.modules else self.find(node.module, alias.name)
            elif name in bound(node):
                return module, node
        return f"{module}.{name}", None


def statements(body):
    """Those at the top, under `if` and in `try` included."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from statements([*node.body, *node.orelse])
        else:
            yield node


def bound(node):
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.TypeAlias if sys.version_info >= (3, 12) else ()):
        return [node.name.id]
    return []


def is_public(name):
    return not name.startswith("_") or (name.endswith("__") and name not in INTERNAL)


def function_text(node):
    marks = [text for text in map(ast.unparse, node.decorator_list) if text.rpartition(".")[2] in MARKS]
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return " ".join([*(f"@{mark}" for mark in marks), f"{kind} {node.name}({ast.unparse(node.args)}){returns}"])


def members(source, module, node):
    """Name -> lines, of the class and what it inherits in redraft."""
    found = {}
    for base in reversed(node.bases):
        name = ast.unparse(base).partition("[")[0]
        home, above = source.find(module, name) if "." not in name else (module, None)
        if isinstance(above, ast.ClassDef):
            found |= members(source, home, above)
    own = {}
    for part in statements(node.body):
        for name in filter(is_public, bound(part)):
            text = (
                function_text(part) if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) else ast.unparse(part)
            )
            if text not in own.setdefault(name, []):
                own[name].append(text)
    return found | own


def text_of(source, public, home, node):
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        lines = members(source, home, node)
        return [f"class {public}({bases})", *(f"    {line}" for name in sorted(lines) for line in lines[name])]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [f"{public}: {function_text(node)}"]
    if node is None:
        return [f"{public}: {'module' if home in source.modules else 'from elsewhere'}"]
    annotation = f"{public}: {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else public
    return [annotation]


def public_modules(source):
    shown = [name for name in source.modules if name not in NOT_PUBLIC and source.names(name) is not None]
    return sorted({*shown, *WITHOUT_ALL})


def rendered(folder=ROOT / "src"):
    """The lines of the public API. What several modules show is written out where it is shown first."""
    source, written, lines = Source(folder), {}, []
    for module in public_modules(source):
        shown = source.names(module)
        for name in sorted(source.defined(module) if shown is None else shown):
            public = f"{module}.{name}"
            home, node = source.find(module, name)
            first = written.setdefault(f"{home}.{name}", public) if node is not None else public
            lines += text_of(source, public, home, node) if first == public else [f"{public}: {first}"]
    return lines


def pinned():
    """(version, lines) of the file."""
    head, _, *lines = PINNED.read_text(encoding="utf-8").splitlines()
    return head.rpartition(" ")[2], lines


def write():
    from changelog import newest, read

    last = newest(read(ROOT / "CHANGELOG.md"))
    lines = rendered()
    if last.date and lines != pinned()[1]:
        sys.exit(
            f"{last.version} was released on {last.date}: open a section of CHANGELOG.md for the version that this API has"
        )
    PINNED.write_text("\n".join([f"# The public API of redraft {last.version}", "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    write()
