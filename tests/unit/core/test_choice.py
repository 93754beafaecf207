"""Strategies for conflicts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tarn.core.errors import Reason, TarnError
from tarn.core.listing.choice import CHOICE_RULES_MAX, Choice, ChoiceRule, Side


def test_the_first_rule_that_matches_decides() -> None:
    choice = Choice(
        Side.DEST,
        (
            ChoiceRule("raw/keep/**", Side.REFUSE),
            ChoiceRule("raw/**", Side.SOURCE),
            ChoiceRule("**/keep/*", Side.REFUSE),
        ),
    )
    paths = pa.array(["raw/a", "raw/keep/a", "raw/x/keep/a", "x", "x/keep/a"])
    assert choice.sides(paths).tolist() == [
        Side.SOURCE,
        Side.REFUSE,
        Side.SOURCE,
        Side.DEST,
        Side.REFUSE,
    ]


def test_without_rules_the_default_decides() -> None:
    assert Choice(Side.SOURCE).sides(pa.array(["a", "b"])).tolist() == [Side.SOURCE] * 2
    assert Choice().sides(pa.array(["a"])).tolist() == [Side.REFUSE]


def test_too_many_rules_and_wrong_patterns_are_refused() -> None:
    rules = (ChoiceRule("*", Side.SOURCE),) * CHOICE_RULES_MAX
    Choice(rules=rules)
    for wrong in ((*rules, rules[0]), (ChoiceRule("", Side.SOURCE),)):
        with pytest.raises(TarnError) as raised:
            Choice(rules=wrong)
        assert raised.value.reason is Reason.INVALID_ARGUMENT
