"""One version, said in three places."""

import re
import tomllib

import redraft


def test_the_changelog_opens_with_the_package_version(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    newest = re.search(r"^## \[(.+?)\]", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert newest == project["version"] == redraft.__version__


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
