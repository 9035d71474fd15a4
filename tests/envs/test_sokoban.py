"""The environment sokoban: the rules, the solver, rewards, replays, and the rooms."""

import itertools
import math
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gymcli.environment.registry import shipped_tasks
from gymcli.envs.sokoban import ACTIONS, Puzzle, Room, Sokoban, action_of, make_room, solve
from gymcli.errors import ReplayDivergedError, VerifierError
from gymcli.types import Message
from tests.envs.episodes import calls, cut, played, row_of_file, says, scored, task_row

CORRIDOR = "######\n#@$_.#\n######"
TWO = "#######\n#@$_.##\n##$#__#\n#_.___#\n#######"


def act(*actions):
    return [says(f"<action>{action}</action>") for action in actions]


def board_row(board, **fields):
    return task_row("sokoban", {"board": board, **fields})


def walked(board, *actions):
    room = Room.parse(board)
    for action in actions:
        room = room.after(action)
    return room.text


def shipped_rows():
    lines = shipped_tasks("sokoban").read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


@pytest.mark.parametrize(
    ("board", "action", "after"),
    [
        pytest.param("@_$.", "right", "_@$.", id="walk"),
        pytest.param("@$_.", "right", "_@$.", id="push"),
        pytest.param("@$.", "right", "_@*", id="push onto a target"),
        pytest.param("@*_$.", "right", "_+$$.", id="push off a target"),
        pytest.param("+$", "right", "+$", id="box against the edge"),
        pytest.param("@$#.", "right", "@$#.", id="box against a wall"),
        pytest.param("@$*_.", "right", "@$*_.", id="box against a box"),
        pytest.param("@#$.", "right", "@#$.", id="wall"),
        pytest.param("@_$.", "up", "@_$.", id="out of the room"),
        pytest.param("_@$.", "left", "@_$.", id="away from a box, which stays"),
        pytest.param("+_$", "right", ".@$", id="off a target"),
        pytest.param("@\n$\n.", "down", "_\n@\n*", id="down"),
        pytest.param(".\n$\n@", "up", "*\n@\n_", id="up"),
    ],
)
def test_after_walks_and_pushes(board, action, after):
    assert walked(board, action) == after


def test_parse_reads_other_signs_for_floor_and_ragged_rows():
    room = Room.parse("\n####\n#@-\n# $.\n")

    assert room.text == "####\n#@_#\n#_$."


@pytest.mark.parametrize(
    ("board", "reason"),
    [
        ("", "one player, this has 0"),
        ("#_$.#", "one player, this has 0"),
        ("@@$.", "one player, this has 2"),
        ("@$", "as many boxes as targets"),
        ("@_", "as many boxes as targets"),
        ("@*", "stands off"),
        ("@$.x", "no sign 'x'"),
    ],
)
def test_parse_refuses_what_is_no_room(board, reason):
    with pytest.raises(ValueError, match=reason):
        Room.parse(board)
    with pytest.raises(ValidationError, match="board"):
        Sokoban.parse_task({"board": board})


def test_solve_finds_a_shortest_way():
    assert solve(Room.parse(CORRIDOR)) == ["right", "right"]
    assert solve(Room.parse("_____\n_$_._\n@____")) == ["up", "right", "right"]


def test_solve_knows_when_there_is_none():
    assert solve(Room.parse("$__\n@_.\n___")) is None


def test_solve_gives_up_in_large_rooms():
    room = make_room(Random(3), 12, 12, 4)

    assert solve(room, max_states=50) is None


@pytest.mark.parametrize("seed", range(3))
def test_choices_are_the_actions(seed):
    """A guesser that repeats one of them makes readable actions only."""
    row = task_row("sokoban", {"seed": seed, "board": None})
    for choice in Sokoban.choices(Puzzle()):
        assert scored(played(row, says(choice), max_turns=2)).metrics["unreadable_actions"] == 0


def all_ways(room, longest):
    """Search by brute force: try every sequence of actions."""
    for length in range(longest + 1):
        for actions in itertools.product(ACTIONS, repeat=length):
            state = room
            for action in actions:
                state = state.after(action)
            if state.is_solved():
                return length
    return None


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_solve_is_as_short_as_trying_everything(seed):
    room = make_room(Random(seed), 5, 5, 1)
    solution = solve(room)

    assert solution is not None
    assert walked(room.text, *solution).count("*") == 1
    if len(solution) <= 5:
        assert all_ways(room, 5) == len(solution)
    else:
        assert all_ways(room, 4) is None


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(5, 8), st.integers(5, 8), st.integers(1, 2))
def test_make_room_gives_rooms_that_can_be_solved(seed, height, width, num_boxes):
    room = make_room(Random(seed), height, width, num_boxes)
    lines = room.text.splitlines()

    assert (len(lines), {len(line) for line in lines}) == (height, {width})
    assert set(lines[0] + lines[-1] + "".join(line[0] + line[-1] for line in lines)) == {"#"}
    assert (len(room.boxes), room.num_on_target) == (num_boxes, 0)
    assert Room.parse(room.text) == room
    assert make_room(Random(seed), height, width, num_boxes) == room
    if height * width <= 36:
        assert solve(room)


def test_make_room_says_that_it_found_none():
    with pytest.raises(ValueError, match="no room of 4 x 4 cells with 1 boxes"):
        make_room(Random(0), 4, 4, 1)


def test_make_room_has_boxes_for_large_rooms():
    assert len(make_room(Random(0), 20, 20, 8).boxes) == 8


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>up</action>", "up"),
        ("<ACTION> Left </action>", "left"),
        ("<action>1</action>", "up"),
        ("Not up: <ACTION>Left</ACTION>", "left"),
        ("Not up: <Action>LEFT</Action>", "left"),
        ("<action>2</action>", "down"),
        ("<action>3</action>", "left"),
        ("<action>4</action>", "right"),
        ("<action>up</action><action>down</action>", "up"),
        ("Not left: <action>right</action>", "right"),
        ("I go DOWN, then left.", "down"),
        ("2", "down"),
        ("Step 7: 3", "left"),
        ("<action>jump</action> right", "right"),
        ("the upper box, leftmost, 12, right_hand", None),
        ("<action>5</action>", None),
        pytest.param("<action>r\u0130ght</action> R\u0131GHT", None, id="dotted and dotless i"),
        pytest.param("éup, upé", None, id="within a word of other letters"),
        ("", None),
    ],
)
def test_action_of_takes_the_first_tag_else_the_first_bare_word(text, action):
    assert action_of(text) == action


def test_action_of_reads_long_texts():
    """A single pass; anything slower would not finish."""
    for piece in ("<action>", "<action>up", "<action> ", " ", "u", "up_"):
        assert action_of(piece * 300_000) in (None, "up")


@pytest.mark.parametrize(
    ("board", "actions", "rewards"),
    [
        pytest.param(CORRIDOR, ["right", "right"], [-0.1, 10.9], id="solved"),
        pytest.param(CORRIDOR, ["left", "up"], [-0.1, -0.1], id="against the wall"),
        pytest.param(CORRIDOR, ["right", "left"], [-0.1, -0.1], id="back and forth"),
        pytest.param(
            "#########\n#_@$._$.#\n#########",
            ["right", "right", "right"],
            [0.9, -1.1, -0.1],
            id="onto a target, off it, and stuck",
        ),
        pytest.param("#######\n#@$._.#\n#_$___#", ["right"], [0.9], id="one of two"),
    ],
)
def test_step_rewards_as_gym_sokoban_does(board, actions, rewards):
    rollout = scored(played(board_row(board), *act(*actions), max_turns=len(actions)))

    assert rollout.step_rewards == pytest.approx(rewards)
    assert rollout.reward == math.fsum(rollout.step_rewards)


def test_step_shows_the_room_and_says_what_happened():
    board = "#########\n#_@$_._$.#\n#########"
    rollout = played(board_row(board), *act("left", "left", "right", "right"), max_turns=4)
    texts = [m.text for m in rollout.responses if m.role == "user"]

    assert [text.split("\n\n")[0] for text in texts] == [
        "You moved left. Boxes on targets: 0 of 2.",
        "Nothing moved: the way left is blocked.",
        "You moved right. Boxes on targets: 0 of 2.",
        "You pushed a box right. Boxes on targets: 0 of 2.",
    ]
    assert texts[3].endswith(walked(board, "left", "left", "right", "right"))


def test_step_ends_a_solved_room():
    rollout = scored(played(board_row(CORRIDOR), *act("right", "right", "right")))

    assert rollout.stop_reason == "env_done"
    assert rollout.last_text == "<action>right</action>"
    assert rollout.messages[-1].text.startswith("Solved")
    assert rollout.details == {"reason": "solved", "board": "######\n#__@*#\n######"}
    assert rollout.metrics == {
        "solved": 1.0,
        "boxes_on_target": 1.0,
        "moves": 2.0,
        "unreadable_actions": 0.0,
        "turns_given_away": 0.0,
    }


async def test_step_answers_nothing_after_the_end():
    environment = Sokoban(Puzzle(board="@$."))
    await environment.setup()
    assert [await environment.step(message) for message in act("right", "left")][1] == (
        [],
        None,
        "env_done",
    )


def test_step_asks_again_where_there_is_no_action():
    rollout = scored(played(board_row(CORRIDOR), says("Hm."), *act("right", "right")))
    answer = rollout.responses[1]

    assert "<action>up</action>" in answer.text
    assert answer.text.endswith(CORRIDOR)
    assert rollout.step_rewards == pytest.approx([-0.1, -0.1, 10.9])
    assert rollout.metrics["unreadable_actions"] == 1.0


def test_step_refuses_tool_calls_and_still_reads_the_text():
    call = calls(("right", "{}"))
    call.content = "right"
    rollout = scored(played(board_row(CORRIDOR), call, *act("right")))

    assert [message.role for message in rollout.responses[:3]] == ["assistant", "tool", "user"]
    assert rollout.tool_errors == {"unknown_tool": 1}
    assert rollout.metrics["solved"] == 1.0


def test_episode_ends_after_20_turns_with_the_rewards_it_has():
    rollout = scored(played(board_row(CORRIDOR), *act("left")))

    assert (rollout.stop_reason, len(rollout.step_rewards)) == ("max_turns", 20)
    assert rollout.reward == pytest.approx(-2.0)
    assert rollout.details["reason"] == "unsolved"


def test_verify_says_where_no_action_could_be_read():
    silent = scored(played(board_row(CORRIDOR), says("Hm.")))
    moved = scored(played(board_row(CORRIDOR), *act("left"), says("Hm.")))

    assert (silent.details["reason"], moved.details["reason"]) == ("no_answer", "unsolved")


@pytest.mark.parametrize(
    ("messages", "stop_reason", "reward", "num_left"),
    [
        pytest.param([cut(says("Hm, let me see"))], "length", -2.0, 20, id="at once"),
        pytest.param([*act("left"), cut(says("right"))], "length", -2.0, 19, id="after a move"),
        pytest.param([Message(role="assistant", refusal="No.")], "refusal", -2.0, 20, id="refusal"),
        pytest.param(
            [Message(role="assistant", reasoning="Hm.")], "no_answer", -2.0, 20, id="only thought"
        ),
    ],
)
def test_verify_charges_the_turns_that_are_given_away(messages, stop_reason, reward, num_left):
    """Running into a token limit must not pay more than 20 useless moves."""
    rollout = scored(played(board_row(CORRIDOR), *messages))

    assert rollout.stop_reason == stop_reason
    assert rollout.reward == pytest.approx(reward)
    assert rollout.metrics["turns_given_away"] == num_left


def test_verify_charges_no_turns_after_the_limit():
    rollout = scored(played(board_row(CORRIDOR), *act("left"), max_turns=3))

    assert (rollout.stop_reason, rollout.reward) == ("max_turns", pytest.approx(-0.3))
    longer = played(board_row(CORRIDOR), *act("left") * 25, cut(says("")), max_turns=40)
    assert scored(longer).reward == pytest.approx(-2.5)


def test_pass_threshold_lies_between_solved_and_unsolved_rooms():
    """Solved with the 20th move, against seven of eight boxes on targets after seven moves."""
    last = scored(played(board_row(CORRIDOR), *act(*["left"] * 18, "right", "right")))

    assert last.metrics["solved"] == 1.0
    assert last.reward == pytest.approx(9.0)
    assert last.reward >= Sokoban.pass_threshold == 6.5 > 7 * (1 - 0.1)


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(st.text(max_size=30), st.sampled_from([*ACTIONS, "<action>4</action>"])),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 100),
)
def test_any_text_can_be_played_and_scored(texts, seed):
    """Nothing raises; the replay yields the recorded rewards, and they add up to the reward."""
    row = task_row("sokoban", {"seed": seed, "dim_room": [5, 6], "num_boxes": 1})
    rollout = scored(played(row, *map(says, texts), max_turns=8))

    assert rollout.reward == math.fsum(rollout.step_rewards)
    assert all(reward is not None for reward in rollout.step_rewards)
    assert rollout.metrics["solved"] == float(rollout.stop_reason == "env_done")
    assert (rollout.reward >= Sokoban.pass_threshold) == bool(rollout.metrics["solved"])


@pytest.mark.parametrize("position", [1, 3])
def test_verify_leaves_a_doctored_record_unscored(position):
    rollout = played(board_row(CORRIDOR), *act("left", "right"), max_turns=2)
    messages = list(rollout.messages)
    messages[position] = Message(role="user", content="Solved: every box stands on a target.")

    with pytest.raises(ReplayDivergedError):
        scored(msgspec.structs.replace(rollout, messages=messages))


def test_verify_leaves_a_record_with_another_action_unscored():
    rollout = played(board_row(CORRIDOR), *act("left", "left"), max_turns=2)
    messages = [*rollout.messages]
    messages[2], messages[4] = act("right", "right")

    with pytest.raises(ReplayDivergedError):
        scored(msgspec.structs.replace(rollout, messages=messages))


def test_verify_knows_the_room_of_another_programs_record_only_by_its_board():
    with_board = played(board_row(CORRIDOR), *act("right", "right"))
    from_seed = played(task_row("sokoban", {"seed": 1}), *act("right"))

    assert scored(msgspec.structs.replace(with_board, env_version="")).reward > 10
    with pytest.raises(VerifierError, match="board"):
        scored(msgspec.structs.replace(from_seed, env_version=""))


def test_row_of_the_reference_gets_a_room_of_its_seed(tmp_path):
    row = row_of_file(
        tmp_path,
        "sokoban",
        {
            "level_id": 1,
            "seed": 84810,
            "dim_room": [5, 5],
            "num_boxes": 1,
            "responses_create_params": {"input": [{"role": "user", "content": "Solve it."}]},
        },
    )
    rollout = scored(played(row))
    room = make_room(Random(84810), 5, 5, 1)

    assert rollout.messages[1].text.endswith(room.text)
    assert "# wall" in rollout.messages[1].text
    assert rollout.num_prompt_messages == 2
    assert rollout.reward == pytest.approx(11 - 0.1 * len(solve(room)))


def test_row_without_a_seed_gets_a_room_of_the_attempts_seed():
    rollout = played(task_row("sokoban", {}), *act("up"))

    assert rollout.messages[1].text.endswith(make_room(Random(rollout.seed), 6, 6, 1).text)
    assert scored(rollout).reward == pytest.approx(math.fsum(rollout.step_rewards))


def test_tasks_show_rooms_of_their_own_that_20_moves_solve():
    rows = shipped_rows()
    lengths = {"easy": [], "medium": [], "hard": []}
    for row in rows:
        assert row["messages"][1]["content"] == row["board"]
        assert row["board"].count("$") == row["num_boxes"]
        lengths[row["difficulty"]].append(len(solve(Room.parse(row["board"]))))

    assert len({row["board"] for row in rows}) == len(rows)
    bounds = [(min(found), max(found)) for found in lengths.values()]
    assert bounds == [(4, 7), (8, 13), (12, 18)]
    assert Sokoban.max_turns == 20


def test_oracle_plays_a_shortest_solution():
    rollout = scored(played(board_row(TWO)))
    solution = solve(Room.parse(TWO))

    assert rollout.output_text == "".join(message.text for message in act(*solution))
    assert rollout.reward == pytest.approx(12 - 0.1 * len(solution))


async def test_oracle_plans_anew_where_others_have_moved():
    environment = Sokoban(Puzzle(board="______\n_@$_._"))
    await environment.setup()
    first = await environment.oracle(environment.rollout)
    await environment.step(says("up"))
    second = await environment.oracle(environment.rollout)
    assert (first.text, second.text) == ("<action>right</action>", "<action>down</action>")


async def test_oracle_has_nothing_to_say_in_a_room_without_a_solution():
    environment = Sokoban(Puzzle(board="$__\n@_.\n___"))
    await environment.setup()
    assert await environment.oracle(environment.rollout) is None
