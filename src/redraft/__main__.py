"""`python -m redraft` is the command `redraft`."""

from redraft.cli import main

if __name__ == "__main__":
    main(prog_name="redraft")
