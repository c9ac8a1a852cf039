"""What the package says of itself is so."""

import re
import tomllib


def test_every_extra_that_is_named_exists(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pages = [root / "README.md", *root.glob("docs/*.md"), *root.glob("skills/**/*.md"), *root.glob("src/**/*.py")]
    named = {
        extra
        for page in pages
        for found in re.findall(r"redraft\[([a-z,]+)\]", page.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert named <= set(project["optional-dependencies"])


def test_the_extra_server_brings_what_serve_view_and_report_ask_for(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = {re.match(r"[a-z0-9-]+", each)[0] for each in project["optional-dependencies"]["server"]}
    assert {"starlette", "uvicorn", "prometheus-client", "jinja2"} <= brought


def test_every_extra_stands_in_the_table_of_the_page(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (root / "docs/install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z]+)` \|.*\| ([\d,]+|-) \| ([\d,.]+|-) \|$", page, re.MULTILINE)
    assert {name for name, *_ in rows} == {"redraft", *project["optional-dependencies"]}


def test_every_python_that_is_promised_has_its_classifier(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    page = (root / "docs/install.md").read_text(encoding="utf-8")
    assert project["requires-python"] == f">={named[0]}"
    assert f"Python {named[0]} to {named[-1]}." in page
