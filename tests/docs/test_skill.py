"""The skill for coding agents is one by the open format, and every Python block of it runs."""

import re

import pytest
import test_code_blocks as docs
import yaml

from redraft.cli import main

SKILL = docs.ROOT / "skills/redraft"
PAGES = sorted(SKILL.rglob("*.md"))
clean_slate = docs.clean_slate  # the fixture


def front_matter():
    head, matter, body = (SKILL / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)
    assert head == ""
    return yaml.safe_load(matter), body


def test_its_front_matter_is_what_the_format_asks_for():
    matter, body = front_matter()
    assert set(matter) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert matter["name"] == SKILL.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", matter["name"])
    assert len(matter["name"]) <= 64
    assert 0 < len(matter["description"]) <= 1024
    assert len(matter["compatibility"]) <= 500
    assert body.count("\n") < 500, "an agent reads all of it; what is longer goes into references/"


def test_what_it_points_to_is_there():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page.name} points to {target}"


def test_its_commands_and_options_exist():
    _, body = front_matter()
    for line in re.findall(r"^\$ redraft (.+)$", body, re.MULTILINE):
        command = main.commands[line.split()[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<= )--?[a-z][\w-]*", line)) <= known


@pytest.mark.usefixtures("clean_slate")
@pytest.mark.filterwarnings("ignore::pytest.PytestAssertRewriteWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_its_blocks_run(page):
    blocks = docs.read_blocks(page, page.read_text(encoding="utf-8"))
    python = [block for block in blocks if block.language == "python"]
    assert python
    namespace = {"__name__": "page"}
    for block in python:
        assert block.how in (None, "replies")
        docs.set_default_model(block)
        docs.run_block(block, namespace)
