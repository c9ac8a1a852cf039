"""`redraft run --cache FILE`."""

import json

from redraft.testing import ScriptedLM


def test_a_second_run_costs_nothing(redraft, tmp_path):
    lm = ScriptedLM(["A fine text.", "Another text."])
    costs = []
    for _ in range(2):
        done = redraft(
            "run", "Write", "--strategy", "predict", "--check", "words:1-9", "--cache", "c.db", "--json", lm=lm
        )
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        costs.append(told["usage"].get("calls", 0))
        assert "A fine text." in done.stdout
    assert costs == [1, 0]
    assert (tmp_path / "c.db").is_file()
