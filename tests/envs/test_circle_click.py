"""The environment circle_click: how a click is read and checked, and the generated images."""

import json
import math
from random import Random

import pytest
from pydantic import ValidationError

from gymcli.envs.circle_click import CircleClick
from tests.envs.episodes import calls, played, row_of_file, says, scored, task_row

FIELDS = {
    "circles": [
        {"x": 30, "y": 40, "radius": 5, "color": "blue"},
        {"x": 100, "y": 200, "radius": 5, "color": "red"},
        {"x": 300, "y": 300, "radius": 5, "color": "red"},
    ],
    "target_color": "red",
}


def clicked(*messages, fields=FIELDS, tools=None):
    return scored(played(task_row("circle_click", fields, tools=tools), *messages))


def at(x, y):
    return calls(("click", json.dumps({"x": x, "y": y})))


@pytest.mark.parametrize(
    ("arguments", "reward", "answer", "reason"),
    [
        pytest.param('{"x": 100, "y": 200}', 1.0, "100, 200", "hit", id="centre"),
        pytest.param('{"x": 103, "y": 204}', 1.0, "103, 204", "hit", id="edge"),
        pytest.param('{"x": 104, "y": 204}', 0.0, "104, 204", "miss", id="outside"),
        pytest.param('{"x": 30, "y": 40}', 0.0, "30, 40", "miss", id="another colour"),
        pytest.param('{"x": 300, "y": 300}', 0.0, "300, 300", "miss", id="second of the colour"),
        pytest.param('{"x": "100", "y": " 2_00 "}', 1.0, "100, 200", "hit", id="digits in text"),
        pytest.param('{"x": "100.0", "y": 200}', 0.0, None, "no_answer", id="text, point"),
        pytest.param('{"x": 100.9, "y": 204.9}', 1.0, "100, 204", "hit", id="floats are cut"),
        pytest.param('{"x": 105.9, "y": 200}', 1.0, "105, 200", "hit", id="cut into the circle"),
        pytest.param('{"x": 100, "y": true}', 0.0, "100, 1", "miss", id="boolean"),
        pytest.param('{"x": 100, "y": 200, "z": 1}', 1.0, "100, 200", "hit", id="one too many"),
        pytest.param('{"x": 100}', 0.0, None, "no_answer", id="missing"),
        pytest.param('{"x": 100, "y": null}', 0.0, None, "no_answer", id="null"),
        pytest.param('{"x": [100], "y": 200}', 0.0, None, "no_answer", id="list"),
        pytest.param('{"x": 100, "y": "low"}', 0.0, None, "no_answer", id="word"),
        pytest.param("[100, 200]", 0.0, None, "no_answer", id="not an object"),
        pytest.param("", 0.0, None, "no_answer", id="nothing"),
        pytest.param('{"x": 100, "y": 200', 0.0, None, "no_answer", id="no JSON"),
        pytest.param('"{\\"x\\": 1}"', 0.0, None, "no_answer", id="encoded twice"),
        pytest.param('{"x": Infinity, "y": 200}', 0.0, None, "no_answer", id="infinite"),
        pytest.param('{"x": NaN, "y": 200}', 0.0, None, "no_answer", id="NaN"),
        pytest.param('{"x": 1e300, "y": 200}', 0.0, None, "no_answer", id="far off"),
        pytest.param('{"x": %s, "y": 2}' % ("9" * 9999), 0.0, None, "no_answer", id="digits"),
        pytest.param(
            '{"x": "%s", "y": 2}' % ("9" * 9999), 0.0, None, "no_answer", id="text digits"
        ),
        pytest.param("[" * 100_000, 0.0, None, "no_answer", id="nested"),
    ],
)
def test_verify_reads_the_coordinates_as_the_reference_does(arguments, reward, answer, reason):
    rollout = clicked(calls(("click", arguments)))

    assert (rollout.reward, rollout.answer) == (reward, answer)
    assert rollout.details["reason"] == reason


@pytest.mark.parametrize(
    ("message", "reward", "reason"),
    [
        pytest.param(says("100, 200"), 0.0, "no_answer", id="text"),
        pytest.param(says(""), 0.0, "no_answer", id="nothing"),
        pytest.param(calls(("clik", '{"x": 100, "y": 200}')), 0.0, "no_answer", id="another tool"),
        pytest.param(
            calls(("look", "{}"), ("click", '{"x": 100, "y": 200}')), 1.0, "hit", id="after another"
        ),
        pytest.param(
            calls(("click", '{"x": 1, "y": 1}'), ("click", '{"x": 100, "y": 200}')),
            0.0,
            "miss",
            id="the first counts",
        ),
        pytest.param(
            calls(("click", "{}"), ("click", '{"x": 100, "y": 200}')),
            0.0,
            "no_answer",
            id="the first counts, readable or not",
        ),
    ],
)
def test_verify_takes_the_first_click(message, reward, reason):
    rollout = clicked(message)

    assert (rollout.reward, rollout.details["reason"]) == (reward, reason)


@pytest.mark.parametrize("first", [at(1, 1), says("Let me see."), calls(("click", "{}"))])
def test_step_ends_the_episode_after_one_message(first):
    rollout = clicked(first, at(100, 200))

    assert rollout.stop_reason == "env_done"
    assert rollout.reward == 0.0


def test_click_is_checked_and_answered():
    rollout = clicked(calls(("click", '{"x": 100, "y": 200}'), ("click", '{"x": "1", "y": 2}')))

    assert json.loads(rollout.messages[2].text) == {"x": 100, "y": 200}
    assert "do not fit its schema" in rollout.messages[3].text
    assert rollout.tool_errors == {"wrong_arguments": 1}


def test_parse_task_refuses_a_row_without_a_circle_of_the_color():
    with pytest.raises(ValidationError, match="no circle has the \"target_color\" 'green'"):
        CircleClick.parse_task({**FIELDS, "target_color": "green"})


def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path):
    number = {"type": "integer", "description": "Pixels."}
    tool = {
        "type": "function",
        "name": "click",
        "description": "Point at a pixel.",
        "parameters": {
            "type": "object",
            "properties": {"x": number, "y": number},
            "required": ["x", "y"],
        },
        "strict": False,
    }
    parts = [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_text", "text": "Click it."},
    ]
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": parts}], "tools": [tool]},
        **FIELDS,
    }
    rollout = scored(played(row_of_file(tmp_path, "circle_click", row)))

    assert rollout.tools[0]["function"]["description"] == "Point at a pixel."
    assert (rollout.reward, rollout.answer) == (1.0, "100, 200")


def test_generate_gives_one_circle_of_the_color_and_small_ones_where_it_is_hard():
    made = list(CircleClick.generate(Random(4), 60))

    radii = {"easy": [], "medium": [], "hard": []}
    for row in made:
        task = CircleClick.parse_task(row)
        [target] = task.targets
        radii[row["difficulty"]].append(target.radius)
        assert all(
            math.dist((one.x, one.y), (target.x, target.y)) > one.radius + target.radius
            for one in task.circles
            if one is not target
        )
    assert min(radii["easy"]) > max(radii["medium"])
    assert min(radii["medium"]) > max(radii["hard"])
