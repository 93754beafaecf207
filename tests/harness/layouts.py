"""The layouts of keys, for tables that must know all of them."""

from tarn.kv import keys as layouts

__all__ = ["NO_RECORDS", "names_of_layouts"]

NO_RECORDS = {
    # Parts of names, and parsers.
    "after_prefix",
    "day_of_upload",
    "key_error",
    "path_of",
    "paths_of",
    "InstallationKeys.installation_id",
    "InstallationKeys.of_repository",
    "AuthKeys.installation_id",
    "RepositoryKeys.root",
    "RepositoryKeys.day_of",
    "RepositoryKeys.deleted_branch",
    "RepositoryKeys.upload_of",
    # Partitions, whose rows the table has one by one.
    "InstallationKeys.graveler",
    "InstallationKeys.cleanup",
    "InstallationKeys.drops",
    "InstallationKeys.registrations",
    "InstallationKeys.journal_state",
    "AuthKeys.OWNED_VALUE",
    "AuthKeys.partition",
    "RepositoryKeys.refs",
    "RepositoryKeys.commits",
    "RepositoryKeys.changed",
    "RepositoryKeys.reflog",
    "RepositoryKeys.uploads",
    "RepositoryKeys.pulls",
    "RepositoryKeys.pull_event_sequence",
    "RepositoryKeys.tasks",
    "RepositoryKeys.token",
}


def names_of_layouts() -> set[str]:
    """All public names of `tarn.kv.keys`, with the members of its classes."""
    names = set()
    for name in layouts.__all__:
        found = getattr(layouts, name)
        if isinstance(found, type):
            names |= {f"{name}.{member}" for member in dir(found) if not member.startswith("_")}
        else:
            names.add(name)
    return names
