"""A run that was killed goes on where it was: no reply that was paid for is bought again.

    python examples/06_resume_after_a_kill.py

The same program is started three times. The first process kills itself after its first review; the second does the rest;
the third has nothing left to buy. A function stands in for the model: it answers at once, the same each time. (POSIX.)
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from redraft import Predict, Refine, Run, SqliteStore, checks
from redraft.testing import FunctionLM
from redraft.types import Event

PLACES = ["La Maison", "Sakura", "El Olivo"]


def write_reviews(store: str, *, cut: bool) -> None:
    """What each process does."""

    def watch(event: Event) -> None:
        if event.kind == "intent":  # a call is about to be sent; a recorded one has none
            print("    the model is asked", flush=True)
        if event.kind == "stop" and cut:
            os.kill(os.getpid(), signal.SIGKILL)  # nothing is tidied up

    lm = FunctionLM(lambda request: f"Go there. {'Soup!' if request.seed else ''} It is good.")
    write = Refine(Predict("place -> review", lm=lm), N=2, checks=[checks.sentences(3)])
    with SqliteStore(store) as kept, Run(run_id="reviews", store=kept, listeners=[watch]) as run:
        for place in PLACES:
            print(f"  {place}", flush=True)
            write(place=place)
    print(f"  {run.usage.calls} calls in all")


def main() -> list[int]:
    """Start it three times; the exit codes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, str(Path(folder, "runs.db"))]
        codes = []
        for more in (["--cut"], [], []):
            print("a process starts", flush=True)
            codes.append(subprocess.run([*command, *more], check=False).returncode)  # noqa: S603 - this very file
            print(f"  exit code {codes[-1]}", flush=True)
    return codes


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_reviews(sys.argv[1], cut="--cut" in sys.argv)
    else:
        main()
