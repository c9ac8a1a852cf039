"""CHANGELOG.md as Keep a Changelog 1.1.0 has it, read strictly."""

import re
from dataclasses import dataclass, field

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
SECTION = re.compile(r"## \[(?P<version>\d+\.\d+\.\d+(?:[-+][\w.]+)?)\] - (?P<date>\d{4}-\d\d-\d\d|Unreleased)")


@dataclass
class Section:
    version: str
    date: str | None
    """None while it is not released."""
    entries: dict[str, list[str]] = field(default_factory=dict)
    """Kind -> what is said, each entry on one line."""


def read(path):
    return parse(path.read_text(encoding="utf-8"))


def parse(text):
    """The sections, in the file's order. Raises `ValueError` with the line that is wrong."""
    sections, kind = [], None
    title, *lines = text.splitlines()
    if title != "# Changelog":
        raise ValueError(f"line 1: {title!r} is not '# Changelog'")
    for number, line in enumerate(lines, 2):
        where = f"line {number}: {line!r}"
        if line.startswith("## "):
            if (found := SECTION.fullmatch(line)) is None:
                raise ValueError(f"{where} is not '## [VERSION] - YYYY-MM-DD' or '## [VERSION] - Unreleased'")
            date = None if found["date"] == "Unreleased" else found["date"]
            sections.append(Section(found["version"], date))
            kind = None
        elif line.startswith("### "):
            kind = line.removeprefix("### ")
            if not sections or kind not in KINDS or kind in sections[-1].entries:
                raise ValueError(f"{where}: in a section, once each: {', '.join(KINDS)}")
            sections[-1].entries[kind] = []
        elif line.startswith("- ") and kind:
            sections[-1].entries[kind].append(line.removeprefix("- "))
        elif line.startswith("  ") and kind and sections[-1].entries[kind]:
            sections[-1].entries[kind][-1] += " " + line.strip()
        elif line and sections:
            raise ValueError(f"{where} is neither a heading nor part of an entry")
    return sections


def newest(sections):
    return sections[0]
