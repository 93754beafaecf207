"""Commits of a lab that expire by rules."""

from __future__ import annotations

from collector_lab import CollectorLab

from tarn.core.ids import CommitId
from tarn.kv.keys import RepositoryKeys

__all__ = ["commit", "forget_reflog", "set_rules"]


async def set_rules(lab: CollectorLab, rules: str) -> None:
    graveler = lab.service.graveler
    found = await graveler.get_retention(lab.admin, "lake")
    await graveler.set_retention(lab.admin, "lake", rules, if_match=found.etag)


async def commit(lab: CollectorLab, branch: str, path: str) -> tuple[CommitId, str]:
    """Returns a commit that replaces one object, and the block of it."""
    block = await lab.put(branch, path)
    made = await lab.service.graveler.create_commit(lab.admin, "lake", branch, "m")
    return CommitId(made.commit.commit_id), block


async def forget_reflog(lab: CollectorLab) -> None:
    """Lets all reflogs expire, which would take 90 days."""
    replica = lab.service.replicas
    repository = await lab.service.graveler.get_repository(lab.admin, "lake")
    name = f"test/lake-{repository.instance_uid}/reflog"
    await replica.kv.drop_partition(RepositoryKeys(name.removesuffix("/reflog")).reflog)
