"""`redraft eval` and `redraft calibrate`, end to end: files in and out, going on, what auto makes of it, what is refused."""

import json
import tomllib

import pytest

from redraft.testing import FunctionLM

GOOD, BAD = "bright day", "dull words all around here and more"
CHECK = ("--check", "words:1-3")


@pytest.fixture
def data(tmp_path):
    def write(n, **more):
        rows = [{"task": f"write {i}", "gold": GOOD, **more} for i in range(n)]
        (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return "d.jsonl"

    return write


@pytest.fixture
def lm():
    """Four of ten blind drafts pass, all under a constraint, and none that sees a bad one."""
    turn = iter(range(10**6))

    def reply(request):
        if BAD in str(request.messages):
            return BAD
        return GOOD if request.grammar or request.effort or next(turn) * 7 % 10 < 4 else BAD

    return FunctionLM(reply, name="half", price=1e-6)


def test_strategies_stand_beside_what_they_have_to_beat(redraft, lm, data, tmp_path):
    said = redraft("eval", data(6), "--strategy", "refine:attempts=2", "--strategy", "best-of-n", *CHECK,
                   "--metric", "exact:gold", "--concurrency", "1", lm=lm)  # fmt: skip
    assert said.exit_code == 0, said.stderr
    for name in ("refine:attempts=2", "best-of-n", "- single shot", "- effort high", "- best of"):
        assert name in said.stdout
    assert "refine:attempts=2 against effort high" in said.stdout
    assert "wrote d.eval.json, d.eval.md, d.eval.svg; run evaluation-" in said.stderr
    read = json.loads((tmp_path / "d.eval.json").read_text())
    assert (read["judged_by"], read["data"], read["model"]) == ("metric 'exact:gold'", "d.jsonl", "half")
    assert (tmp_path / "d.eval.runs.db").exists()


def test_the_same_command_goes_on_and_buys_nothing_twice(redraft, lm, data):
    asked = ("eval", data(6), "--strategy", "refine", *CHECK, "--thinking", "none", "--concurrency", "1")
    part = redraft(*asked, "--call-limit", "5", lm=lm)
    assert part.exit_code == 3
    assert "PARTIAL" in part.stdout
    assert len(lm.requests) == 5
    whole = redraft(*asked, lm=lm)
    assert whole.exit_code == 0
    bought = len(lm.requests)
    again = redraft(*asked, "--json", lm=lm)
    assert (again.exit_code, len(lm.requests)) == (0, bought)
    assert all(item["resumed"] for item in json.loads(again.stdout)["items"])


def test_a_strategy_and_a_metric_of_a_file(redraft, lm, data, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def shout(task):\n    return task.upper()\n\ndef loud(example, prediction):\n"
        "    return prediction.answer == example.task.upper()\n"
    )
    said = redraft("eval", data(3), "--strategy", "mine.py:shout", "--metric", "mine.py:loud", "--thinking", "none",
                   "-q", "-o", "x", lm=lm)  # fmt: skip
    assert said.exit_code == 0, said.stderr
    assert said.stderr == ""
    assert "100.0%" in said.stdout
    assert (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--strategy", "refine"), "nothing to judge by"),
        (("--strategy", "refine", "--metric", "exact:gold"), "nothing to choose its best attempt by"),
        (("--strategy", "refin", *CHECK), "Did you mean 'refine'"),
        (("--strategy", "refine:tries=2", *CHECK), "'tries=2' is no option"),
        (("--strategy", "refine:attempts=many", *CHECK), "is no number"),
        (("--strategy", "refine:rounds=2", *CHECK), "--rounds has no use in the strategy refine"),
        (("--strategy", "refine", "--strategy", "refine", *CHECK), "given twice"),
        (("--strategy", "refine", *CHECK, "--metric", "exact:golden"), "has no column 'golden'"),
        (("--strategy", "refine", *CHECK, "-o", "nowhere/x"), "cannot be written to"),
        (("--strategy", "refine", *CHECK, "--signature", "question -> answer"), "no column 'question'"),
        ((*CHECK,), "Missing option '--strategy'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_spent(redraft, lm, data, args, said):
    found = redraft("eval", data(2), *args, lm=lm)
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.split())
    assert lm.requests == []


def test_a_critic_with_a_comma_in_its_persona(redraft, lm, data):
    said = redraft("eval", data(2), "--strategy", "self-refine:rounds=1,critic=strict, but fair,critic=kind", *CHECK,
                   "--thinking", "none", lm=lm)  # fmt: skip
    assert said.exit_code == 0, said.stderr


# calibrate


def test_a_calibration_is_written_and_auto_takes_it(redraft, lm, data, tmp_path):
    said = redraft("calibrate", data(80), *CHECK, "--no-critic", "--concurrency", "1", lm=lm)
    assert said.exit_code == 0, said.stderr
    assert "recommended: strategy refine, revise constrain" in said.stdout
    (entry,) = tomllib.loads((tmp_path / "redraft.toml").read_text())["calibrated"].values()
    assert (entry["strategy"], entry["evidence"]["examples"]) == ("refine", 80)
    assert entry["evidence"]["tests"]
    run = redraft("run", "Write 0", *CHECK, lm=lm)
    assert run.exit_code == 0
    assert "not written" in redraft("calibrate", data(5), *CHECK, "--no-critic", lm=lm).stderr
    assert "constrain" in (tmp_path / "redraft.toml").read_text()


def test_auto_takes_only_what_was_measured_for_this_task(redraft, data, tmp_path):
    entry = 'strategy = "best-of-n"\nattempts = 2\n[calibrated."half | task -> answer | words".evidence]\ndate = "2026-01-02"\n'
    (tmp_path / "redraft.toml").write_text(f'[calibrated."half | task -> answer | words"]\n{entry}')
    bad = [FunctionLM(lambda request: BAD, name="half") for _ in range(4)]
    redraft("run", "Write", *CHECK, lm=bad[0])
    assert len(bad[0].requests) == 2
    redraft("run", "Write", *CHECK, "--strategy", "refine", lm=bad[1])
    assert len(bad[1].requests) == 3
    redraft("run", "Write", "--check", "contains:sun", lm=bad[2])
    assert len(bad[2].requests) == 3
    redraft("run", "Write", *CHECK, "-n", "4", lm=bad[3])
    assert len(bad[3].requests) == 4


@pytest.mark.parametrize(
    ("entry", "calls"),
    [('strategy = "predict"\nattempts = 1', 1), ('strategy = "auto"', 3), ('strategy = "critique"', 2)],
)
def test_what_an_entry_says(redraft, tmp_path, entry, calls):
    (tmp_path / "redraft.toml").write_text(f'[calibrated."half | task -> answer | words"]\n{entry}\n')
    lm = FunctionLM(lambda request: '{"verdict": "ok", "issues": []}' if request.schema else BAD, name="half")
    said = redraft("run", "Write", *CHECK, lm=lm)
    assert said.exit_code == 4
    assert len(lm.requests) == calls


@pytest.mark.parametrize(
    ("entry", "said"), [('strategy = "x"', "it is one of"), ('strategy = "refine"\nattempts = 0', "1 or more")]
)
def test_a_wrong_entry_is_refused(redraft, lm, tmp_path, entry, said):
    (tmp_path / "redraft.toml").write_text(f'[calibrated."half | task -> answer | words"]\n{entry}\n')
    found = redraft("run", "Write", *CHECK, lm=lm)
    assert (found.exit_code, len(lm.requests)) == (2, 0)
    assert said in found.stderr


def test_no_write_and_too_little_data(redraft, lm, data, tmp_path):
    said = redraft("calibrate", data(3), *CHECK, "--no-write", "--json", lm=lm)
    assert said.exit_code == 0
    assert json.loads(said.stdout)["verdict"] == "too little data"
    assert not (tmp_path / "redraft.toml").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [((), "no bar"), ((*CHECK, "--no-critic", "--critic", "a poet"), "no use"), (("--reward", "x.py:f"), "no file")],
)
def test_a_calibration_without_sense_is_refused(redraft, lm, data, args, said):
    found = redraft("calibrate", data(2), *args, lm=lm)
    assert found.exit_code == 2
    assert said in found.stderr
    assert lm.requests == []


def test_a_limit_ends_it_and_nothing_is_written(redraft, lm, data, tmp_path):
    said = redraft("calibrate", data(20), *CHECK, "--call-limit", "9", lm=lm)
    assert said.exit_code == 3
    assert not (tmp_path / "redraft.toml").exists()
