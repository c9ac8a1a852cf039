"""CHANGELOG.md says what a user will notice, in the form that people and programs know (Keep a Changelog)."""

import re
import tomllib

import pytest
from changelog import newest, parse, read

import redraft

GOOD = """# Changelog

About it.

## [0.2.0] - Unreleased

### Added

- One
  that goes on.

## [0.1.0] - 2026-01-02

### Fixed

- Two.
"""


@pytest.fixture
def sections(root):
    return read(root / "CHANGELOG.md")


def key(version):
    return tuple(map(int, re.match(r"(\d+)\.(\d+)\.(\d+)", version).groups()))


def test_the_newest_section_is_the_version(root, sections):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert newest(sections).version == project["version"] == redraft.__version__


def test_every_section_says_something(sections):
    for section in sections:
        assert section.entries, section.version
        assert [kind for kind, entries in section.entries.items() if not entries] == [], section.version


def test_the_newest_comes_first_and_only_it_may_be_unreleased(sections):
    assert [key(s.version) for s in sections] == sorted({key(s.version) for s in sections}, reverse=True)
    dates = [section.date for section in sections[1:]]
    assert None not in dates
    assert dates == sorted(dates, reverse=True)


def test_every_name_of_the_front_is_told(sections):
    """So that no name comes without a word: of a new one, the section of its version says what it is for."""
    told = {
        word
        for section in sections
        for entries in section.entries.values()
        for entry in entries
        for code in re.findall(r"`([^`]+)`", entry)
        for word in re.findall(r"\w+", code)
    }
    assert sorted(set(redraft.__all__) - {"__version__"} - told) == []


def test_how_it_is_read():
    second, first = parse(GOOD)
    assert (second.version, second.date, second.entries) == ("0.2.0", None, {"Added": ["One that goes on."]})
    assert (first.version, first.date, first.entries) == ("0.1.0", "2026-01-02", {"Fixed": ["Two."]})


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("# Changelog", "# Changes", 1),
        ("## [0.2.0] - Unreleased", "## 0.2.0", 5),
        ("2026-01-02", "02.01.2026", 12),
        ("### Fixed", "### Bugs", 14),
        ("- Two.", "Two.", 16),
        ("- Two.", "- Two.\n\n### Fixed", 18),
    ],
)
def test_what_is_wrong_is_told_by_its_line(right, wrong, line):
    with pytest.raises(ValueError, match=f"line {line}:"):
        parse(GOOD.replace(right, wrong))
