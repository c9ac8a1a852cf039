"""A user's own Python file, run for the names that it defines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redraft.errors import ConfigError


def names_of(path: Path) -> dict[str, Any]:
    """Run the file (not as the main program). Whatever it raises is a `ConfigError` that names the file and the line."""
    import runpy

    try:
        return runpy.run_path(str(path), run_name="redraft_checks")
    except (Exception, SystemExit) as error:
        line = error.__traceback__
        while line is not None and line.tb_next is not None:
            line = line.tb_next
        where = f", line {line.tb_lineno}" if line is not None and not isinstance(error, SyntaxError) else ""
        raise ConfigError(
            f"the check file {path} fails with {type(error).__name__}: {error}{where}; mend it"
        ) from error
