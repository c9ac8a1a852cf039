"""The public API changes when somebody means it to: its names and signatures are pinned in `public_api.txt`."""

import difflib

import pytest
from public_api import NOT_PUBLIC, PINNED, Source, pinned, public_modules, rendered

import redraft

UPDATE = "python tests/architecture/public_api.py"

PACKAGE = {
    "__init__.py": """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from redraft.rooms import Room, build
        __all__ = ["Room", "build", "rooms", "LIMIT"]
        LIMIT: int = 3
    """,
    "rooms.py": """
        from redraft.base import Base
        __all__ = ["Room", "build"]
        class Room(Base):
            size: int = 1
            def __init__(self, size: int, *, name: str = "x") -> None: ...
            @property
            def area(self) -> float: ...
            def _private(self): ...
            def __repr__(self): ...
        async def build(n=1, /): ...
    """,
    "base.py": """
        class Base:
            def close(self) -> None: ...
            def area(self) -> int: ...
    """,
    "errors.py": "class RedraftError(Exception): ...",
    "protocols.py": "Thing = int",
    "types.py": "def _hidden(): ...",
    "cli.py": "__all__ = ['main']",
}


@pytest.fixture
def package(tmp_path):
    import textwrap

    (tmp_path / "redraft").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "redraft" / name).write_text(textwrap.dedent(text))
    return tmp_path


def test_the_public_api_is_as_it_was_pinned():
    was, now = pinned()[1], rendered()
    if was != now:
        shown = "\n".join(difflib.unified_diff(was, now, PINNED.name, "src/redraft", n=1, lineterm=""))
        pytest.fail(f"the public API has changed:\n{shown}\nIf you mean it: say so in CHANGELOG.md, then run {UPDATE}")


def test_it_is_pinned_for_this_version():
    assert pinned()[0] == redraft.__version__, f"run {UPDATE}"


def test_every_name_of_the_front_is_there():
    names = {line.removeprefix("class ").partition("(")[0].partition(":")[0] for line in pinned()[1]}
    assert {f"redraft.{name}" for name in redraft.__all__} <= names


def test_every_package_with_all_is_public_or_said_not_to_be(root):
    assert set(NOT_PUBLIC) & set(public_modules(Source(root / "src"))) == set()
    assert all(Source(root / "src").names(name) for name in NOT_PUBLIC), "not needed any more"


def test_how_it_is_written(package):
    assert rendered(package) == [
        "redraft.LIMIT: int",
        "class redraft.Room(Base)",
        "    def __init__(self, size: int, *, name: str='x') -> None",
        "    @property def area(self) -> float",
        "    def close(self) -> None",
        "    size: int = 1",
        "redraft.build: async def build(n=1, /)",
        "redraft.rooms: module",
        "class redraft.errors.RedraftError(Exception)",
        "redraft.protocols.Thing",
        "redraft.rooms.Room: redraft.Room",
        "redraft.rooms.build: redraft.build",
    ]
