"""The messages of calls, each kept once however many calls send it: a system prompt, the turns of a conversation.

An intent's `content` (`record.content`) is a JSON text with a list of messages in it. It is cut at the messages and
joined again by their text alone, to the character, whatever it says. A row's `parts` are the text before the list, the
numbers of the messages, and the text behind it, as a JSON array.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import blake2b

from redraft.jsonable import encoder
from redraft.store.advice import DamagedError
from redraft.store.rows import Row, whole

_FIRST, _NEXT, _LAST = '"messages":[{"content":', '},{"content":', '}],"model":'
_HEAD = len('"messages":[')
_NUMBER = "SELECT message FROM messages WHERE hash = ?"
_KEEP = "INSERT OR IGNORE INTO messages (hash, json) VALUES (?, ?)"
_OF_RUN = """SELECT message, json FROM messages WHERE message IN (
    SELECT part.value FROM events, json_each(parts) AS part WHERE run = ? AND parts IS NOT NULL AND type = 'integer')"""
_MOST, _MOST_CHARACTERS = 4096, 1 << 22

_encode = encoder(ensure_ascii=False)


class Messages:
    """Which messages a database has, as far as one connection remembers. It has to be told when some may be gone."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._characters = 0

    def forget(self) -> None:
        """Look all of them up again: a transaction was rolled back, or another process took some away."""
        self._numbers.clear()
        self._characters = 0

    def stored(self, db: sqlite3.Connection, row: Row) -> Row:
        """A row with its `parts` for its content, in whose transaction the messages are kept."""
        seq, at, kind, scope, key, data, content = row
        assert content is not None
        begin = content.find(_FIRST)
        end = content.find(_LAST, begin + len(_FIRST)) if begin >= 0 else -1
        if end < 0:
            return seq, at, kind, scope, key, whole(row), None
        known = self._numbers
        numbers = [
            known.get(text) or self._number(db, text) for text in content[begin + len(_FIRST) : end].split(_NEXT)
        ]
        return seq, at, kind, scope, key, data, _encode((content[: begin + _HEAD], *numbers, content[end + 1 :]))

    def _number(self, db: sqlite3.Connection, text: str) -> int:
        message = f'{{"content":{text}}}'
        code = blake2b(message.encode(), digest_size=16).digest()
        kept = db.execute(_KEEP, (code, message))
        number = int(kept.lastrowid or 0) if kept.rowcount else int(db.execute(_NUMBER, (code,)).fetchone()[0])
        if len(self._numbers) >= _MOST or self._characters > _MOST_CHARACTERS:
            self.forget()
        self._numbers[text] = number
        self._characters += len(text)
        return number


def of_run(db: sqlite3.Connection, run: int) -> dict[int, str]:
    """The messages of a run's calls by number."""
    return dict(db.execute(_OF_RUN, (run,)))


def joined(row: Row, messages: dict[int, str]) -> Row:
    """A row with its content for its `parts`, if it has some. Raises `DamagedError` if a message is not there."""
    *same, parts = row
    if parts is None:
        return row
    head, *numbers, tail = json.loads(parts)
    try:
        content = f"{head}{','.join([messages[number] for number in numbers])}{tail}"
    except KeyError as missing:
        raise DamagedError(f"message {missing} of event {row[0]} is not in the table `messages`") from missing
    return (*same, content)  # type: ignore[return-value]  # the types of a tuple's slice
