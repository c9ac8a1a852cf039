"""What an install brings, measured in empty venvs: the table of docs/install.md.

    python tests/dist/sizes.py dist/redraft-0.1.0-py3-none-any.whl local server local,server

prints, for redraft alone and then with each of these extras, how many packages there are (redraft among them, pip not)
and how many MB (10^6 bytes) of files, byte code included; behind it, what the extra adds.
"""

import subprocess
import sys
import tempfile
import venv
from importlib.metadata import distributions
from pathlib import Path

PIP = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "--python")
NOT_COUNTED = "pip"
"""Where `local` asks for it, others have it already."""


def new_venv(folder):
    """An empty venv, without pip; its python."""
    venv.create(folder, symlinks=True)
    return folder / "bin/python"


def pip(python, *what):
    """Our own pip, at work in the environment of that python."""
    return subprocess.run([*PIP, python, *what], check=False, capture_output=True, text=True)


def install(python, *what):
    """A failure shows what pip said."""
    done = pip(python, "install", *what)
    assert done.returncode == 0, done.stdout + done.stderr


def site_packages(folder):
    return next((folder / "lib").glob("python*/site-packages"))


def packages(folder):
    """Names of the installed packages."""
    found = {each.metadata["Name"] for each in distributions(path=[str(site_packages(folder))])}
    return sorted(found - {NOT_COUNTED})


def megabytes(folder):
    """Of all files of these."""
    ours = [each for each in site_packages(folder).iterdir() if each.name.partition("-")[0] != NOT_COUNTED]
    files = [file for each in ours for file in (each.rglob("*") if each.is_dir() else [each])]
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def measured(wheel, extras="", *more):
    with tempfile.TemporaryDirectory() as folder:
        python = new_venv(Path(folder))
        install(python, f"{wheel}[{extras}]" if extras else str(wheel), *more)
        return len(packages(Path(folder))), megabytes(Path(folder))


def main(wheel, *wanted):
    base = measured(wheel)
    print(f"{'redraft':20} {base[0]:4} packages {base[1]:7.1f} MB", flush=True)
    for each in wanted:
        extras, *more = each.split("+", 1)
        count, size = measured(wheel, extras, *more)
        print(
            f"{each:20} {count:4} packages {size:7.1f} MB, {count - base[0]:+} packages {size - base[1]:+.1f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
