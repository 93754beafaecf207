"""Written mutations of graveler and the branch core: likely mistakes with orders, claims, incarnations and caches.
Each is found by its text, and is an error when that text is gone."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written

__all__ = ["GRAVELER"]

GRAVELER: Final[Sequence[Written]] = (
    # --- layers
    Written(
        "lookup-oldest-layer-first",
        "tarn_graveler.branch.layers",
        "A lookup takes the row of the oldest sealed token instead of the newest.",
        "for token in branch.tokens[depth_min:]:",
        "for token in (branch.staging, *reversed(branch.sealed))[depth_min:]:",
    ),
    Written(
        "find-oldest-layer-first",
        "tarn_graveler.branch.layers",
        "A delete or conditional write judges by the oldest sealed row.",
        "enumerate(branch.tokens[depth_min:], depth_min)",
        "enumerate((branch.staging, *reversed(branch.sealed))[depth_min:], depth_min)",
    ),
    Written(
        "page-oldest-layer-first",
        "tarn_graveler.branch.reading",
        "A listing merges the sealed tokens in reverse.",
        "name, branch.tokens, base, request)",
        "name, (branch.staging, *reversed(branch.sealed)), base, request)",
    ),
    Written(
        "differences-oldest-layer-first",
        "tarn_graveler.views.diffing",
        "Uncommitted differences merge the sealed tokens in reverse.",
        "name, branch, branch.tokens, prefix",
        "name, branch, (branch.staging, *reversed(branch.sealed)), prefix",
    ),
    Written(
        "commit-oldest-layer-first",
        "tarn_graveler.branch.layers",
        "A commit merges the sealed tokens in reverse.",
        "for token in record.sealed),",
        "for token in reversed(record.sealed)),",
    ),
    Written(
        "base-without-compaction",
        "tarn_graveler.branch.layers",
        "Reads ignore what compaction made the base.",
        "        if branch.compacted_metarange_id is not None:\n"
        "            return branch.compacted_metarange_id\n",
        "",
    ),
    # --- writes and reads
    Written(
        "delete-refused-after-writing",
        "tarn_graveler.branch.staging",
        "A delete that wrote in its first attempt tells the refusal of its second one as sure.",
        "outcomes[path] = OutcomeUnknownError(error.message) if written else error",
        "outcomes[path] = error",
    ),
    Written(
        "life-not-compared",
        "tarn_graveler.branch.handle",
        "A write that began on one life of a branch goes on in the next one.",
        "        elif self._incarnation != incarnation:\n"
        "            raise branch_not_found(self.name)\n",
        "",
    ),
    Written(
        "row-of-another-life",
        "tarn.core.branch",
        "A row is acknowledged though its branch was deleted, or made again.",
        "        is_same = self is other or (\n"
        "            self.incarnation == other.incarnation and self.staging == other.staging\n"
        "        )\n"
        "        return is_same and not self.is_deleted\n",
        "        return self.staging == other.staging\n",
    ),
    Written(
        "layers-without-base",
        "tarn.core.branch",
        "Two records count as the same layers though what is beneath the tokens differs.",
        "            and self.commit_id == other.commit_id\n"
        "            and self.compacted_metarange_id == other.compacted_metarange_id\n"
        "            and self.is_deleted == other.is_deleted\n",
        "",
    ),
    Written(
        "error-of-a-stale-record",
        "tarn_graveler.branch.reading",
        "A read by a stale record tells that record's error instead of reading again.",
        "                if record.same_layers(cached):\n                    raise error from None",
        "                raise error from None",
    ),
    Written(
        "repeat-over-a-tombstone",
        "tarn_graveler.branch.conditional",
        "A conditional write takes a row of its operation for its own whatever it holds.",
        '    return identity_of(replacing(newest, b"")) == identity_of(packed)\n',
        "    return True\n",
    ),
    Written(
        "another-instance-is-staged",
        "tarn_graveler.handlers.entries",
        "An entry of a deleted repository is staged in its namesake.",
        "        if repository.instance_uid != request.instance_uid:\n"
        "            raise repository_not_found(request.repository_id)\n",
        "",
    ),
    # --- caches
    Written(
        "branch-cached-an-hour",
        "tarn_graveler.records.branches",
        "Branch records are cached for an hour.",
        "_CACHE_SECONDS = 2.0",
        "_CACHE_SECONDS = 3600.0",
    ),
    Written(
        "repository-cached-ten-minutes",
        "tarn_graveler.records.repositories",
        "Repository records are cached for ten minutes.",
        "_CACHE_SECONDS = 5.0",
        "_CACHE_SECONDS = 600.0",
    ),
    # --- commits
    Written(
        "commit-without-metadata",
        "tarn_graveler.branch.committing",
        "A commit forgets the metadata that its caller gave.",
        "            metadata=request.metadata,\n",
        "",
    ),
    Written(
        "commit-without-manifest",
        "tarn_graveler.branch.committing",
        "A commit leaves no note beside its ranges.",
        "            await self._publications.note(handle.name, built.commit_id)\n",
        "            pass\n",
    ),
    Written(
        "commit-without-generation",
        "tarn_graveler.branch.committing",
        "A commit has the generation of its parent.",
        "generation=head.generation + 1",
        "generation=head.generation",
    ),
    # --- ends of branches and repositories
    Written(
        "branch-deleted-blindly",
        "tarn_graveler.records.branches",
        "A branch is deleted without comparing its record.",
        "await self._kv.delete_if(partition, key, current.predicate)",
        "await self._kv.delete_many(partition, [key])",
    ),
    Written(
        "branch-keeps-its-tokens",
        "tarn_graveler.handlers.branches",
        "Deleting a branch announces no token, so that uncommitted rows stay for ever.",
        "            await self._drops.announce(name, tokens)\n",
        "            return None\n",
    ),
    Written(
        "repository-marks-no-branch",
        "tarn_graveler.handlers.repositories",
        "Deleting a repository leaves its branches unmarked: writes under way are acknowledged.",
        "branch = await self._branches.mark_deleted(name)",
        "branch = (await self._branches.fresh(name)).branch",
    ),
    Written(
        "repository-keeps-its-tokens",
        "tarn_graveler.handlers.repositories",
        "Deleting a repository drops no staging token.",
        "tokens += [(name, token) for token in branch.tokens]",
        "del branch",
    ),
    Written(
        "repository-keeps-its-uploads",
        "tarn_graveler.handlers.repositories",
        "Deleting a repository drops no day of uploads.",
        "dead += [keys.uploads(day) for day in await self._daily_uploads.days(repository)]",
        "pass",
    ),
    Written(
        "another-instance-is-removed",
        "tarn_graveler.records.repositories",
        "A deletion that comes late removes the repository that was made since under the name.",
        "return now is None or now.instance_uid != uid",
        "return now is None",
    ),
    Written(
        "lost-mark-is-made-on-the-next-life",
        "tarn_graveler.records.repositories",
        "A deletion whose mark lost its answer marks the repository that was made since under the name.",
        "if current.is_pending or current.instance_uid != repository.instance_uid:",
        "if current.is_pending:",
    ),
    Written(
        "dropped-at-once",
        "tarn_graveler.guards.drops",
        "A token is dropped without the delay that readers count on.",
        "self.delay_us = int(seconds * 1_000_000)",
        "self.delay_us = int(seconds)",
    ),
    Written(
        "dropped-once-only",
        "tarn_graveler.collection.cleaner",
        "A partition is dropped once: rows that come late stay.",
        "        if drop.count:\n            return\n",
        "        return\n",
    ),
    # --- uploads
    Written(
        "completion-without-claim",
        "tarn_graveler.uploads.records",
        "A completion records its answer though its claim was taken over.",
        "                return\n            require_claim(record, self._upload_id, self._claim)\n            is_added",
        "                return\n            is_added",
    ),
    Written(
        "completion-stages-without-claim",
        "tarn_graveler.uploads.records",
        "A completion stages its object without looking at its claim again.",
        "        require_claim(record, self._upload_id, self._claim)\n        self._read",
        "        self._read",
    ),
    Written(
        "completion-forgets-earlier-attempts",
        "tarn_graveler.uploads.completion",
        "A completion that fails after an earlier attempt tells a refusal as sure.",
        "self.may_be_staged |= bool(attempts)",
        "pass",
    ),
    Written(
        "completion-beside-a-plain-row",
        "tarn_graveler.uploads.completion",
        "A completion writes where a plain row of an earlier attempt may still land.",
        "return is_conditional and branch.staging.token_id not in plain",
        "return is_conditional",
    ),
    Written(
        "completion-without-a-note",
        "tarn_graveler.uploads.completion",
        "A completion leaves no note, so that one that was written over is staged again.",
        '((key, self._made.packed), (staged_upload(self._made.upload_id), b""))',
        "((key, self._made.packed),)",
    ),
    Written(
        "completion-of-other-parts",
        "tarn_graveler.uploads.state",
        "A completed upload tells its answer to a completion with another part list.",
        "                if record.manifest_hash != manifest_hash:\n"
        "                    raise upload_not_found(upload_id)\n",
        "",
    ),
    Written(
        "claims-of-a-link-share-an-address",
        "tarn_graveler.uploads.state",
        "Two claims of a link copy to one address, so that a late copy replaces the object.",
        "if record.linked_address and not is_mine and not record.attempts:",
        "if False:",
    ),
    Written(
        "copy-that-may-be-staged-is-forgotten",
        "tarn_graveler.uploads.state",
        "A claim of a link takes another address although an attempt may have staged the last one.",
        "if record.linked_address and not is_mine and not record.attempts:",
        "if record.linked_address and not is_mine:",
    ),
    Written(
        "upload-is-open-beside-its-attempts",
        "tarn_graveler.uploads.state",
        "A claim that is given up opens an upload that an earlier one may have staged.",
        "if not may_be_staged and not record.attempts:",
        "if not may_be_staged:",
    ),
    Written(
        "claim-taken-at-once",
        "tarn_graveler.uploads.state",
        "A completion takes over a claim that is alive.",
        "_CLAIM_US = 300_000_000",
        "_CLAIM_US = 0",
    ),
    Written(
        "part-after-the-end",
        "tarn_graveler.uploads.state",
        "A part is recorded on an upload that was completed or aborted.",
        "        if record.state not in LIVE:\n            raise upload_not_found(upload_id)\n"
        "        key = RepositoryKeys.upload_part(",
        "        key = RepositoryKeys.upload_part(",
    ),
    Written(
        "reopened-by-anybody",
        "tarn_graveler.uploads.state",
        "A claim is given up by a caller that does not hold it.",
        "            require_claim(record, upload_id, claim)\n            # The state",
        "            # The state",
    ),
    Written(
        "claim-of-nobody",
        "tarn_graveler.uploads.records",
        "A completion without a claim holds one that was given up.",
        'record.completing_op_id == claim != b""',
        "record.completing_op_id == claim",
    ),
    Written(
        "claim-waits-for-itself",
        "tarn_graveler.uploads.state",
        "A caller that repeats its claim, whose answer was lost, waits for its own first attempt.",
        "if is_held and not is_mine:",
        "if is_held:",
    ),
    Written(
        "day-dropped-while-open",
        "tarn_graveler.uploads.daily_partitions",
        "A day is dropped although one of its uploads is open.",
        "if await self._is_ended(partition) and await",
        "if await",
    ),
    # --- builds beside collections
    Written(
        "sweep-begins-unnoticed",
        "tarn.core.collection",
        "A build does not notice that a sweep began beside it.",
        "    if before.sweep_count != after.sweep_count:\n        return Disturbance.SWEEP\n",
        "",
    ),
    Written(
        "no-look-after-the-root",
        "tarn_graveler.guards.fences",
        "A build looks for sweeps before its listing is a root, and not afterwards.",
        "                await made.check_again()\n            except",
        "            except",
    ),
    Written(
        "pins-are-no-roots",
        "tarn_graveler.collection.roots",
        "A collection does not see listings that are about to be published.",
        "            for pin in branch.pins:\n                page.metarange_ids[pin.metarange_id] = None\n",
        "",
    ),
    Written(
        "published-unpinned",
        "tarn.core.branch",
        "A compacted listing is published over a record that does not pin it any more.",
        " and (pin is None or pin in current.pins):",
        ":",
    ),
    # --- expired commits (rule 14)
    Written(
        "branch-without-look",
        "tarn_graveler.records.branches",
        "A branch is created at a commit that has expired.",
        "await self._expired.refuse(name.repository, [commit_id])",
        "pass",
    ),
    Written(
        "tag-without-look",
        "tarn_graveler.records.tags",
        "A tag is created at a commit that has expired.",
        "await self._expired.refuse(repository, [commit_id])",
        "pass",
    ),
    Written(
        "pending-branch-is-no-root",
        "tarn_graveler.collection.roots",
        "The roots leave out a branch that is being created.",
        "                former.append(branch.commit_id)\n",
        "",
    ),
    Written(
        "pending-tag-is-no-root",
        "tarn_graveler.collection.roots",
        "The roots leave out a tag that is being created.",
        "for _, tag in tags if tag.is_pending]",
        "for _, tag in tags if False]",
    ),
    Written(
        "reflogs-are-no-roots",
        "tarn_graveler.collection.roots",
        "The roots leave out what reflogs name.",
        '    "reflogs": Roots._reflogs,  # noqa: SLF001\n',
        "",
    ),
    Written(
        "move-without-pin",
        "tarn_graveler.branch.head_moves",
        "A branch moves to an old commit that it has not made a root.",
        "pinned = (await handle.change(decide, holds)).newest",
        "pinned = record",
    ),
    Written(
        "move-looks-before-its-pin",
        "tarn_graveler.branch.head_moves",
        "A move looks for the expired row before its pin only.",
        "        pinned = (await handle.change(decide, holds)).newest\n"
        "        await self._expired.refuse(handle.name.repository, [new.commit_id])\n",
        "        pinned = (await handle.change(decide, holds)).newest\n",
    ),
    Written(
        "merge-without-look",
        "tarn_graveler.versioning.merges",
        "A merge takes entries from an expired source.",
        'made.take_from([request.source] if into.kind == "branch" else [request.source, dest])',
        "pass",
    ),
    Written(
        "what-if-looks-at-its-source-only",
        "tarn_graveler.versioning.merges",
        "A what-if merge takes entries from an expired destination.",
        'made.take_from([request.source] if into.kind == "branch" else [request.source, dest])',
        "made.take_from([request.source])",
    ),
    Written(
        "revert-without-look",
        "tarn_graveler.versioning.merges",
        "A revert takes entries from an expired parent.",
        "made.take_from([source_id] if source_id else [])",
        "pass",
    ),
    Written(
        "range-revert-without-look",
        "tarn_graveler.versioning.range_reverts",
        "A revert of a range takes entries from expired parents.",
        "        made.take_from(each.source_id for each in line if each.source_id)\n",
        "",
    ),
    Written(
        "expired-commits-are-whole",
        "tarn_graveler.collection.roots",
        "Expired commits keep their objects.",
        "if each not in whole}",
        "if False}",
    ),
    Written(
        "expired-commits-are-read",
        "tarn_graveler.branch.reading",
        "Objects of expired commits are read.",
        "if not found.is_kept:",
        "if False:",
    ),
)
