"""What a results file says about itself: when, by what and on what it was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


def meta(model: Mapping[str, Any], settings: Mapping[str, Any], packages: Sequence[str]) -> dict[str, Any]:
    """The line that heads a run's results. Names no host."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "commit": subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "model": dict(model),
        "machine": {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "system": platform.system()},
        "settings": dict(settings),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
