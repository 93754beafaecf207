"""Resets, in the model of the branch protocol (see `branch_model`): rules 6, 9 and 10."""

from __future__ import annotations

from collections.abc import Iterator

from tests.models.branch_commits import compare_and_set, scan, scans, seal, settle_seal
from tests.models.branch_state import Local, Record, Rules, Step, StoreState

__all__ = ["erase", "reset", "reset_part"]


def reset(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
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


def reset_part(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
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


def erase(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Discards one uncommitted entry: a reset whose part is that entry, if it is the newest one of the key."""
    erased = rules.erased_by(me.number)
    if rules.has("erase has no tombstone"):
        yield from reset_part(lake, me, rules)
    elif me.pc == "begin":
        yield "begins, reads the record", lake, me._replace(pc="scan", record=lake.record), None
    elif me.pc == "scan":
        row = lake.tokens[me.record.tokens[me.at]]
        value = lake.committed(me.record) if me.at + 1 == len(me.record.tokens) else None
        found = me._replace(at=me.at + 1, value=value if row is None else row)
        done = found._replace(pc="verify") if found.value is not None else found
        yield "reads one more layer", lake, done, None
    elif me.pc == "verify":
        is_right = me.value == erased and lake.record.same_layers(me.record)
        is_right &= lake.commits[me.record.commit][0] != erased
        then = me._replace(pc="write") if is_right else me.ends()
        yield "verifies the record", lake, then, None
    else:
        # A tombstone over the row that was read, or over none: this is what a conditional write does.
        there = lake.tokens[me.record.staging]
        if there not in (None, erased):
            yield "finds another row", lake, me.ends(), None
            return
        lost = lake.visible()
        excused = lake.excused | {erased}
        after = lake.with_row(me.record.staging, 0)._replace(excused=excused)
        is_hidden = after.visible() == 0 and lost != erased and not rules.is_absent(lost)
        broken = f"erased: a tombstone hides {lost}, which it has not seen" if is_hidden else None
        yield "writes a tombstone", after, me.ends(), broken


def _knows(lake: StoreState, steps: Iterator[Step]) -> Iterator[Step]:
    """When the seal is confirmed, remembers the writes that have begun: the only ones that it may discard.

    If it computes again, another operation may have folded later ones.
    """
    begun = frozenset(write for write, _ in lake.began)
    for label, after, then, broken in steps:
        is_sealed = then.pc in {"scan", "finish"}
        yield label, after, then._replace(acked=begun) if is_sealed else then, broken


def _finish(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
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
        excused = lake.excused | _discarded(lake, me, rules)
        done = then._replace(excused=excused)
        broken = None
        if me.kind.endswith("erase") and _newest(lake, me) == head != base:
            broken = "erased: an entry that the commit has is gone from the branch"
        if me.kind == "part" and base != head:
            broken = f"reset: {base} lies beneath the tokens afterwards, not the commit's {head}"
        if outcome == "won":
            yield f"resets a part, {base} remains", done, me.ends(), broken
        else:
            # `made` marks that an attempt was sent.
            waits = me._replace(pc="settle finish", made=0)
            yield f"resets a part, {base} remains; no answer", done, waits, broken


def _remains(lake: StoreState, me: Local, rules: Rules, head: int) -> int:
    """Returns the key's value in the listing that is built."""
    beneath = lake.committed(me.record)
    if me.kind.endswith("erase"):
        newest, erased = _newest(lake, me), rules.erased_by(me.number)
        if rules.has("erase judges") and newest != erased:
            return newest
        is_committed = head == erased and not rules.has("erase excepts the commit")
        return 0 if is_committed else head
    if me.kind == "part":
        return head if rules.has("part restores the commit") else beneath
    if me.value is None or not rules.has("part keeps the rest"):
        return beneath
    return me.value


def _newest(lake: StoreState, me: Local) -> int:
    """Returns the newest value of the sealed tokens and beneath."""
    return lake.committed(me.record) if me.value is None else me.value


def _discarded(lake: StoreState, me: Local, rules: Rules) -> frozenset[int]:
    """Returns the writes that a step may have discarded, if it is made."""
    if me.kind == "part":
        return me.acked
    if not me.kind.endswith("erase"):
        return frozenset()
    erased = rules.erased_by(me.number)
    if _newest(lake, me) != erased:
        return frozenset()
    # The entry goes, and does not bring back what it had overwritten; what began after its answer must stay.
    return frozenset(write for write, before in lake.began if erased not in before) & me.acked


def _settle(lake: StoreState, me: Local, rules: Rules) -> Step:
    if (me.number, "finish") in lake.record.ops:
        return "settles: reset", lake, me.ends(), None
    if lake.record == (me.fresh or me.record):
        return "settles: not there yet", lake, me._replace(pc="finish"), None
    return _lost(lake, me, rules)


def _lost(lake: StoreState, me: Local, rules: Rules) -> Step:
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
