"""Operations that change the record, in the model of the branch protocol (see `branch_model`): rules 4 to 9."""

from __future__ import annotations

from collections.abc import Iterator

from tests.models.branch_state import Late, Local, Record, Rules, Step, StoreState

__all__ = [
    "commit",
    "commit_lazily",
    "compact",
    "compare_and_set",
    "merge",
    "merge_early",
    "scan",
    "scans",
    "seal",
    "settle_seal",
]


def compare_and_set(
    lake: StoreState, me: Local, before: Record, after: Record, stage: str
) -> Iterator[tuple[str, StoreState]]:
    """Yields the outcomes of one compare-and-set of the record: "won", "lost", or "unknown".

    An unknown one was applied, or waits at a coordinator and may be applied later (rule 8).
    """
    if lake.record != before:
        yield "lost", lake
        return
    loses = lake.losable > 0
    if loses or lake.late or before.ops:  # operation ids matter only if answers can be lost
        after = after._replace(ops=(*before.ops, (me.number, stage)))
    removed = frozenset(before.tokens) - frozenset(after.tokens)
    announced = lake._replace(announced=lake.announced | removed)
    yield "won", announced.with_record(after)
    if loses:
        unanswered = announced._replace(losable=lake.losable - 1)
        yield "unknown", unanswered.with_record(after)
        yield "unknown", unanswered._replace(late=(*lake.late, Late(before, after)))


def _starts(lake: StoreState, me: Local) -> Step:
    begun = me._replace(pc="seal", record=lake.record, acked=lake.acked)
    return "begins, reads the record", lake, begun, None


def seal(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Seals: after the record names another staging token, no further write to the old one is acknowledged."""
    if (me.number, "seal") in lake.record.ops:
        yield "finds its seal", lake, scans(me, lake.record), None
        return
    before = me.record
    ready, token = lake.with_token()
    base = before.base if rules.has("seal keeps base") else None
    after = before._replace(staging=token, sealed=before.tokens, base=base)
    for outcome, then in compare_and_set(ready, me, before, after, "seal"):
        if outcome == "won":
            yield f"seals T{before.staging}", then, scans(me, then.record), None
        elif outcome == "unknown":
            waits = me._replace(pc="settle seal")
            yield f"seals T{before.staging}, no answer", then, waits, None
        else:
            yield "met another record", lake, me._replace(record=lake.record), None


def settle_seal(lake: StoreState, me: Local) -> Iterator[Step]:
    if (me.number, "seal") in lake.record.ops:
        yield "settles: sealed", lake, scans(me, lake.record), None
    else:
        # The attempt was not applied, or not yet: the next one expects the same record, so at most one is applied.
        yield "settles: not there", lake, me._replace(pc="seal"), None


def scans(me: Local, record: Record) -> Local:
    """Prepares the scan of the sealed tokens of a confirmed record."""
    pc = "scan" if record.sealed else "finish"
    return me._replace(pc=pc, record=record, fresh=None, at=0, value=None)


def scan(lake: StoreState, me: Local, tokens: tuple[int, ...]) -> Step:
    """Reads one more token; the newest row counts."""
    row = lake.tokens[tokens[me.at]]
    found = me._replace(at=me.at + 1, value=row if me.value is None else me.value)
    if found.at == len(tokens):
        found = found._replace(pc="finish", at=0)
    return f"scans T{tokens[me.at]}: {row}", lake, found, None


def _built(lake: StoreState, me: Local, rules: Rules) -> int:
    """Returns the key's value in the metarange that is built."""
    if me.value is not None:
        return me.value
    if me.kind.endswith("compact") or rules.has("commit builds on base"):
        return lake.committed(me.record)
    return lake.commits[me.record.commit][0]


# ---- rules 4, 5 and 8


def commit(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Seals, scans, publishes."""
    if me.pc == "begin":
        yield _starts(lake, me)
    elif me.pc == "seal" and not rules.has("seals"):
        scans = me._replace(pc="scan", record=lake.record)
        yield "does not seal", lake, scans, None
    elif me.pc == "seal":
        yield from _knows(seal(lake, me, rules))
    elif me.pc == "settle seal":
        yield from _knows(settle_seal(lake, me))
    elif me.pc == "scan":
        tokens = me.record.sealed if rules.has("seals") else me.record.tokens
        yield scan(lake, me, tokens)
    elif me.pc == "finish" and not rules.has("looks") and me.row is None:
        announced = lake._replace(announced=lake.announced | set(me.record.sealed))
        yield "announces its tokens", announced, me._replace(row=1), None
    elif me.pc == "finish":
        yield from _finish(lake, me, rules)
    elif me.pc == "settle finish":
        yield from _settle_finish(lake, me, rules)


def commit_lazily(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """A commit that does not seal a staging token which it finds empty, under an unchanged record."""
    if me.pc == "begin":
        label, after, begun, broken = _starts(lake, me)
        yield label, after, begun._replace(pc="looks"), broken
    elif me.pc == "looks":
        is_empty = lake.tokens[me.record.staging] is None
        pc = "verifies" if is_empty else "seal"
        yield "looks into the staging token", lake, me._replace(pc=pc), None
    elif me.pc == "verifies" and not lake.record.same_layers(me.record):
        yield "met another record", lake, me._replace(pc="seal"), None
    elif me.pc == "verifies" and not lake.record.sealed and lake.record.base is None:
        yield _taken(lake, me, rules)
    elif me.pc == "verifies":
        then = scans(me, lake.record)
        yield from _knows(iter([("does not seal an empty token", lake, then, None)]))
    else:
        yield from commit(lake, me, rules)


def _knows(steps: Iterator[Step]) -> Iterator[Step]:
    """When the seal is confirmed, remembers the tokens that it has to commit, and the head."""
    for label, after, then, broken in steps:
        is_sealed = then.pc in {"scan", "finish"}
        seen = (then.record.sealed, then.record.commit) if is_sealed else then.seen
        yield label, after, then._replace(seen=seen), broken


def _finish(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    expected = me.fresh or me.record
    ours = me.record.sealed
    kept = expected.sealed[: len(expected.sealed) - len(ours)]
    staging = expected.staging
    built = _built(lake, me, rules)
    ready = lake.folds(built, me.record, rules)
    with_commit, made = ready.with_commit(built, me.number, me.record.commit)
    if not rules.has("seals"):
        with_commit, staging = with_commit.with_token()
        kept = ()
    after = expected._replace(staging=staging, sealed=kept, commit=made, base=None)
    if not rules.has("finish compares"):
        published = with_commit.with_record(after)
        yield _claims(published, me, rules, made, "sets the record")
        return
    for outcome, then in compare_and_set(with_commit, me, expected, after, "finish"):
        if outcome == "won":
            yield _claims(then, me, rules, made, f"publishes {then.commits[made][0]}")
        elif outcome == "unknown" and not rules.has("settles"):
            yield _claims(then, me, rules, made, "no answer, takes it for success")
        elif outcome == "unknown":
            waits = me._replace(pc="settle finish", made=made)
            yield f"publishes {then.commits[made][0]}, no answer", then, waits, None
        else:
            yield from _lost(lake, me, rules)


def _settle_finish(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    assert me.made is not None
    if (me.number, "finish") in lake.record.ops:
        yield _claims(lake, me, rules, me.made, "settles: published")
    elif lake.record == (me.fresh or me.record):
        if rules.has("late is pending"):
            yield "settles: not there yet", lake, me._replace(pc="finish"), None
        else:
            yield _refused(lake, me, "settles: not there")
    else:
        yield from _lost(lake, me, rules)


def _lost(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Handles a record that differs from the one that the commit was built from."""
    now = lake.record
    ours = me.record.sealed
    if rules.has("recognises") and (me.number, "finish") in now.ops:
        assert me.made is not None
        yield _claims(lake, me, rules, me.made, "an earlier attempt was applied")
        return
    tail = now.sealed[len(now.sealed) - len(ours) :] if len(ours) <= len(now.sealed) else None
    same_base = now.commit == me.record.commit
    if rules.has("commit compares base"):
        same_base &= now.base == me.record.base
    first, head = me.seen
    is_taken = now.commit != head and not set(first) & set(now.sealed)
    if rules.has("taken by commit"):
        is_taken &= now.base is None
    if not rules.has("no overlap rule"):
        yield from _overlap(lake, me, rules)
    elif same_base and tail == ours:
        yield "only newer seals came", lake, me._replace(fresh=now), None
    elif is_taken or (not now.sealed and now.base is None):
        yield _taken(lake, me, rules)
    else:
        yield "builds again", lake, scans(me, now), None


def _overlap(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Applies the rule of the KV proposal: the commit is valid if any of its sealed tokens is left."""
    now = lake.record
    kept = tuple(token for token in now.sealed if token not in me.record.sealed)
    if kept == now.sealed:
        yield _taken(lake, me, rules)
        return
    with_commit, made = lake.with_commit(_built(lake, me, rules), me.number, me.record.commit)
    after = now._replace(sealed=kept, commit=made, base=None)
    for outcome, then in compare_and_set(with_commit, me, now, after, "finish"):
        if outcome == "won":
            yield _claims(then, me, rules, made, "publishes it all the same")


def _claims(lake: StoreState, me: Local, rules: Rules, commit_id: int, label: str) -> Step:
    """Acknowledges the commit."""
    value = lake.commits[commit_id][0]
    broken = None
    if not rules.is_legal(lake, value, me.acked):
        broken = f"commit: it holds {value}; acknowledged before it began: {set(me.acked)}"
    elif me.number not in lake.published:
        broken = "commit: it was told as made and is not in the history"
    return label, lake, me.ends(), broken


def _taken(lake: StoreState, me: Local, rules: Rules) -> Step:
    """Answers that nothing is left to commit, and names the commit that holds everything."""
    label, after, ends, _ = _refused(lake, me, "nothing is left to commit")
    value = lake.commits[lake.record.commit][0]
    if rules.is_legal(lake, value, me.acked):
        return label, after, ends, None
    broken = f"commit: told that everything is in {value}; acknowledged: {set(me.acked)}"
    return label, after, ends, broken


def _refused(lake: StoreState, me: Local, label: str) -> Step:
    """Answers that no commit was made."""
    return label, lake._replace(refused=lake.refused | {me.number}), me.ends(), None


# ---- rule 6


def compact(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Folds the sealed tokens into a compacted metarange; gives up if anything but newer seals came."""
    if me.pc == "begin":
        yield _starts(lake, me)
    elif me.pc == "seal" and not rules.has("compaction seals"):
        yield "does not seal", lake, me._replace(pc="scan", record=lake.record), None
    elif me.pc == "seal":
        yield from seal(lake, me, rules)
    elif me.pc == "settle seal":
        yield from settle_seal(lake, me)
    elif me.pc == "scan":
        tokens = me.record.sealed if rules.has("compaction seals") else me.record.tokens
        yield scan(lake, me, tokens)
    elif me.pc == "settle finish":
        yield _lost_compaction(lake, me, rules)
    else:
        yield from _finish_compaction(lake, me, rules)


def _finish_compaction(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    expected = me.fresh or me.record
    if not rules.has("compaction compares"):
        expected = lake.record
    base, head = _built(lake, me, rules), lake.commits[me.record.commit][0]
    is_undone = base == head or (rules.is_absent(base) and rules.is_absent(head))
    kept = tuple(token for token in expected.sealed if token not in me.record.sealed)
    ready, staging = lake.folds(base, me.record, rules), expected.staging
    if not rules.has("compaction seals"):
        ready, staging = ready.with_token()
    if not rules.has("compaction keeps seals"):
        kept = ()
    after = expected._replace(staging=staging, sealed=kept, base=None if is_undone else base)
    for outcome, then in compare_and_set(ready, me, expected, after, "finish"):
        if outcome == "won":
            yield f"compacts to {base}", then, me.ends(), None
        elif outcome == "unknown":
            yield f"compacts to {base}, no answer", then, me._replace(pc="settle finish"), None
        else:
            yield _lost_compaction(lake, me, rules)


def _lost_compaction(lake: StoreState, me: Local, rules: Rules) -> Step:
    """Keeps the listing beneath newer seals; gives up over anything else."""
    now = lake.record
    if (me.number, "finish") in now.ops:
        return "an earlier attempt was applied", lake, me.ends(), None
    ours = me.record.sealed
    tail = now.sealed[len(now.sealed) - len(ours) :] if len(ours) <= len(now.sealed) else None
    same_base = (now.commit, now.base) == (me.record.commit, me.record.base)
    if same_base and tail == ours:
        return "only newer seals came", lake, me._replace(pc="finish", fresh=now), None
    if not rules.has("compaction gives up"):
        return "keeps its result", lake, me._replace(pc="finish", fresh=now), None
    return "gives up", lake, me.ends(), None


# ---- rules 7 and 9


def merge(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Merges the key from another branch; refuses a dirty branch and a branch that has the key.

    `merge other` brings other keys only. Both seal first, so that rows which were acknowledged before the
    seal are all there to be judged, and replace the staging token again in the last step (rule 9).
    """
    if me.pc == "begin":
        begun = lake if me.kind == "merge other" else lake.begins(me.number)
        yield "begins, reads the record", begun, me._replace(pc="seal", record=lake.record), None
    elif me.pc == "seal":
        yield from seal(lake, me, rules)
    elif me.pc == "settle seal":
        yield from settle_seal(lake, me)
    elif me.pc == "scan":
        yield scan(lake, me, me.record.sealed)
    elif me.pc == "settle finish":
        yield from _settle_merge(lake, me, rules)
    else:
        yield from _merge(lake, me, rules)


def _merge(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """Evaluates the sealed tokens, then publishes on the sealed record or on newer seals of it."""
    head = lake.commits[me.record.commit][0]
    beneath = lake.committed(me.record)
    found = beneath if me.value is None else me.value
    brings = me.kind != "merge other"
    is_dirty = found != beneath and not (rules.is_absent(found) and rules.is_absent(beneath))
    if rules.has("base is dirty"):
        is_dirty |= beneath != head
    if is_dirty or (brings and not rules.is_absent(head)):
        yield "refuses", *_unless_pending(lake, me), None
        return
    expected = me.fresh or me.record
    newer = expected.sealed[: len(expected.sealed) - len(me.record.sealed)]
    ready, made = lake.with_commit(me.number if brings else head, me.number, me.record.commit)
    staging = expected.staging
    if rules.has("merge seals"):
        ready, staging = ready.with_token()
        newer = (expected.staging, *newer) if rules.has("merge keeps rows") else newer
    after = Record(staging, newer, made, None, expected.moves + 1, expected.ops)
    for outcome, then in compare_and_set(ready, me, expected, after, "finish"):
        if outcome == "won":
            yield "merges", _merged(then, me), me.ends(), None
        elif outcome == "unknown":
            yield "merges, no answer", then, me._replace(pc="settle finish", made=made), None
        else:
            yield _lost_merge(lake, me, rules)


def _unless_pending(lake: StoreState, me: Local) -> tuple[StoreState, Local]:
    """Answers that no merge was made, unless an attempt may still be applied."""
    told = lake if me.made is not None else lake._replace(refused=lake.refused | {me.number})
    return told, me.ends()


def _merged(lake: StoreState, me: Local) -> StoreState:
    return lake if me.kind == "merge other" else lake.acknowledges(me.number)


def _settle_merge(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    if (me.number, "finish") in lake.record.ops:
        yield "settles: merged", _merged(lake, me), me.ends(), None
    elif lake.record == (me.fresh or me.record):
        yield "settles: not there yet", lake, me._replace(pc="finish"), None
    else:
        yield _lost_merge(lake, me, rules)


def _lost_merge(lake: StoreState, me: Local, rules: Rules) -> Step:
    """Keeps the result if there are only newer seals; evaluates the tokens again if the head has changed."""
    now = lake.record
    if (me.number, "finish") in now.ops:
        return "an earlier attempt was applied", _merged(lake, me), me.ends(), None
    ours = tuple(token for token in me.record.sealed if token in now.sealed)
    same_base = (now.commit, now.base) == (me.record.commit, me.record.base)
    if same_base and ours == me.record.sealed:
        return "only newer seals came", lake, me._replace(fresh=now), None
    if me.tries == rules.tries:
        return "the branch moves: gives up", *_unless_pending(lake, me), None
    from_now = scans(me, now._replace(sealed=ours))._replace(fresh=now, tries=me.tries + 1)
    if not rules.has("merge judges again"):
        from_now = from_now._replace(pc="finish")
    return "another head: again", lake, from_now, None


def merge_early(lake: StoreState, me: Local, rules: Rules) -> Iterator[Step]:
    """A merge that seals first and not in its last step. It is wrong; a test shows why."""
    yield from merge(lake, me, rules.without("merge seals"))
