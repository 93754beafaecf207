"""Records of pull requests, as tests make them without a service."""

from tarn.core.ids import BranchId, CommitId, UserId
from tarn.core.pull_request import PullBranch, PullRequest, PullState

__all__ = ["new_pull"]


def new_pull(source: str, destination: str = "main") -> PullRequest:
    """Returns an open request that has no number yet, by ann."""
    side, other = (
        PullBranch(BranchId(name), name.encode().ljust(16), CommitId("0" * 64))
        for name in (source, destination)
    )
    title = f"Merge {source}"
    return PullRequest(
        0, PullState.OPEN, UserId("ann"), bytes(16), side, other, title, "", 0, 0, b""
    )
