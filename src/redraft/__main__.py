"""`python -m redraft` is the command `redraft`."""

from redraft.cli import entry

if __name__ == "__main__":
    entry()
