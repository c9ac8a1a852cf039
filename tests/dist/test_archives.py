"""What is in the wheel and the sdist, and what is not."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser

import pytest

import redraft

LEFTOVERS = re.compile(
    r"\.(pyc|db|db-wal|db-shm|gguf|log|part)$|__pycache__|egg-info|(^|/)(\.(?!gitignore$)|build/|dist/(?!\w+\.py$))"
    r"|^benchmarks/.*\.jsonl?$"
)


@pytest.fixture
def in_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture
def in_sdist(sdist):
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


@pytest.fixture
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = f"redraft-{redraft.__version__}.dist-info/METADATA"
        return HeaderParser().parsestr(archive.read(name).decode())


@pytest.fixture
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def sources(root):
    """Every file of the package in the checkout: modules, `py.typed`, the page's templates."""
    files = (root / "src").rglob("*")
    return {str(f.relative_to(root / "src")) for f in files if f.is_file() and "__pycache__" not in f.parts}


def test_the_wheel_is_the_package_and_its_licence(root, in_wheel):
    beside = {name for name in in_wheel if not name.startswith("redraft/")}
    info = f"redraft-{redraft.__version__}.dist-info"
    parts = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    assert in_wheel - beside == sources(root)
    assert beside == {f"{info}/{part}" for part in parts}


def test_types_templates_and_styles_are_in_the_wheel(in_wheel):
    assert {
        "redraft/py.typed",
        "redraft/report/page/templates/base.html",
        "redraft/report/page/templates/page.css",
    } <= in_wheel


def test_the_sdist_has_all_that_its_tests_need(root, in_sdist):
    assert {f"src/{name}" for name in sources(root)} <= in_sdist
    tests = {str(path.relative_to(root)) for path in (root / "tests").rglob("*.py")}
    assert tests <= in_sdist
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "docs/design.md"} <= in_sdist


def test_nothing_is_left_in_them(in_wheel, in_sdist):
    assert [name for name in in_wheel | in_sdist if LEFTOVERS.search(name)] == []


def test_they_are_small(wheel, sdist):
    assert wheel.stat().st_size < 2_000_000
    assert sdist.stat().st_size < 4_000_000


def test_the_metadata_is_valid(wheel, sdist):
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_the_metadata_says_what_pyproject_says(metadata, project):
    assert metadata["Version"] == project["version"] == redraft.__version__
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_every_python_that_is_promised_is_named(metadata):
    named = [c.rpartition(" ")[2] for c in metadata.get_all("Classifier") if re.search(r":: 3\.\d+$", c)]
    assert named == ["3.11", "3.12", "3.13", "3.14"]
    assert metadata["Requires-Python"] == f">={named[0]}"


def test_tests_of_the_sdist_pass_in_the_sdist(sdist, tmp_path):
    """They read the tree and import the package: both are the sdist's."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    tests = (
        "tests/architecture/test_release.py",
        "tests/architecture/test_changelog.py",
        "tests/checks/test_counts.py",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        check=False,
        cwd=folder,
        env={"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
