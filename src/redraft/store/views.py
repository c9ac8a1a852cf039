"""What the run store shows to people: `sqlite3 runs.db 'SELECT * FROM runs'`. Views over the events: they cost writers
nothing, and are as new as the last event.

`runs`, a row a run, in the order in which they began:
    run_id, begun, ended (UTC; NULL: it never did, or is at work), stop (the stop reason, or "done"),
    error, strategy, task (what was asked for, in short), models, seed, drafts, score (of the best draft), calls, tokens, most_tokens (where calls did not
    report theirs, the truth lies between the two), cost, most_cost (dollars; NULL: a model's price is unknown), budget
    and spec (JSON: its limits, and what a resume needs), version (of the events), run (its number in `events`).

`attempts`, a row an attempt:
    run_id, scope (where in the run), draft (its number, from 1), revises (another draft's number), rung and why (of the
    ladder), text, score, passed (1 if all its checks did), feedback, decision (accepted or rejected), reason, critique
    (JSON), error, tokens, cost.

`calls`, a row a call:
    run_id, seq, scope, at (UTC), role, model, status (ok; failed: worth another try; refused: for good; unfinished: in
    flight, or cut off by a kill; cached; metered: bought by other code), seconds, messages (JSON), reply, input_tokens,
    output_tokens, cost (dollars; NULL: unknown), error.

Underneath: `events` (the journal itself), `messages` (each message of a call once; `events.parts` names them), `run_ids`,
`state`.
"""

# ruff: noqa: S608 - every part of these statements is a constant of this package
from __future__ import annotations

ENDS = "('call', 'call_error', 'call_failed')"
_PAID = "('call', 'call_error', 'call_failed', 'soft')"

_CONTENT = """CASE WHEN {e}.parts IS NULL THEN json_extract({e}.data, '$.content') ELSE (
        SELECT group_concat(piece, '') FROM (
            SELECT CASE part.type WHEN 'integer' THEN CASE WHEN part.key > 1 THEN ',' ELSE '' END || m.json ELSE part.value END AS piece
            FROM json_each({e}.parts) AS part LEFT JOIN messages AS m
                ON part.type = 'integer' AND m.message = part.value
            ORDER BY part.key)) END"""


def _when(seconds: str) -> str:
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {seconds}, 'unixepoch')"


def _the(kind: str, which: str, what: str = "data", order: str = "DESC") -> str:
    """Of one run's events of a kind, the last (or first) one's column."""
    return f"(SELECT {what} FROM events WHERE run = r.run AND kind = '{kind}' {which} ORDER BY seq {order} LIMIT 1)"


def _sum(what: str) -> str:
    parts = " + ".join(f"ifnull(json_extract(data, '$.usage.{part}'), 0)" for part in what.split())
    return f"(SELECT ifnull(sum({parts}), 0) FROM events WHERE run = r.run AND kind IN {_PAID})"


def _lost(what: str) -> str:
    """Reserved by calls of which no end is on record."""
    return f"""(SELECT ifnull(sum(json_extract(data, '$.reserved.{what}')), 0) FROM events AS i
        WHERE run = r.run AND kind = 'intent' AND NOT EXISTS (SELECT 1 FROM events WHERE run = i.run AND seq > i.seq
            AND kind IN {ENDS} AND json_extract(data, '$.intent') = i.seq))"""


_RUN = _the("run", "")
_STOP = _the("stop", "AND scope = ''")
_FIRST_ASKED = f"""(SELECT CASE WHEN json_valid(content) THEN json_extract(content, '$.messages[#-1].content') END FROM (
        SELECT {_CONTENT.format(e="i")} AS content FROM events AS i
        WHERE i.run = r.run AND (i.kind = 'intent' OR (i.kind = 'call' AND i.parts IS NOT NULL))
        ORDER BY i.seq LIMIT 1))"""
_PRICED = f"CASE WHEN {_sum('unpriced')} + {_lost('unpriced')} = 0 THEN {{sum}} END"

_RUNS = f"""CREATE VIEW runs AS SELECT
    r.run_id,
    {_when("(SELECT time FROM events WHERE run = r.run ORDER BY seq LIMIT 1)")} AS begun,
    {_when(_the("stop", "AND scope = ''", "time"))} AS ended,
    json_extract({_STOP}, '$.reason') AS stop,
    json_extract({_STOP}, '$.error') AS error,
    coalesce(json_extract({_RUN}, '$.spec.strategy'), (SELECT 'batch' FROM events
        WHERE run = r.run AND kind = 'batch' LIMIT 1)) AS strategy,
    substr(coalesce(json_extract({_RUN}, '$.spec.task'), json_extract({_RUN}, '$.spec.inputs.task'),
        json_extract({_RUN}, '$.spec.inputs'), {_FIRST_ASKED}), 1, 400) AS task,
    (SELECT group_concat(DISTINCT json_extract(data, '$.model')) FROM events
        WHERE run = r.run AND kind = 'call') AS models,
    json_extract({_RUN}, '$.seed') AS seed,
    (SELECT count(DISTINCT scope) FROM events WHERE run = r.run AND kind = 'propose'
        AND scope LIKE '/attempt[%' AND instr(substr(scope, 2), '/') = 0) AS drafts,
    (SELECT json_extract(a.data, '$.score.value') FROM events AS best JOIN events AS a
        ON a.run = best.run AND a.kind = 'attempt' AND a.scope = best.scope
        WHERE best.run = r.run AND best.kind = 'accept'
            AND best.scope LIKE '/attempt[%' AND instr(substr(best.scope, 2), '/') = 0
        ORDER BY best.seq DESC, a.seq DESC LIMIT 1) AS score,
    (SELECT count(*) FROM events WHERE run = r.run AND kind = 'intent')
        + (SELECT ifnull(sum(json_extract(data, '$.usage.calls')), 0) FROM events
            WHERE run = r.run AND kind = 'soft') AS calls,
    {_sum("input_tokens output_tokens")} AS tokens,
    {_sum("input_tokens output_tokens uncertain_tokens")} + {_lost("uncertain_tokens")} AS most_tokens,
    {_PRICED.format(sum=_sum("cost"))} AS cost,
    {_PRICED.format(sum=f"{_sum('cost uncertain_cost')} + {_lost('uncertain_cost')}")} AS most_cost,
    json_extract({_RUN}, '$.budget') AS budget,
    json_extract({_RUN}, '$.spec') AS spec,
    json_extract({_RUN}, '$.version') AS version,
    r.run
FROM run_ids AS r WHERE EXISTS (SELECT 1 FROM events WHERE run = r.run)"""


def _last(kinds: str) -> str:
    return f"(SELECT max(seq) FROM events WHERE run = p.run AND kind IN ({kinds}) AND scope = p.scope)"


_ATTEMPTS = f"""CREATE VIEW attempts AS SELECT
    r.run_id,
    p.scope,
    json_extract(p.data, '$.index') + 1 AS draft,
    json_extract(p.data, '$.parent') + 1 AS revises,
    json_extract(p.data, '$.rung') AS rung,
    json_extract(p.data, '$.why') AS why,
    json_extract(a.data, '$.text') AS text,
    json_extract(a.data, '$.score.value') AS score,
    CASE WHEN json_type(a.data, '$.score') = 'object' THEN NOT EXISTS (
        SELECT 1 FROM json_each(a.data, '$.score.verdicts') AS v WHERE NOT json_extract(v.value, '$.passed')) END AS passed,
    json_extract(a.data, '$.score.feedback') AS feedback,
    d.kind || 'ed' AS decision,
    json_extract(d.data, '$.reason') AS reason,
    c.data AS critique,
    json_extract(a.data, '$.error') AS error,
    ifnull(json_extract(a.data, '$.usage.input_tokens'), 0)
        + ifnull(json_extract(a.data, '$.usage.output_tokens'), 0) AS tokens,
    CASE WHEN json_extract(a.data, '$.usage.unpriced') IS NULL
        THEN ifnull(json_extract(a.data, '$.usage.cost'), 0.0) END AS cost
FROM events AS p JOIN run_ids AS r ON r.run = p.run
LEFT JOIN events AS a ON a.run = p.run AND a.seq = {_last("'attempt'")}
LEFT JOIN events AS d ON d.run = p.run AND d.seq = {_last("'accept', 'reject'")}
LEFT JOIN events AS c ON c.run = p.run AND c.seq = {_last("'critique'")}
WHERE p.kind = 'propose' AND p.seq = {_last("'propose'")}"""


def _calls(event: str, end: str, status: str, **other: str) -> str:
    columns = {
        "run_id": "r.run_id",
        "seq": f"{event}.seq",
        "scope": f"{event}.scope",
        "at": _when(f"{event}.time"),
        "role": f"json_extract({event}.data, '$.role')",
        "model": f"json_extract({end}.data, '$.model')",
        "status": status,
        "seconds": f"json_extract({end}.data, '$.seconds')",
        "messages": "NULL",
        "reply": f"json_extract({end}.data, '$.completion.choices[0].text')",
        "input_tokens": f"json_extract({end}.data, '$.usage.input_tokens')",
        "output_tokens": f"json_extract({end}.data, '$.usage.output_tokens')",
        "cost": f"CASE WHEN {end}.data IS NOT NULL AND json_extract({end}.data, '$.usage.unpriced') IS NULL "
        f"THEN ifnull(json_extract({end}.data, '$.usage.cost'), 0.0) END",
        "error": f"json_extract({end}.data, '$.error')",
        **other,
    }
    return f"SELECT {', '.join(f'{what} AS {name}' for name, what in columns.items())}"


_ASKED = f"({_CONTENT.format(e='i')})"
_MESSAGES = "CASE WHEN json_valid({asked}) THEN json_extract({asked}, '$.messages') END"
_BOUGHT = _calls(
    "i",
    "e",
    "CASE e.kind WHEN 'call' THEN 'ok' WHEN 'call_error' THEN 'refused' WHEN 'call_failed' THEN 'failed' "
    "ELSE 'unfinished' END",
    model=f"CASE WHEN json_valid({_ASKED}) THEN json_extract({_ASKED}, '$.model') END",
    messages=_MESSAGES.format(asked=_ASKED),
)
_CALLS = f"""CREATE VIEW calls AS
    {_BOUGHT} FROM events AS i JOIN run_ids AS r ON r.run = i.run
        LEFT JOIN events AS e ON e.run = i.run AND e.seq = (SELECT min(seq) FROM events WHERE run = i.run
            AND seq > i.seq AND kind IN {ENDS} AND json_extract(data, '$.intent') = i.seq)
        WHERE i.kind = 'intent'
    UNION ALL
    {_calls("c", "c", "'cached'", messages=_MESSAGES.format(asked=f"({_CONTENT.format(e='c')})"))} FROM events AS c JOIN run_ids AS r ON r.run = c.run
        WHERE c.kind = 'call' AND json_extract(c.data, '$.intent') IS NULL
    UNION ALL
    {_calls("c", "c", "'metered'", role="json_extract(c.data, '$.by')")} FROM events AS c
        JOIN run_ids AS r ON r.run = c.run WHERE c.kind = 'soft'"""

VIEWS = (_RUNS, _ATTEMPTS, _CALLS)
