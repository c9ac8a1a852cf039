"""The command line: `redraft run`, `redraft models`. Heavy parts are imported inside the commands that use them."""

from redraft.cli.app import entry, main

__all__ = ["entry", "main"]
