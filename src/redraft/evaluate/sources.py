"""Examples from where data lies: a file of rows (.jsonl, .csv, .tsv, .parquet), a data set of Hugging Face's `datasets`,
or any rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from redraft.batch.files import read_rows
from redraft.errors import ConfigError, InputError
from redraft.evaluate.examples import Example

DATASETS = "hf:"


def examples_of(
    rows: Iterable[Any], inputs: Sequence[str], *, optional: Sequence[str] = (), source: str = "the data"
) -> list[Example]:
    """Rows (mappings, as a Hugging Face data set gives them) as examples. Of each row `inputs` are given to a strategy, and
    those of `optional` that it has; the rest are labels. Raises `InputError`, which names the row.
    """
    examples = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise InputError(f"{source}, row {number}: an example is an object with named values, got {row!r:.60}")
        if missing := [name for name in inputs if name not in row]:
            raise InputError(
                f"{source}, row {number} has no column {missing[0]!r}, only {', '.join(map(repr, row))}; rename it, or say "
                "which columns are read: --signature 'question -> answer'"
            )
        if empty := [name for name in inputs if row[name] is None]:
            raise InputError(f"{source}, row {number}: {empty[0]!r} is empty: give it a value, or leave the row out")
        names = (*inputs, *(name for name in optional if row.get(name) is not None))
        examples.append(Example(dict(row)).with_inputs(*names))
    if not examples:
        raise InputError(f"{source} holds no examples")
    return examples


def examples_from(
    source: str, inputs: Sequence[str], *, optional: Sequence[str] = (), limit: int | None = None
) -> list[Example]:
    """The first `limit` examples of a file, or of `hf:NAME[:SPLIT]`: a data set of the hub, or a folder that
    `save_to_disk` wrote (SPLIT: test where there is one, else the first). Raises `InputError` and `ConfigError`.
    """
    rows = _dataset(source.removeprefix(DATASETS)) if source.startswith(DATASETS) else read_rows(source)
    return examples_of(islice(rows, limit), inputs, optional=optional, source=source)


def _dataset(name: str) -> Iterable[Any]:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError("data sets of Hugging Face need the package datasets: pip install datasets") from error
    name, _, split = name.partition(":")
    try:
        found: Any = datasets.load_from_disk(name) if Path(name).is_dir() else datasets.load_dataset(name)
    except (OSError, ValueError, LookupError) as error:
        raise InputError(f"the data set {name} cannot be loaded: {error}") from error
    if not isinstance(found, Mapping):  # one split alone
        return found  # type: ignore[no-any-return]
    chosen = split or ("test" if "test" in found else next(iter(found)))
    if chosen not in found:
        raise InputError(f"the data set {name} has no split {chosen!r}, only {', '.join(found)}")
    return found[chosen]  # type: ignore[no-any-return]
