"""The log, the log by path and annotations on the model's commits: all by definition, nothing by a walk."""

from __future__ import annotations

from lake_model import Commit, Contents, LakeModel

__all__ = ["changed_paths", "log", "origin"]


def log(
    model: LakeModel,
    commit: int,
    exclude: int | None = None,
    *,
    symmetric: bool = False,
    first_parent: bool = False,
) -> list[int]:
    """Returns the history of a commit: greatest generation first, then newest first.

    Args:
        model: the lake.
        commit: where it ends.
        exclude: a commit whose history is left out.
        symmetric: list what only one of the two has.
        first_parent: follow first parents only.
    """

    def listed(end: int) -> set[int]:
        return set(model.first_parents(end)) if first_parent else model.ancestors(end)

    found = listed(commit)
    if exclude is not None and symmetric:
        found = (found | listed(exclude)) - (model.ancestors(commit) & model.ancestors(exclude))
    elif exclude is not None:
        found -= model.ancestors(exclude)
    return sorted(
        found, key=lambda number: (model.commits[number].generation, number), reverse=True
    )


def changed_paths(model: LakeModel, commit: int, *, first_parent: bool = False) -> set[str]:
    """Returns the paths at which a commit differs from each of its parents, or from the first one only."""
    found = model.commits[commit]
    parents = found.parents[:1] if first_parent else found.parents
    before: list[Contents] = [model.commits[each].contents for each in parents] or [{}]
    differing = [set(model.differences(each, found.contents)) for each in before]
    return set.intersection(*differing)


def origin(model: LakeModel, commit: int, path: str) -> int:
    """Returns the commit that gave a path its content: the content is followed to the first parent that has it."""
    found: Commit = model.commits[commit]
    version = found.contents[path].version
    for parent in found.parents:
        before = model.commits[parent].contents.get(path)
        if before is not None and before.version == version:
            return origin(model, parent, path)
    return commit
