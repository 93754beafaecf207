"""The text of a story: what is the author's, and what a replay writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stories.player import play
from tests.stories.script import Script, StoryError

HEAD = 'A story\n\nWithout the guard g, "b: get x" goes wrong.\n'
STORY = f"{HEAD}\nProse.\n\n> a: put x = 1\n    old\n> b: get x\n> b: list\n\n==== Without g\n> a: old\n"


def test_a_replay_keeps_the_prose_and_writes_the_rest() -> None:
    script = Script.parse(STORY)
    told = script.tell(
        [["landed"], ["x = 1"], ["x"]], [("Without g", [["landed"], ["no x"], ["-"]])]
    )
    assert (
        told
        == (
            f"{HEAD}\nProse.\n\n> a: put x = 1\n    landed\n> b: get x\n    x = 1\n> b: list\n    x\n"
            "\n==== Without g\n> b: get x\n    no x\n"  # what comes after the command that goes wrong is not told
        )
    )
    assert Script.parse(told) == script


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A story\n\n> a: put x = 1\n", "names no guard"),
        (f"{HEAD}\n> a: put x = 1\n", "exactly one command"),
        (f"{HEAD}\n> b: get x\n> b: get x\n", "exactly one command"),
    ],
)
def test_a_story_says_where_it_goes_wrong(text: str, why: str) -> None:
    with pytest.raises(StoryError, match=why):
        Script.parse(text)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("a: paint x", "no such call"),
        ("the moon rises", "no such command"),
        ("a: put x = 1, stops before its lunch", "no such fault"),
        ("a: put x = 1, its row is late", "cannot be late"),
    ],
)
async def test_a_command_that_means_nothing_is_an_error(
    command: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(StoryError, match=why):
        await play(Script([f"> {command}"], []), tmp_path)


async def test_an_actor_that_stands_still_makes_no_other_call(tmp_path: Path) -> None:
    commands = ["> a: put x = 1, stops before its row", "> a: get x"]
    with pytest.raises(StoryError, match="a stands still"):
        await play(Script(commands, []), tmp_path)


async def test_a_step_to_which_an_actor_does_not_come_is_told(tmp_path: Path) -> None:
    happened = await play(Script(["> a: put x = 1, stops before its last step"], []), tmp_path)
    landed = "x = 1 lands in T1"
    assert happened == [[landed, "a did not come to its last step", "a: acknowledged"]]


async def test_a_plain_row_that_is_lost_is_no_refusal(tmp_path: Path) -> None:
    commands = ["> a: put x = 1, its row is lost", "> a: get x"]
    lost = ["this is lost: x = 1 lands in T1", "a: the outcome is unknown (503)"]
    assert await play(Script(commands, []), tmp_path) == [lost, ["a: there is no x"]]
