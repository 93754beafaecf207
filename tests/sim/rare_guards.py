"""The guards for which no seed is recorded, and the hand-written test that detects the absence of each.

The list "Rare guards" of docs/design/simulation.md has the same names. `test_rare_guards.py` switches each guard off,
and runs its test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.sim.collection_guards import ONE_LOOK, RARE_COLLECTION_GUARDS
from tests.sim.delete_guards import RARE_DELETE_GUARDS
from tests.sim.drop_guards import RARE_DROP_GUARDS
from tests.sim.erase_guards import RARE_ERASE_GUARDS
from tests.sim.expiry_guards import RARE_EXPIRY_GUARDS
from tests.sim.lake_guards import RARE_LAKE_GUARDS
from tests.sim.move_guards import RARE_MOVE_GUARDS
from tests.sim.online_guards import RARE_ONLINE_GUARDS
from tests.sim.part_guards import RARE_PART_GUARDS
from tests.sim.session_guards import RARE_SESSION_GUARDS
from tests.sim.upload_guards import RARE_UPLOAD_GUARDS
from tests.support.faults.guards import Guard, Weakening

__all__ = ["DETECTED_BY", "RARE_GUARDS", "weakenings_of"]

RARE_GUARDS: Sequence[Guard] = (
    *RARE_COLLECTION_GUARDS,
    *RARE_ONLINE_GUARDS,
    *RARE_EXPIRY_GUARDS,
    *RARE_ERASE_GUARDS,
    *RARE_LAKE_GUARDS,
    *RARE_MOVE_GUARDS,
    *RARE_UPLOAD_GUARDS,
    *RARE_DROP_GUARDS,
    *RARE_PART_GUARDS,
    *RARE_DELETE_GUARDS,
    *RARE_SESSION_GUARDS,
)

_FENCES = "tests/unit/graveler/test_collection_fences.py"
_SERVICE = "tests/unit/graveler/test_collection_service.py"
_ONLINE = "tests/unit/graveler/test_online_deletion.py"
_EXPIRED = "tests/unit/graveler/test_expired_commits.py"
_PAUSES = (
    "tests/unit/graveler/test_collection_pauses.py::test_an_operation_that_pauses_while_a_sweep_reads"
    "_the_roots_publishes_no_deleted_range"
)
_SESSION_KEYS = "tests/unit/auth/test_session_keys.py"
_COLLECTING = "tests/unit/collection/test_collecting.py"

DETECTED_BY: Mapping[str, str] = {
    "session-renewal-is-seen": f"{_SESSION_KEYS}"
    "::test_a_renewed_key_has_not_expired_on_another_replica",
    "grant-counts-from-its-question": f"{_SESSION_KEYS}"
    "::test_a_slow_answer_admits_nobody_who_came_after_its_time",
    "build-renews": f"{_FENCES}::test_ranges_that_were_found_again_are_young_for_the_sweep",
    "address-age-when-durable": "tests/unit/graveler/test_address_age.py"
    "::test_a_row_that_was_on_its_way_for_hours_is_not_acknowledged",
    "grace": f"{_SERVICE}::test_a_mark_is_begun_ended_and_told",
    "compacted-after-tokens": f"{_SERVICE}"
    "::test_the_roots_are_uploads_staged_rows_compacted_listings_and_all_commits",
    "commits-last": f"{_SERVICE}"
    "::test_the_roots_are_uploads_staged_rows_compacted_listings_and_all_commits",
    "batch-is-announced": "tests/sim/test_collector_crashes.py"
    "::test_a_sweep_that_deletes_ranges_announces_its_batches",
    "sweep-looks-again": f"{_COLLECTING}::test_what_was_renewed_after_the_mark_is_kept",
    "batch-is-recent": f"{_COLLECTING}"
    "::test_a_process_that_stood_still_deletes_nothing_of_its_batch",
    "build-checks-the-fence": f"{_PAUSES}[commit]",
    "batches-are-counted": f"{_FENCES}::test_a_batch_between_the_two_looks_of_a_build_is_noticed",
    "sweeps-are-counted": f"{_PAUSES}[commit]",
    "root-before-the-last-look": f"{_PAUSES}[commit]",
    "pins-are-roots": f"{_PAUSES}[compaction]",
    "batch-outlives-its-run": "tests/unit/core/test_collection.py"
    "::test_a_batch_that_was_never_ended_outlives_its_run_until_no_deletion_can_be_under_way",
    "copy-reads-again": f"{_ONLINE}::test_a_copy_whose_source_is_deleted_meanwhile_is_not_made",
    "first-attempt-is-private": f"{_ONLINE}::test_an_object_of_a_second_attempt_stays",
    "end-was-known-before": f"{_ONLINE}::test_an_older_row_does_not_end_a_newer_one",
    "notes-of-named-tokens": f"{_ONLINE}::test_a_copy_to_another_branch_keeps_the_object",
    "online-waits-for-collections": f"{_ONLINE}::test_the_queue_waits_for_a_hold",
    "look-for-expiry": f"{_EXPIRED}::test_a_commit_that_was_only_shown_is_looked_for_again",
    "refs-are-roots": f"{_EXPIRED}::test_refs_and_reflogs_are_roots_whatever_rows_say",
    "only-published-expire": "tests/unit/core/test_expiry_plan.py"
    "::test_detached_commits_expire_only_if_they_were_published",
    "equal-replaces-erased": "tests/unit/graveler/test_erased_rewrites.py"
    "::test_what_was_written_again_may_be_erased_and_written_again",
    "erase-old-only": "tests/unit/collection/test_erasing.py"
    "::test_objects_go_out_of_all_history_and_the_rest_stays",
    "change-holds": "tests/unit/graveler/test_settled_later_record.py"
    "::test_a_compacted_listing_has_its_pin_when_it_is_judged[compaction]",
    "moves-of-all-lives": "tests/unit/graveler/test_restored_branches.py"
    "::test_the_times_of_moves_increase_over_all_lives[restored]",
    "part-restores-commit": "tests/unit/graveler/test_part_resets.py"
    "::test_the_commits_content_comes_back_where_an_earlier_reset_had_folded_changes",
    "completion-rivals": "tests/unit/graveler/test_completion.py"
    "::test_an_upload_that_another_attempt_may_set_again_is_not_done",
    "completion-unless-added": "tests/unit/graveler/test_completion.py"
    "::test_an_attempt_that_begins_before_the_answer_is_recorded_is_no_less_a_rival",
    "upload-of-its-life": "tests/unit/graveler/test_uploads_of_lives.py"
    "::test_an_upload_of_an_earlier_branch_is_not_listed_and_can_be_aborted",
    "drop-row-in-time": "tests/unit/graveler/test_cleaning.py"
    "::test_a_commit_that_pauses_before_its_announcement_leaves_no_token_behind",
    "delete-if-own-tombstone": "tests/unit/graveler/test_conditional_deletes.py"
    "::test_a_repeated_delete_gets_the_answer_of_its_first_attempt[seal]",
}
"""The test that fails without a guard, by the guard's name."""


def weakenings_of(guard: Guard) -> Sequence[Weakening]:
    """Returns what switches a guard off alone: the second look at the roots stays on."""
    return [weakening for weakening in guard.weakenings if weakening is not ONE_LOOK]
