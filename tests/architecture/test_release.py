"""One version, said in three places."""

import re
import tomllib

import redraft


def test_the_changelog_opens_with_the_package_version(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    newest = re.search(r"^## \[(.+?)\]", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert newest == project["version"] == redraft.__version__
