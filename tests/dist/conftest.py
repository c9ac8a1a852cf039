"""The packages that `make dist` built, installed into empty environments outside the checkout, once for all tests."""

import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from sizes import install, new_venv

from redraft.lm.catalogue import cache_dir


@dataclass(frozen=True)
class Installed:
    """An environment that redraft was installed into."""

    folder: Path
    home: Path

    @property
    def python(self):
        return self.folder / "bin/python"

    @property
    def env(self):
        """That of a new user; the embedded model is fetched once for all."""
        ours = ("REDRAFT_", "PYTHON", "OPENAI_", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        path = f"{self.folder / 'bin'}:/usr/bin:/bin"
        return {
            **kept,
            "PATH": path,
            "HOME": str(self.home),
            "REDRAFT_DISCOVER": "0",
            "REDRAFT_CACHE": str(cache_dir()),
        }

    def run(self, *command, **env):
        """A command of the environment, in an empty folder."""
        program = self.folder / "bin" / command[0]
        where = {"cwd": self.home, "env": {**self.env, **env}, "stdin": subprocess.DEVNULL}
        return subprocess.run([program, *command[1:]], check=False, capture_output=True, text=True, timeout=60, **where)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.dist)


def only(found):
    found = list(found)
    assert len(found) == 1, f"`make dist` leaves one: {found}"
    return found[0]


@pytest.fixture(scope="session")
def root(pytestconfig):
    return pytestconfig.rootpath


@pytest.fixture(scope="session")
def wheel(root):
    return only((root / "dist").glob("*.whl"))


@pytest.fixture(scope="session")
def sdist(root):
    return only((root / "dist").glob("*.tar.gz"))


@pytest.fixture(scope="session")
def dockerfile(root):
    """(instruction, what follows) in order; continued lines are one, comments none."""
    text = re.sub(r"^#.*\n", "", (root / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [tuple(line.split(None, 1)) for line in lines]


@pytest.fixture(scope="session")
def pip_line(dockerfile):
    """The arguments of the image's `pip install`, the wheel last: `[local,server]` behind it."""
    line = only(rest for kind, rest in dockerfile if kind == "RUN" and "pip install" in rest)
    *flags, wanted = shlex.split(line.partition("pip install ")[2])
    return [*flags, wanted.partition(")")[2]]


@pytest.fixture(scope="session")
def installs(wheel, sdist, pip_line, tmp_path_factory):
    """The wheel, the sdist, and the wheel as the image has it, each in an environment of its own."""
    *flags, extras = pip_line
    wanted = {"wheel": [str(wheel)], "sdist": [str(sdist)], "image": [*flags, f"{wheel}{extras}"]}

    def make(name):
        installed = Installed(tmp_path_factory.mktemp(name) / "venv", tmp_path_factory.mktemp(f"{name}-home"))
        install(new_venv(installed.folder), *wanted[name])
        return installed

    with ThreadPoolExecutor() as pool:
        return dict(zip(wanted, pool.map(make, wanted), strict=True))


@pytest.fixture(params=["wheel", "sdist"])
def plain(request, installs):
    """redraft without an extra, from either package."""
    return installs[request.param]


@pytest.fixture
def base(installs):
    return installs["wheel"]


@pytest.fixture
def image(installs):
    """What the image has: the embedded model's engine and the server."""
    return installs["image"]
