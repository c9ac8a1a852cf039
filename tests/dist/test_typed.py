"""`py.typed` is honoured: mypy sees our types in an environment that has redraft from the wheel."""

import subprocess
import sys

import pytest

WRONG = """
from redraft import Budget, Predict, Refine, Refiner, checks

limits = Budget(calls="four")
write = Refine(Predict("topic -> review"), N=3, checks=[checks.sentences(3)], budget=limits)
result = write(topic="x")
n: int = result.stop_reason
"""


@pytest.fixture
def mypy(base, tmp_path):
    """`mypy --strict` on files, with the types of the environment; what it printed."""

    def check(*files):
        asked = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--python-executable",
            base.python,
            "--cache-dir",
            tmp_path / "cache",
        ]
        done = subprocess.run([*asked, *files], check=False, cwd=tmp_path, capture_output=True, text=True)
        return done.stdout.splitlines() + done.stderr.splitlines()

    return check


def test_users_programs_are_checked_against_the_installed_types(mypy, root, tmp_path):
    programs = {path.name: path.read_text(encoding="utf-8") for path in (root / "tests/typing").glob("*.py")}
    for name, text in {**programs, "wrong.py": WRONG}.items():
        (tmp_path / name).write_text(text)
    *found, total = mypy(*programs, "wrong.py")
    typo, budget, reason = (line for line in found if ": error:" in line)
    assert typo.startswith('wrong.py:2: error: Module "redraft" has no attribute "Refiner"')
    assert budget.startswith('wrong.py:4: error: Argument "calls" to "Budget" has incompatible type "str"')
    assert reason.startswith('wrong.py:7: error: Incompatible types in assignment (expression has type "StopReason"')
    assert total == f"Found 3 errors in 1 file (checked {len(programs) + 1} source files)"
