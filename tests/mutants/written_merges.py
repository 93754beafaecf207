"""Written mutations of merges, reverts, cherry-picks and differences: likely mistakes with bases, parents, pages and
addresses. None of them is a guard of the simulator.
"""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written

__all__ = ["MERGES"]

_MERGES: Final = "tarn_graveler.versioning.merges"
_RANGES: Final = "tarn_graveler.versioning.range_reverts"
_HANDLER: Final = "tarn_graveler.handlers.merges"
_MERGING: Final = "tarn.block.merging"

MERGES: Final[Sequence[Written]] = (
    # --- which commits
    Written(
        "fast-forward-over-own-commits",
        _MERGES,
        "A branch with commits of its own is fast-forwarded: they are lost.",
        "if bases != (dest,):",
        "if not bases:",
    ),
    Written(
        "squash-compared-with-its-source",
        _MERGES,
        "A squash that makes the branch equal to its source counts as nothing to merge.",
        "if request.squash and listing == head.metarange_id and not request.allow_empty:",
        "if request.squash and listing == source.metarange_id and not request.allow_empty:",
    ),
    Written(
        "generation-of-the-first-parent",
        _MERGES,
        "A merge commit has a generation that is not greater than its second parent's.",
        "generation=1 + max(each.generation for each in ancestors[: len(parents)]),",
        "generation=1 + ancestors[0].generation,",
    ),
    Written(
        "picks-change-no-path",
        _MERGES,
        "Reverts and cherry-picks are remembered as commits that change no path, so the log of a path lacks them.",
        "if len(parents) > 1:",
        "if parents:",
    ),
    Written(
        "revert-looks-at-the-first-parent",
        _MERGES,
        "A revert of a merge against its second parent looks for the expiry of the first one.",
        "source_id = commit.parents[max(request.parent_number, 1) - 1] if commit.parents else None",
        "source_id = commit.parents[0] if commit.parents else None",
    ),
    Written(
        "note-of-the-caller",
        _MERGES,
        "The metadata of a caller replaces the note of the commit that was picked.",
        "listed = dict(request.metadata) | {note: str(request.commit_id)}",
        "listed = {note: str(request.commit_id)} | dict(request.metadata)",
    ),
    Written(
        "reverts-are-picks-in-the-reflog",
        _MERGES,
        "The reflog calls a revert a cherry-pick.",
        "Cause(_OPERATIONS[note], request.committer)",
        "Cause(HeadOperation.CHERRY_PICK, request.committer)",
    ),
    Written(
        "reverts-side-by-side",
        _RANGES,
        "Each revert of a squashed range starts at the head, so only the last one counts.",
        "replace(one.sides, dest=listing)",
        "replace(one.sides, dest=at.commit.metarange_id)",
    ),
    Written(
        "bases-of-one-generation",
        "tarn_graveler.graph.merge_base",
        "The search for merge bases ends with the first generation that has one.",
        "if found and (len(found) > limit or not frontier.can_meet(generation)):",
        "if found:",
    ),
    # --- which rows
    Written(
        "merge-keeps-its-own-address",
        _MERGING,
        "A merge keeps the destination's entry of an object that the source has written again.",
        "rows = apply_changes(dest, merged.changes, exact=True)",
        "rows = apply_changes(dest, merged.changes)",
    ),
    Written(
        "undecided-results-decide",
        "tarn.core.listing.virtual",
        "A result of a fold decides by its ranges, and its undecided paths count as decided.",
        "is_known = base is not None and base < len(places)",
        "is_known = base is not None",
    ),
    # --- what is shown
    Written(
        "conflict-pages-add-up",
        _MERGING,
        "The size of a page of conflicts is limited for each span of paths only.",
        "        self._bytes_left -= taken.nbytes\n",
        "",
    ),
    Written(
        "page-ends-behind-its-segment",
        _MERGING,
        "A page of conflicts that ends within a long span goes on behind it: the conflicts in between are not shown.",
        "page.next_after = step.upto",
        "page.next_after = segment.last_path",
    ),
    Written(
        "second-page-without-choice",
        _HANDLER,
        "The second page of a preview lists conflicts that the choice decides.",
        "repository, dest, source, choice, after=request.after",
        "repository, dest, source, Choice(), after=request.after",
    ),
    Written(
        "difference-before-its-prefix",
        "tarn.block.differences",
        "A difference that goes on after a path before its prefix shows paths outside of it.",
        "start = max(prefix, path_after(after)) if after else prefix",
        "start = path_after(after) if after else prefix",
    ),
)
