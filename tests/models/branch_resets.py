"""Resets, in the model of the branch protocol (see `branch_model`): rules 6, 9 and 10."""

from __future__ import annotations

from collections.abc import Iterator

from tests.models.branch_commits import compare_and_set, scan, scans, seal, settle_seal
from tests.models.branch_state import Lake, Local, Record, Rules, Step

__all__ = ["reset", "reset_part"]


def reset(lake: Lake, me: Local, rules: Rules) -> Iterator[Step]:
    """Removes all uncommitted changes."""
    if me.pc == "begin":
        yield "begins, reads the record", lake, me._replace(pc="set", record=lake.record), None
        return
    if lake.record != me.record and rules.has("reset compares"):
        yield "met another record", lake, me._replace(record=lake.record), None
        return
    with_token, token = lake.with_token()
    base = None if rules.has("reset clears base") else lake.record.base
    after = Record(token, (), me.record.commit, base, lake.record.moves + 1, lake.record.ops)
    excused = lake.excused | {write for write, _ in lake.began}
    done = with_token.with_record(after)._replace(excused=excused)
    done = done._replace(announced=lake.announced | set(lake.record.tokens))
    broken = None
    if done.visible() != done.commits[after.commit][0]:
        broken = f"reset: the branch shows {done.visible()} afterwards, not its commit"
    elif after.commit != lake.record.commit:
        broken = "reset: the branch moved back behind a finished commit"
    yield "resets", done, me.ends(), broken


def reset_part(lake: Lake, me: Local, rules: Rules) -> Iterator[Step]:
    """Discards what is uncommitted under a prefix that holds the key, or (`part other`) one that does not.

    Seals first, so that it knows exactly which rows it discards; folds all other sealed rows into a compacted
    metarange; replaces the staging token in the last step (rule 9).
    """
    if me.pc == "begin":
        begun = me._replace(pc="seal", record=lake.record)
        yield "begins, reads the record", lake, begun, None
    elif me.pc == "seal":
        yield from _knows(lake, seal(lake, me, rules))
    elif me.pc == "settle seal":
        yield from _knows(lake, settle_seal(lake, me))
    elif me.pc == "scan" and me.kind == "part":
        yield "skips the rows under the prefix", lake, me._replace(pc="finish"), None
    elif me.pc == "scan":
        yield scan(lake, me, me.record.sealed)
    elif me.pc == "settle finish":
        yield _settle(lake, me, rules)
    else:
        yield from _finish(lake, me, rules)


def _knows(lake: Lake, steps: Iterator[Step]) -> Iterator[Step]:
    """When the seal is confirmed, remembers the writes that have begun: the only ones that it may discard.

    If it computes again, another operation may have folded later ones.
    """
    begun = frozenset(write for write, _ in lake.began)
    for label, after, then, broken in steps:
        is_sealed = then.pc in {"scan", "finish"}
        yield label, after, then._replace(acked=begun) if is_sealed else then, broken


def _finish(lake: Lake, me: Local, rules: Rules) -> Iterator[Step]:
    expected = me.fresh or me.record
    if not rules.has("part compares"):
        expected = lake.record
    newer = tuple(token for token in expected.sealed if token not in me.record.sealed)
    head = lake.commits[me.record.commit][0]
    base = _remains(lake, me, rules, head)
    ready, staging = lake, expected.staging
    if rules.has("part seals"):
        ready, staging = ready.with_token()
        newer = (expected.staging, *newer) if rules.has("part keeps rows") else newer
    left = None if base == head else base
    after = Record(staging, newer, expected.commit, left, expected.moves + 1, expected.ops)
    for outcome, then in compare_and_set(ready, me, expected, after, "finish"):
        if outcome == "lost":
            yield _lost(lake, me, rules)
            continue
        excused = lake.excused | me.acked if me.kind == "part" else lake.excused
        done = then._replace(excused=excused)
        broken = None
        if me.kind == "part" and base != head:
            broken = f"reset: {base} lies beneath the tokens afterwards, not the commit's {head}"
        if outcome == "won":
            yield f"resets a part, {base} remains", done, me.ends(), broken
        else:
            # `made` marks that an attempt was sent.
            waits = me._replace(pc="settle finish", made=0)
            yield f"resets a part, {base} remains; no answer", done, waits, broken


def _remains(lake: Lake, me: Local, rules: Rules, head: int) -> int:
    """Returns the key's value in the listing that is built."""
    beneath = lake.committed(me.record)
    if me.kind == "part":
        return head if rules.has("part restores the commit") else beneath
    if me.value is None or not rules.has("part keeps the rest"):
        return beneath
    return me.value


def _settle(lake: Lake, me: Local, rules: Rules) -> Step:
    if (me.number, "finish") in lake.record.ops:
        return "settles: reset", lake, me.ends(), None
    if lake.record == (me.fresh or me.record):
        return "settles: not there yet", lake, me._replace(pc="finish"), None
    return _lost(lake, me, rules)


def _lost(lake: Lake, me: Local, rules: Rules) -> Step:
    """Keeps the result over newer seals; over another base, computes it again from those tokens that are left."""
    now = lake.record
    if (me.number, "finish") in now.ops:
        return "an earlier attempt was applied", lake, me.ends(), None
    ours = tuple(token for token in me.record.sealed if token in now.sealed)
    same_base = (now.commit, now.base) == (me.record.commit, me.record.base)
    if same_base and ours == me.record.sealed:
        return "only newer seals came", lake, me._replace(fresh=now), None
    if not rules.has("part computes again"):
        kept = me.record._replace(sealed=ours)
        return "another base: keeps its result", lake, me._replace(fresh=now, record=kept), None
    if not ours and now.base is None:
        return "nothing of what it met is left", lake, me.ends(), None
    if me.tries == rules.tries:
        return "the branch changes: gives up", lake, me.ends(), None
    begun = frozenset(write for write, _ in lake.began)
    again = scans(me, now._replace(sealed=ours))._replace(acked=begun, tries=me.tries + 1)
    return "another base: again", lake, again._replace(fresh=now), None
