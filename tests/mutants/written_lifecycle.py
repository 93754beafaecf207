"""Written mutations of merges, links, completions, collections and expiry: likely mistakes with times, looks and
limits. None of them is a guard of the simulator.
"""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written

__all__ = ["LIFECYCLE"]

_COLLECTION: Final = "tarn.core.collection"
_PLAN: Final = "tarn.core.expiry_plan"
_LINKS: Final = "tarn_graveler.uploads.links"
_PAGES: Final = "tarn_graveler.collection.history_pages"

LIFECYCLE: Final[Sequence[Written]] = (
    # --- collections
    Written(
        "mark-cutoff-of-its-end",
        _COLLECTION,
        "A sweep judges by the end of its mark.",
        "mark_cutoff_us=current.cutoff_us,",
        "mark_cutoff_us=current.cutoff_us + (now_us - current.begin_us),",
    ),
    Written(
        "sweep-of-any-mark",
        _COLLECTION,
        "A sweep names another mark than the last complete one.",
        "if not mark_run_id or mark_run_id != current.mark_run_id:",
        "if not mark_run_id:",
    ),
    Written(
        "marks-run-side-by-side",
        _COLLECTION,
        "A run begins beside a mark whose lease has not ended.",
        "if current.phase is not Phase.IDLE and now_us < current.lease_until_us:",
        "if current.phase is Phase.SWEEP and now_us < current.lease_until_us:",
    ),
    Written(
        "mark-swept-twice",
        _COLLECTION,
        "The mark stays after its sweep.",
        'return replace(ended, mark_run_id="", mark_end_us=0, mark_cutoff_us=0, last_sweep=totals)',
        "return replace(ended, last_sweep=totals)",
    ),
    Written(
        "batch-beside-another",
        _COLLECTION,
        "A batch is answered although another one is open.",
        "        if current.batch == batch:\n",
        "        if current.batch:\n",
    ),
    Written(
        "batch-not-counted",
        _COLLECTION,
        "A batch that began and ended leaves no trace.",
        "fence_count=current.fence_count + 1,",
        "fence_count=current.fence_count,",
    ),
    Written(
        "complete-with-an-open-batch",
        _COLLECTION,
        "A sweep ends as complete before its last batch.",
        '    if current.is_batch_open(now_us):\n        raise _invalid("is_complete"',
        '    if not run_id:\n        raise _invalid("is_complete"',
    ),
    Written(
        "late-mark-is-complete",
        _COLLECTION,
        "A mark whose lease has ended is complete.",
        "(is_complete and now_us >= current.lease_until_us)",
        "(is_complete and not run_id)",
    ),
    Written(
        "run-beside-a-hold",
        _COLLECTION,
        "A run goes on although the repository is held.",
        "        raise _lost(run_id)\n    _refuse_hold(current, now_us)\n",
        "        raise _lost(run_id)\n",
    ),
    Written(
        "lease-from-its-end",
        _COLLECTION,
        "A lease that is renewed grows.",
        "    require_run(current, run_id, now_us)\n    return replace(current, lease_until_us=now_us + ",
        "    require_run(current, run_id, now_us)\n"
        "    return replace(current, lease_until_us=current.lease_until_us + ",
    ),
    # --- expiry
    Written(
        "protected-commits-expire",
        _PLAN,
        "Commits of tags and reflogs expire.",
        "kept = lines.kept | history.protected",
        "kept = lines.kept",
    ),
    Written(
        "age-of-the-commit-itself",
        _PLAN,
        "A commit's days count from its own time, not from the end of its time as the head.",
        "is_young and replaced_us >= oldest_us",
        "is_young and self._times[commit_id] >= oldest_us",
    ),
    Written(
        "branch-without-rules-expires",
        _PLAN,
        "A branch without rules keeps its head only.",
        "                self._whole.add(commit_id)\n                self.kept.add(commit_id)\n",
        "                self._whole.add(commit_id)\n",
    ),
    Written(
        "lines-are-detached",
        _PLAN,
        "The rule for detached commits covers those of branches.",
        "is_detached = commit_id not in lines.rules and commit_id not in kept",
        "is_detached = commit_id not in kept",
    ),
    Written(
        "times-as-clocks-tell",
        _PLAN,
        "A commit whose clock was slow is older than its parents.",
        "times[commit_id] = max(commit.create_time_us, *inherited, 0)",
        "times[commit_id] = commit.create_time_us",
    ),
    Written(
        "one-commit-more-is-kept",
        _PLAN,
        "A rule keeps one commit more than it says.",
        "number >= rule.keep_commits",
        "number > rule.keep_commits",
    ),
    Written(
        "plan-reads-refs-once",
        _PAGES,
        "A plan does not read refs again behind the commits.",
        "    HistoryPages._commits,  # noqa: SLF001\n    HistoryPages._heads,  # noqa: SLF001\n    *_REFS,\n)",
        "    HistoryPages._commits,  # noqa: SLF001\n)",
    ),
    Written(
        "failed-rows-are-ignored",
        "tarn_graveler.records.expired",
        "The row of an expired commit may fail unnoticed.",
        "            require_written(await self._kv.set_many(partition, groups))\n",
        "            await self._kv.set_many(partition, groups)\n",
    ),
    Written(
        "expired-once-more",
        "tarn_graveler.records.expired",
        "An expired commit gets another row.",
        "            if commit_id not in known:\n",
        "            if commit_id:\n",
    ),
    # --- links
    Written(
        "link-of-another-object",
        _LINKS,
        "An address that is linked is linked again as another object.",
        "elif record.manifest_hash != written.digest:",
        "elif not record.manifest_hash:",
    ),
    Written(
        "link-without-its-block",
        _LINKS,
        "An address is linked without a look at the bucket.",
        "                await self._check_block(repository, upload, written)\n",
        "                pass\n",
    ),
    # --- merges
    Written(
        "range-revert-looks-at-one",
        "tarn_graveler.versioning.range_reverts",
        "A revert of a range looks for the expiry of its newest source only.",
        "each.source_id for each in line if each.source_id",
        "each.source_id for each in line[:1] if each.source_id",
    ),
    # --- completions, changes of records
    Written(
        "completion-done-unverified",
        "tarn_graveler.uploads.completion",
        "A completion takes itself for done by a record that it does not verify.",
        "        if not verified.same_layers(record):\n            return False\n        if not self._made",
        "        if not self._made",
    ),
    Written(
        "unsettled-row-is-changed",
        "tarn.kv.register",
        "A change of a register reads without settling.",
        "[self._key], settle=True)",
        "[self._key])",
    ),
    Written(
        "refusal-after-a-lost-answer",
        "tarn.kv.register",
        "A refusal of the second attempt is told although the first one may be written.",
        "                    may_be_written = True\n",
        "                    pass\n",
    ),
    Written(
        "own-change-beneath-another-is-made-again",
        "tarn.kv.register",
        "A change whose answer was lost is made again over a later record.",
        "if may_be_written and holds is not None and holds(before):",
        "if not may_be_written and holds is not None and holds(before):",
    ),
    Written(
        "unknown-announcement-counts",
        "tarn_graveler.guards.drops",
        "A token whose announcement stays unknown counts as announced.",
        "if not tries_left or error.kind is not Kind.UNKNOWN_OUTCOME:",
        "if error.kind is not Kind.UNKNOWN_OUTCOME:",
    ),
    Written(
        "forgetting-keeps-the-mark",
        "tarn.core.branch",
        "Removing tokens that change nothing keeps the mark of a compaction.",
        "        compaction_start_time_us=0,\n        pins=(),\n        recent_op_ids=_remember(current, op_id),\n"
        "    )\n\n\ndef set_expiry",
        "        pins=(),\n        recent_op_ids=_remember(current, op_id),\n    )\n\n\ndef set_expiry",
    ),
)
