"""Written mutations of rebuilds, and of the names that tokens get in a store that was filled from a snapshot.

`tests/models/journal_model.py` shows what breaks without the rules on tokens.
"""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written

__all__ = ["REBUILD"]

_REPOSITORY: Final = "tarn_graveler.rebuild.repository"
_RENAMING: Final = "tarn.snapshot.store.renaming"

REBUILD: Final[Sequence[Written]] = (
    # --- rebuilt branches
    Written(
        "rebuilt-branch-keeps-its-sealed-tokens",
        _REPOSITORY,
        "A commit that lived through the rebuild finds the tokens that it took, and publishes over a newer listing.",
        "            sealed=(),\n",
        "",
    ),
    Written(
        "rebuilt-branch-keeps-its-token",
        _REPOSITORY,
        "A drain of the lost store that still runs drops the token of the rebuilt branch.",
        "token_id = TokenId(self.ids.uuid7().hex())",
        "token_id = before.token_id",
    ),
    Written(
        "rebuilt-branch-keeps-its-old-listing",
        _REPOSITORY,
        "Uncommitted changes are folded, and the branch does not name the result.",
        "                listing = built.metarange_id\n",
        "                listing = built.metarange_id and base\n",
    ),
    Written(
        "rebuild-folds-over-the-commit",
        _REPOSITORY,
        "Uncommitted changes that a compaction took are lost.",
        "base = branch.compacted_metarange_id or head",
        "base = head",
    ),
    Written(
        "rebuilt-collections-are-not-held",
        _REPOSITORY,
        "A rebuilt store deletes blocks that a late file of the lost one names.",
        "HELD_UNTIL_US: Final = 4_102_444_800_000_000",
        "HELD_UNTIL_US: Final = 0",
    ),
    # --- names of tokens
    Written(
        "restored-tokens-keep-their-names",
        _RENAMING,
        "A cleaner of the former store drops a token that a restored record names.",
        "renames[name] = token.token_id[:_KEPT] + digest[: 32 - _KEPT]",
        "renames[name] = str(token.token_id)",
    ),
    Written(
        "only-staging-tokens-get-new-names",
        _RENAMING,
        "Sealed tokens of a restored branch keep their names.",
        "    tokens = [token_from(each) for each in (record.staging, *record.sealed)]\n",
        "    tokens = [token_from(record.staging)]\n",
    ),
    Written(
        "rows-keep-the-old-name",
        _RENAMING,
        "Restored records name tokens whose rows are under the old names.",
        "return replace(partition, name=f\"{partition.name.rpartition(':')[0]}:{new}\")",
        "return partition",
    ),
    Written(
        "restored-uploads-keep-the-old-names",
        _RENAMING,
        "A restored upload looks for its row in a token that is not there.",
        "return key, self._upload(RepositoryKeys(day[1]), value)",
        "return row",
    ),
    Written(
        "each-attempt-gives-other-names",
        _RENAMING,
        "A transfer that is repeated leaves rows under the names of the first attempt.",
        'f"{self.first_run_id}:{name}"',
        'f"{self.first_run_id}:{id(self)}:{name}"',
    ),
)
