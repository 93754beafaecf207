"""Written mutations of backups, prunes and restores: likely mistakes with orders, marks, holds and files. None of them
is a guard of the simulator.
"""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written

__all__ = ["BACKUP"]

_MARKS: Final = "tarn.snapshot.files.marks"
_PRUNING: Final = "tarn.snapshot.files.pruning"
_HISTORY: Final = "tarn.snapshot.installation.history"
_COMMANDS: Final = "tarn_cli.commands.backup"

BACKUP: Final[Sequence[Written]] = (
    # --- marks and prunes
    Written(
        "failed-backup-keeps-its-mark",
        "tarn.snapshot.installation.creating",
        "A backup that failed refuses prunes for a day.",
        "    finally:\n        await end_snapshot(target, Scope.INSTALLATION, backup_id)\n",
        "    except TypeError:\n        raise\n",
    ),
    Written(
        "backup-looks-before-it-marks",
        _MARKS,
        "A backup looks for prunes, and then writes its mark: a prune between the two sees no backup.",
        "    await write_mark(target, scope, snapshot_id, now_us, about)\n"
        "    async for name in target.files(_PRUNES):\n"
        "        if await _counts(target, name, now_us):\n"
        "            await end_snapshot(target, scope, snapshot_id)\n"
        '            text = f"`tarn backup prune` is running on {target.about}, or died less than a day ago ({name});'
        ' try later"\n'
        "            raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)\n",
        "    async for name in target.files(_PRUNES):\n"
        "        if await _counts(target, name, now_us):\n"
        "            raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, name)\n"
        "    await write_mark(target, scope, snapshot_id, now_us, about)\n",
    ),
    Written(
        "damaged-marks-do-not-count",
        _MARKS,
        "A mark that cannot be read does not keep a prune away.",
        "        return True  # written by a later version, or damaged: be careful\n",
        "        return False\n",
    ),
    Written(
        "manifest-goes-last",
        _PRUNING,
        "A prune that is interrupted leaves a backup without its index.",
        "        await target.delete([manifest_file(Scope.INSTALLATION, each) for each in old])\n",
        "",
    ),
    Written(
        "prune-outlives-its-mark",
        _PRUNING,
        "A prune goes on to delete chunks when its mark no longer counts.",
        '            check_time(begin_us, clock.now_us(), "the prune")\n            await',
        "            await",
    ),
    # --- what is read
    Written(
        "backup-without-erasures",
        _HISTORY,
        "A restored installation shows objects that were erased.",
        "return key.startswith(_BESIDE) or _id_of(key) in known",
        "return not key.startswith(_BESIDE) and _id_of(key) in known",
    ),
    Written(
        "grandparents-are-missing",
        _HISTORY,
        "A backup adds the parents that its scan missed, but not theirs.",
        "    while missing := [",
        "    if missing := [",
    ),
    Written(
        "notes-after-rows",
        "tarn.snapshot.installation.branches",
        "A backup has the note of an upload that completes meanwhile, without its row.",
        "            lines += await writer.copy(partition, STAGED_UPLOADS, None)\n"
        '            lines += await writer.copy(partition, b"", STAGED_UPLOADS)\n',
        '            lines += await writer.copy(partition, b"", STAGED_UPLOADS)\n'
        "            lines += await writer.copy(partition, STAGED_UPLOADS, None)\n",
    ),
    Written(
        "names-of-others",
        "tarn.snapshot.installation.repository",
        "A name that changed its owner meanwhile has the new one in the backup.",
        "if made is not None and decode_ref_name(made) == decode_ref_name(value):",
        "if made is not None:",
    ),
    Written(
        "early-look-serves",
        "tarn.snapshot.installation.looks",
        "A look that comes before a branch's end stands in for the one at its end.",
        "if name in missing and drop.drop_time_us >= missing[name].drop_time_us:",
        "if name in missing:",
    ),
    # --- holds
    Written(
        "failed-renewal-is-ignored",
        "tarn.snapshot.installation.holding",
        "A backup goes on although collections are not held any more.",
        "            await clock.sleep(RENEW_SECONDS)\n            await hold_all()\n",
        "            await clock.sleep(RENEW_SECONDS)\n"
        "            with suppress(TarnError):\n                await hold_all()\n",
    ),
    Written(
        "opened-before-the-hold",
        "tarn.snapshot.installation.restoring",
        "A restored store may be collected at once.",
        ", before_opening=hold)",
        ")",
    ),
    # --- files
    Written(
        "manifest-of-another-backup",
        "tarn.snapshot.files.stored",
        "The manifest of one backup is believed under the id of another one.",
        "    if (manifest.scope, manifest.snapshot_id) != (scope, snapshot_id):\n",
        "    if manifest.scope is not scope:\n",
    ),
    Written(
        "first-page-of-a-bucket",
        "tarn.block.paging",
        "Of a bucket with many files, only the first page is listed.",
        "        if len(page) < limit:\n            return\n",
        "        return\n",
    ),
    Written(
        "empty-file-is-a-chunk",
        "tarn.snapshot.files.target",
        "A file that lost its content in a crash counts as a chunk that is stored.",
        "return stat.S_ISREG(found.st_mode) and found.st_size > 0",
        "return stat.S_ISREG(found.st_mode)",
    ),
    # --- commands
    Written(
        "restore-beside-a-running-store",
        "tarn_cli.backup_run",
        "A restore fills a store that another process has open.",
        "kv = await open_store(self.config, self.clock, self.ids, alone=True)",
        "kv = await open_store(self.config, self.clock, self.ids, alone=False)",
    ),
    Written(
        "restore-leaves-no-record",
        _COMMANDS,
        "The audit log does not tell that a backup was restored.",
        'session.output.one(_run(session, config, work, "backup restore", target))',
        "session.output.one(_run(session, config, work))",
    ),
    Written(
        "verify-restores-damage",
        _COMMANDS,
        "`verify` hides damaged chunks behind the failure of its own restore.",
        "if not (wrong or files_only):",
        "if not files_only:",
    ),
)
