"""What the architecture tests look at: every module under src/redraft, parsed once."""

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


@dataclass(frozen=True)
class Module:
    name: str
    """Dotted; a package's `__init__` bears the package's name."""
    text: str
    tree: ast.Module

    @property
    def room(self):
        """`lm` for redraft.lm and all below it; empty for the front, redraft itself."""
        return self.name.partition(".")[2].partition(".")[0]


def read(path):
    dotted = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    text = path.read_text(encoding="utf-8")
    return Module(dotted, text, ast.parse(text, str(path)))


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def modules():
    """Every module of the package."""
    return [read(path) for path in sorted((SOURCE / "redraft").rglob("*.py"))]


@pytest.fixture(scope="session")
def module():
    """Makes a module out of a name and a text, to show what a rule catches."""

    def make(name, text):
        text = textwrap.dedent(text)
        return Module(name, text, ast.parse(text))

    return make
