"""What the tests of the pages did, in a closing list."""

from collections import Counter

import pytest

DONE = pytest.StashKey[set[str]]()


def pytest_configure(config):
    config.stash[DONE] = set()


@pytest.fixture(scope="session")
def blocks_done(pytestconfig):
    """Where the blocks that ran are noted."""
    return pytestconfig.stash.setdefault(DONE, set())


def pytest_terminal_summary(terminalreporter, config):
    done = config.stash.get(DONE, set())
    if not done:
        return
    import doc_blocks
    import test_code_blocks

    blocks = test_code_blocks.BLOCKS
    kinds = {str(b): kind_of(b, doc_blocks) for b in blocks}
    kinds |= dict.fromkeys(done, "run")
    counts = Counter(kinds.values())
    terminalreporter.section("code blocks of README.md and docs/")
    terminalreporter.line(f"{len(blocks)} blocks: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    for block in blocks:
        if kinds[str(block)] == "skipped":
            terminalreporter.line(f"  skipped  {block}: {block.detail}")


def kind_of(block, doc_blocks):
    """What becomes of a block that did not run here."""
    if block.how == "skip":
        return "skipped"
    if block.how in {"local", "doors"}:
        return f"for make test-{block.how}"
    if block.language in doc_blocks.PARSED:
        return "parsed"
    return "shown" if block.language in doc_blocks.SHOWN else "commands parsed"
