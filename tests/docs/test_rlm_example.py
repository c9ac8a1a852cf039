"""The RLM example runs offline and is exact."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "rlm_logs.py"


def test_the_log_is_read_exactly(capsys):
    found = runpy.run_path(str(EXAMPLE))["main"]()
    assert {name: found["result"][name] for name in found["exact"]} == found["exact"]
    assert found["result"].usage.calls == 4
    said = capsys.readouterr()
    assert said.out.count("(exact)") == 3
    assert "the tool was asked 21 times" in said.out
    assert "True False" in said.err, "the steps are shown"
