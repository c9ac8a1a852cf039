"""Each numbered example runs, and shows what it says that it shows.

Those with a scripted model run in the core tier. Those on the embedded model, and with other libraries, run as a reader
runs them: as a process of their own, in `make test-local`, `make test-crash` and `make test-doors`.
"""

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from redraft.types import StopReason

FOLDER = Path(__file__).parents[2] / "examples"
NUMBERED = sorted(path.name for path in FOLDER.glob("[0-9]*.py"))
TABLE = (FOLDER / "README.md").read_text(encoding="utf-8")


def main_of(number):
    (name,) = (name for name in NUMBERED if name.startswith(number))
    return runpy.run_path(str(FOLDER / name))["main"]


def started(number, *arguments, code=0):
    """What the example says in a process of its own, with no model but those that it names."""
    (name,) = (name for name in NUMBERED if name.startswith(number))
    alone = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_") and k != "REDRAFT_MODEL"}
    ended = subprocess.run(
        [sys.executable, FOLDER / name, *arguments],
        check=False,
        env=alone,
        capture_output=True,
        text=True,
        timeout=1200,
        encoding="utf-8",
    )
    assert ended.returncode == code, ended.stderr
    return ended.stdout


def test_checks_of_your_own(capsys):
    result = main_of("02")()
    assert [(a.rung, round(a.score.value, 3)) for a in result.attempts] == [
        ("tell", 0.028),
        ("fix", 0.375),
        ("resample", 1.0),
    ]
    assert result.usage.calls == 2
    assert "x  about_the_product 0.25 it addresses the reader: Buy, You, your" in capsys.readouterr().out


def test_best_of_n_with_a_judge(capsys):
    result = main_of("03")()
    assert result.line == "Rain on the tin roof, and the tea goes cold."
    assert [a.score.value for a in result.attempts] == [1.0, 1.0, 0.0]
    assert result.usage.calls == 5
    assert "the judge was asked 2 times" in capsys.readouterr().out


def test_reflect_with_personas(capsys):
    result = main_of("04")()
    assert (result.text, result.stop_reason) == ("A red dog digs among the beans.", StopReason.CRITIC_OK)
    assert result.attempts[1].reason == "the judge prefers it in both orders"
    roles = re.findall(r"^    (\w+) answered$", capsys.readouterr().out, re.MULTILINE)
    assert roles == ["author", "critic", "reviser", "judge", "judge", "critic"]


def test_budget(capsys):
    unlimited, calls, tokens, cost = main_of("05")()
    assert (unlimited.usage.calls, unlimited.stop_reason) == (5, StopReason.ROUNDS)
    assert [r.stop_reason for r in (calls, tokens, cost)] == [StopReason.BUDGET] * 3
    assert (calls.usage.calls, calls.line) == (2, "one two")
    assert (tokens.usage.tokens, cost.cost) == (54, pytest.approx(0.39))
    need = "and the next prompt with one token of reply may need"
    assert f"5 cents    the limit of 0.05 dollars is reached (0 spent, {need}" in capsys.readouterr().out


@pytest.mark.crash
def test_resume_after_a_kill():
    first, second, third = started("06").split("a process starts\n")[1:]
    assert [part.count("the model is asked") for part in (first, second, third)] == [1, 2, 0]
    assert [re.search(r"exit code (-?\d+)", part)[1] for part in (first, second, third)] == ["-9", "0", "0"]
    assert second.count("3 calls in all") == third.count("3 calls in all") == 1


def test_batch(capsys):
    done = main_of("07")()
    assert {item.key: (item.status, item.usage.calls) for item in done} == {
        **dict.fromkeys(["lyon", "porto", "bergen", "graz", "ghent"], ("done", 2)),
        "nowhere": ("failed", 3),
    }
    assert "6 items, 13 calls" in capsys.readouterr().out


def test_rlm_over_a_log(capsys):
    result = main_of("08")()
    said = capsys.readouterr()
    assert said.out.count("(exact)") == 3
    assert result.usage.calls == 4
    assert "[0:99 of 955978] 00000 INFO GET /0 200" in said.err, "the steps are shown"


def test_eval(capsys):
    report = main_of("11")()
    refine = report["refine"]
    assert (refine.score, refine.usage.calls, refine.single_shot.pairs) == (pytest.approx(22 / 24), 24, 24)
    assert refine.single_shot.right_to_wrong == 0
    assert "refine against single shot: better" in capsys.readouterr().out


def test_calibrate(capsys):
    found = main_of("12")()
    assert {name: found.entry()[name] for name in ("strategy", "verdict", "revise", "attempts")} == {
        "strategy": "refine",
        "verdict": "recommended",
        "revise": "constrain",
        "attempts": 2,
    }
    assert "constrain  mended 22 of 25" in capsys.readouterr().out


@pytest.mark.local
def test_first_refine():
    said = started("01")
    assert "== draft 1 | " in said
    assert said.splitlines()[-1].endswith("| $0.00 | stopped: passed")


@pytest.mark.local
def test_proactive():
    said = started("09")
    assert re.search(r"^    guard: took back '.+', put '.+'$", said, re.MULTILINE)
    *_, sentence, receipt = said.splitlines()
    assert not re.search(r"\b(world|new)\b", sentence, re.IGNORECASE)
    assert "stopped: passed" in receipt


@pytest.mark.local
def test_any_server():
    said = started("15")
    assert re.search(r"^constrain .*Crumb", said, re.MULTILINE)
    assert "price unknown | stopped: passed" in said


@pytest.mark.doors
@pytest.mark.skipif(find_spec("starlette") is None, reason="redraft[server] is not installed")
def test_serve_a_preset():
    said = started("10")
    assert "(no key needed): refine/review" in said
    assert "    stop-reason: passed\n" in said
    assert "La Maison" in said
    assert said.endswith("the server ended with 0\n")


@pytest.mark.doors
@pytest.mark.skipif(find_spec("dspy") is None, reason="redraft[dspy] is not installed")
def test_dspy_program():
    said = started("13")
    before, after = (
        int(re.search(rf"^{when}: \d+ % right, (\d+) calls", said, re.MULTILINE)[1]) for when in ("before", "after")
    )
    assert after < before
    assert re.search(r"bootstrapped through Refine:\n    What is the capital of \w+\?", said)


IN_ANOTHER_FILE = {"14_mcp_session.py": "tests/doors/test_mcp_stdio.py"}


def test_each_one_is_run_and_listed():
    tested = set(re.findall(r'(?:main_of|started)\("(\d\d)"', Path(__file__).read_text(encoding="utf-8")))
    for name in NUMBERED:
        where = IN_ANOTHER_FILE.get(name)
        assert name[:2] in tested or name in (FOLDER.parent / where).read_text(encoding="utf-8"), f"{name} is not run"
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert f"python examples/{name}" in text, f"{name} does not say how it is run"
        assert text.count("\n") <= 60, f"{name} has {text.count(chr(10))} lines; one idea fits in 60"
    listed = re.findall(r"\]\((\w+\.py)\)", TABLE)
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("*.py"))
