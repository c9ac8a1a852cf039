"""What the examples share: generated data, the oracle, and the comparison with the exact answers."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import generate
import models
import tasks
from oracle import Oracle

from redraft.sandbox import interpreter

began = [time.perf_counter()]


def begin(name: str, *, careless: int = 0) -> tuple[Path, dict[str, Any], tuple[Any, Any]]:
    """A generated file, its exact answers, and root and sub-model. The first `careless` submissions leave a list empty."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=generate.size_of, default=generate.size_of("100MB"))
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "redraft-rlm")
    given = parser.parse_args()
    path, gold = generate.make(name, given.size, 1, given.data)
    print(f"{path.stat().st_size:,} bytes of {name}\n")
    began[0] = time.perf_counter()
    oracle = Oracle(tasks.TASKS[name], gold)
    oracle.careless = careless
    return path, gold, models.pair(oracle)


def sandbox() -> Any:
    """The default one, with longer cells: a pass over 100 MB in pure Python takes seconds."""
    return interpreter("auto", seconds=300)


def query(name: str, gold: dict[str, Any]) -> str:
    return tasks.TASKS[name].query(gold)


def compare(result: Any, gold: dict[str, Any]) -> None:
    """Say whether every answer is exact; a failure is an exit code."""
    wrong = [name for name in gold if result[name] != gold[name]]
    seconds = time.perf_counter() - began[0]
    print(f"\n{'all answers exact' if not wrong else 'WRONG: ' + ', '.join(wrong)}; {seconds:.1f} s")
    sys.exit(bool(wrong))
