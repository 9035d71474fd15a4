"""The environment calendar: events and their comparison, the scheduler, and the tasks."""

import json
from itertools import pairwise, permutations
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymcli.envs.calendar import (
    MAX_SCHEDULED,
    Calendar,
    CalendarTask,
    ExpectedEvent,
    examine,
    first_list,
    minutes_of,
    schedule,
)
from gymcli.rollout.episode import EpisodeFailedError
from gymcli.types import Message
from tests.envs.episodes import answered, calls, played, row_of_file, says, scored, task_row


def wish(constraint=None, duration=60, first="10:00", last="16:00"):
    return {"duration": duration, "constraint": constraint, "min_time": first, "max_time": last}


def expecting(*constraints):
    """Return a task with a one-hour event for each constraint."""
    return {"exp_cal_state": {str(n): wish(text) for n, text in enumerate(constraints)}}


def event(number, start, duration=60, **fields):
    return {"event_id": number, "start_time": start, "duration": duration, **fields}


def score(text, *constraints):
    return scored(answered("calendar", expecting(*constraints), text))


def reason(events, *constraints):
    rollout = score(json.dumps(events), *constraints)
    assert rollout.reward == float(rollout.details["reason"] == "correct")
    return rollout.details["reason"]


@pytest.mark.parametrize(
    ("constraint", "start", "found"),
    [
        pytest.param(None, "10:00", "correct", id="begins with the day"),
        pytest.param(None, "15:00", "correct", id="ends with the day"),
        pytest.param(None, "09:59", "before_min_time", id="before the day"),
        pytest.param(None, "15:01", "after_max_time", id="after the day"),
        pytest.param("before 1pm", "12:00", "correct", id="before: ends right then"),
        pytest.param("before 1pm", "12:01", "constraint", id="before: ends later"),
        pytest.param("after 1:45pm", "13:45", "correct", id="after: starts right then"),
        pytest.param("after 1:45pm", "13:44", "constraint", id="after: starts earlier"),
        pytest.param("between 11am and 1pm", "11:00", "correct", id="between: first moment"),
        pytest.param("between 11am and 1pm", "12:00", "correct", id="between: last moment"),
        pytest.param("between 11am and 1pm", "10:59", "constraint", id="between: too early"),
        pytest.param("between 11am and 1pm", "12:01", "constraint", id="between: too late"),
        pytest.param("at 12pm", "12:00", "correct", id="at: noon"),
        pytest.param("at 12pm", "12:01", "constraint", id="at: a minute later"),
        pytest.param("at 14:15", "14:15", "correct", id="at: 24 hours"),
        pytest.param("", "10:00", "correct", id="empty constraint is none"),
    ],
)
def test_verify_keeps_events_to_hours_and_constraint(constraint, start, found):
    assert reason([event(0, start)], constraint) == found


@pytest.mark.parametrize(
    ("events", "found"),
    [
        pytest.param([event(0, "10:00"), event(1, "11:00")], "correct", id="one after another"),
        pytest.param([event(1, "11:00"), event(0, "10:00")], "correct", id="any order"),
        pytest.param([event("0", "10:00"), event("1", "11:00")], "correct", id="ids as texts"),
        pytest.param([event(0, "10:00"), event(1, "10:59")], "overlap", id="overlap of a minute"),
        pytest.param([event(0, "10:00"), event(1, "10:00")], "overlap", id="at the same time"),
        pytest.param([event(0, "10:00")], "wrong_count", id="one is missing"),
        pytest.param(
            [event(0, "10:00"), event(1, "11:00"), event(2, "12:00")], "wrong_count", id="too many"
        ),
        pytest.param([event(0, "10:00"), event(2, "11:00")], "missing_event", id="another id"),
        pytest.param(
            [event(0, "10:00"), event(0, "11:00")], "repeated_id", id="an id twice, at two times"
        ),
        pytest.param(
            [event(0, "10:00"), event(1, "11:00"), event(1, "11:00")],
            "wrong_count",
            id="an event twice, which the reference lets pass",
        ),
        pytest.param(
            [event(0, "10:00"), event(1, "11:00", 59)], "wrong_duration", id="a minute short"
        ),
        pytest.param(
            [event(0, "10:00"), event(1, "11:00", 60.0)], "correct", id="duration as 60.0"
        ),
        pytest.param(
            [event(0, "10:00"), event(1, "11:00", "60")], "malformed_event", id="duration as text"
        ),
        pytest.param(
            [event(0, "10:00"), event(1, "11:00", float("nan"))], "wrong_duration", id="NaN"
        ),
        pytest.param(
            [event(0, "10:00"), event(1, "11:00", 10**400)], "wrong_duration", id="huge duration"
        ),
        pytest.param([event(0, "10:00"), event(1, 660)], "malformed_event", id="time as number"),
        pytest.param([event(0, "10:00"), event(1, "noon")], "malformed_event", id="time in words"),
        pytest.param(
            [event(0, "10:00"), {"event_id": 1, "start_time": "11:00"}],
            "malformed_event",
            id="no duration",
        ),
        pytest.param([event(0, "10:00"), event([], "11:00")], "malformed_event", id="id is a list"),
        pytest.param([event(0, "10:00"), "lunch"], "malformed_event", id="text in the list"),
    ],
)
def test_verify_compares_events(events, found):
    assert reason(events, None, None) == found


def test_verify_lets_an_event_of_no_duration_start_with_another():
    task = {"exp_cal_state": {"0": wish(), "1": wish(duration=0)}}
    events = [event(0, "10:00"), event(1, "10:00", 0)]

    for listed in (events, events[::-1]):
        assert scored(answered("calendar", task, json.dumps(listed))).reward == 1.0


def test_verify_compares_the_reference_order_of_faults():
    """The count is checked first, then overlaps, then each event."""
    both = [event(0, "09:00"), event(1, "09:30", 5)]

    assert reason(both[:1], None, None) == "wrong_count"
    assert reason(both, None, None) == "overlap"
    assert reason([event(0, "09:00"), event(1, "11:00", 5)], None, None) == "before_min_time"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("Sure: {} Bye.", "correct", id="words around the list"),
        pytest.param("```json\n{}\n```", "correct", id="code fence"),
        pytest.param('{{"calendar": {}}}', "correct", id="list in an object"),
        pytest.param("[{}]", "correct", id="list in a list"),
        pytest.param("As asked [see 1] and [2]: {}", "correct", id="remarks in brackets"),
        pytest.param("[] {}", "correct", id="an empty list first"),
        pytest.param('[{{"event_id": 0}}, no, again: {}', "correct", id="a list not closed first"),
        pytest.param("It's 5\" [not {}", "correct", id="quotes and a bracket in words"),
        pytest.param("I begin with `[{{`: {}", "correct", id="braces not closed first"),
        pytest.param("[{{}}] {}", "malformed_event", id="the first list decides"),
        pytest.param("[{{0}}] {}", "no_answer", id="the first list is no JSON"),
        pytest.param("[{{[}}] {}", "no_answer", id="a bracket in the first one's braces"),
        pytest.param("<think>Hm.</think> {}", "think_tag", id="think tag"),
        pytest.param("Done.", "no_answer", id="no list"),
        pytest.param("[]", "no_answer", id="empty list"),
        pytest.param("[1, 2]", "no_answer", id="list without an object"),
        pytest.param('{{"event_id": 0}}', "no_answer", id="object without a list"),
        pytest.param(" \n", "no_answer", id="blanks"),
    ],
)
def test_verify_finds_the_list(text, found):
    rollout = score(text.format(json.dumps([event(0, "10:00")])), None)

    assert rollout.details["reason"] == found
    assert rollout.reward == float(found == "correct")


@pytest.mark.parametrize(
    "name", ["a]b", "}", "{", "[", "]}, {", 'say "}]"', "\\", '\\"]', "tab\tand\nline"]
)
def test_verify_reads_names_with_brackets(name):
    """The reference's pattern stops at the first closing bracket."""
    assert reason([event(0, "10:00", event_name=name, guests=[{"n": [name]}])], None) == "correct"


NAMES = st.text(alphabet='[]{}"\\ a\n', max_size=8)


@given(
    listed=st.lists(st.dictionaries(NAMES, NAMES | st.lists(NAMES)), min_size=1),
    before=st.text(alphabet="a ]}\"\\'", max_size=9),
)
def test_first_list_finds_what_json_reads(listed, before):
    assert json.loads(first_list(f"{before}{json.dumps(listed)} [{{}}]")) == listed


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" + "{a} " * 50_000, id="objects, not closed"),
        pytest.param("[" * 200_000, id="brackets"),
        pytest.param("[{" * 100_000, id="lists and objects"),
        pytest.param('[{"a":' * 33_000 + "1" + "}]" * 33_000, id="deeply nested JSON"),
        pytest.param("[{}" + "[" * 100_000 + "]" * 100_000, id="nested lists after an object"),
        pytest.param('[{"' + "a" * 200_000, id="string not closed"),
        pytest.param('[{"' + '\\"' * 100_000, id="string of escapes not closed"),
        pytest.param('[{"a' * 50_000, id="many strings"),
        pytest.param('[{"a":' + "1" * 10_000 + "}]", id="number of 10,000 digits"),
        pytest.param(
            '[{"event_id":0,"duration":60,"start_time":"1' + " " * 200_000 + 'x"}]', id="time"
        ),
        pytest.param(
            '[{"event_id":0,"duration":60,"start_time":"' + "1" * 10_000 + '"}]', id="hour"
        ),
    ],
)
def test_verify_takes_hostile_text_for_a_wrong_answer(text):
    """A search that rereads the text from every bracket would not finish."""
    rollout = score(text, None)

    assert rollout.reward == 0.0
    assert rollout.details["reason"] in ("no_answer", "malformed_event")


def test_verify_takes_any_text_where_nothing_is_expected():
    assert score("Good morning!").details["reason"] == "nothing_expected"
    assert score("Good morning!").reward == 1.0
    assert score("<think>Hm.</think> Good morning!").reward == 0.0
    assert score("").reward == 0.0


def test_verify_reads_the_last_message_only():
    right = json.dumps([event(0, "10:00")])
    task = expecting(None)
    silent = Message(role="assistant", reasoning=right)
    calling = calls(("show", "{}"))
    calling.content = right

    assert scored(answered("calendar", task, "Let me see.", right)).reward == 1.0
    assert scored(answered("calendar", task, right, "Done.")).reward == 0.0
    for last in (silent, calling, Message(role="tool", content=right)):
        rollout = answered("calendar", task, right)
        rollout.messages.append(last)
        assert scored(rollout).details["reason"] == "no_answer"


def test_verify_says_which_events_are_wrong():
    events = [event(0, "10:00"), event(1, "11:00", 30), event(2, "12:00")]
    rollout = score(json.dumps(events), None, None, "after 2pm", None)

    assert rollout.details["reason"] == "wrong_count"
    assert rollout.details["faults"] == {
        "1": "wrong_duration",
        "2": "constraint",
        "3": "missing_event",
    }
    assert rollout.metrics == {"events_kept": 0.25}
    assert rollout.answer is None
    assert score(json.dumps(events), None, None, None).answer == "0 600, 1 660, 2 720"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        pytest.param("10am", 600, id="full hour in the morning"),
        pytest.param("1:45pm", 825, id="afternoon"),
        pytest.param("12pm", 720, id="noon"),
        pytest.param("12:30pm", 750, id="after noon"),
        pytest.param("12am", 0, id="midnight"),
        pytest.param("12:05am", 5, id="after midnight"),
        pytest.param("9:05", 545, id="24 hours without a zero"),
        pytest.param("16:00", 960, id="24 hours"),
        pytest.param(" 10:30 am ", 630, id="spaces"),
        pytest.param("10:75", 675, id="minutes count on, known looseness"),
        pytest.param("10:30 AM", None, id="capitals"),
        pytest.param("10", None, id="no minutes"),
        pytest.param("10:00:00", None, id="seconds"),
        pytest.param("-1:00", None, id="minus"),
        pytest.param("+9:00", None, id="plus, which the reference lets pass"),
        pytest.param("10 : 30", None, id="blanks within, which the reference lets pass"),
        pytest.param("", None, id="empty"),
    ],
)
def test_minutes_of(text, minutes):
    assert minutes_of(text) == minutes


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"constraint": "before noon"}, id="time in words"),
        pytest.param({"constraint": "after 10:30 AM"}, id="time in capitals"),
        pytest.param({"constraint": "between 10am"}, id="between one time"),
        pytest.param({"constraint": "at 10am and 11am"}, id="at two times"),
        pytest.param({"constraint": "around 10am"}, id="unknown form"),
        pytest.param({"min_time": "dawn"}, id="unreadable min_time"),
        pytest.param({"max_time": ""}, id="empty max_time"),
        pytest.param({"duration": "long"}, id="unreadable duration"),
    ],
)
def test_parse_task_refuses_what_cannot_be_read(fields):
    with pytest.raises(ValidationError):
        CalendarTask.model_validate({"exp_cal_state": {"0": {**wish(), **fields}}})


def hours(*wishes):
    return [ExpectedEvent.model_validate(one) for one in wishes]


def keeps(events, starts):
    """Return whether a schedule meets all constraints, computed independently of the scoring."""
    in_order = sorted(zip(starts, events, strict=True), key=lambda pair: pair[0])
    apart = all(a + e.duration <= b for (a, e), (b, _) in pairwise(in_order))
    spans = [one.starts for one in events]
    return apart and all(s.earliest <= n <= s.latest for s, n in zip(spans, starts, strict=True))


def test_schedule_finds_one_where_any_order_has_one():
    """Compared with a search through all orders."""
    rng = Random(3)
    outcomes = set()
    for _ in range(150):
        wishes = [
            wish(
                rng.choice(["", "before {}", "after {}", "at {}"]).format(
                    f"{rng.randint(10, 15)}:30"
                ),
                duration=rng.choice([30, 60, 90]),
            )
            for _ in range(4)
        ]
        events = hours(*wishes)
        found = schedule(events)
        possible = any(
            keeps([events[n] for n in o], packed(events, o)) for o in permutations(range(4))
        )
        assert (found is not None) == possible
        assert found is None or keeps(events, found)
        outcomes.add(possible)
    assert outcomes == {True, False}


def packed(events, order):
    """Schedule the events in this order, each as early as its constraint allows."""
    end, starts = 0, []
    for number in order:
        starts.append(max(end, events[number].starts.earliest))
        end = starts[-1] + events[number].duration
    return starts


def test_schedule_gives_up_beyond_its_limit():
    loose = wish(duration=1)

    assert schedule(hours(*[loose] * MAX_SCHEDULED)) is not None
    assert schedule(hours(*[loose] * (MAX_SCHEDULED + 1))) is None
    assert schedule([]) == []


def test_oracle_gives_none_where_there_is_no_calendar():
    row = task_row("calendar", expecting("at 10am", "at 10:30am"))

    with pytest.raises(EpisodeFailedError, match="no oracle for this task"):
        played(row)


def test_oracle_answers_where_nothing_is_expected():
    assert scored(played(task_row("calendar", expecting()))).reward == 1.0


def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path):
    shown = json.dumps([event(0, "10:00", 45, event_name="Walk")])
    talk = [
        ("system", "Keep my calendar between 10am and 4pm."),
        ("user", "Add a walk of 45 minutes (event id: 0)."),
        ("assistant", shown),
        ("user", "It should be over by 1:45\u202fpm. What a day!"),
    ]
    state = {"event_id": 0, **wish("before 1:45pm", 45)}
    fields = {
        "responses_create_params": {
            "input": [{"role": role, "content": text} for role, text in talk],
            "tools": [],
        },
        "exp_cal_state": {"0": state},
    }
    row = row_of_file(tmp_path, "calendar", fields)

    assert [message.role for message in row.messages] == [role for role, _ in talk]
    assert scored(played(row, says(f"Here it is:\n\n{shown}"))).reward == 1.0
    assert scored(played(row, says("Lovely."))).reward == 0.0
    assert scored(played(row)).reward == 1.0


@pytest.fixture(scope="module")
def rows():
    return list(Calendar.generate(Random(7), 90))


@pytest.mark.parametrize("index", range(9))
def test_tasks_show_right_calendars_till_the_last_turn(index, rows):
    """Every constraint is parsed from a user message and holds in each calendar that follows."""
    row = rows[index]
    wishes = {}
    for message in row["messages"]:
        if message["role"] == "user" and "event id" in message["content"]:
            number, found = read_wish(message["content"])
            wishes[number] = {**row["exp_cal_state"][number], "constraint": found}
        elif message["role"] == "assistant":
            rollout = answered("calendar", {"exp_cal_state": wishes}, message["content"])
            assert scored(rollout).reward == 1.0
    assert {n: w["constraint"] for n, w in wishes.items()} == {
        n: w["constraint"] for n, w in row["exp_cal_state"].items()
    }


def read_wish(text):
    """Parse an event's number and its constraint from a user message."""
    number, rest = text.split("(event id: ")[1].split(")", 1)
    for words, form in {
        "be over by ": "before {}",
        "start and end between ": "between {}",
        " sharp": "at {}",
        " or later": "after {}",
    }.items():
        if words in rest:
            times = rest.rstrip(".").removesuffix(words).split(words)[-1]
            return number, form.format(times.split("start at ")[-1])
    return number, None


def test_tasks_need_another_calendar_than_the_last_one(rows):
    for row in rows:
        shown = row["messages"][-2]["content"]

        assert row["messages"][-1]["role"] == "user"
        assert first_list(shown)
        assert scored(answered("calendar", row, shown)).reward == 0.0


def test_tasks_make_others_move_from_medium_on(rows):
    found = {(row["difficulty"], needs_others_moved(row)) for row in rows[:45]}

    assert {("medium", True), ("hard", True), ("easy", False)} <= found
    assert not {("medium", False), ("hard", False)} & found


def needs_others_moved(row):
    """Return whether the last calendar cannot be mended by moving the last-named event only."""
    last = int(row["messages"][-1]["content"].split("(event id: ")[1].split(")")[0])
    shown = json.loads(first_list(row["messages"][-2]["content"]))
    others = [one for one in shown if one["event_id"] != last]
    expected = CalendarTask.model_validate(row).exp_cal_state
    duration = expected[str(last)].duration
    placed = (
        [*others, event(last, "{:02}:{:02}".format(*divmod(minutes, 60)), duration)]
        for minutes in range(0, 24 * 60, 15)
    )
    return not any(examine(json.dumps(listed), expected).is_right for listed in placed)


def test_tasks_get_harder(rows):
    easy, medium, hard = (
        [r for r in rows if r["difficulty"] == d] for d in ("easy", "medium", "hard")
    )

    assert [{len(r["exp_cal_state"]) for r in rows} for rows in (easy, medium, hard)] == [
        {3},
        {5},
        {7},
    ]
    assert [num_changes(rows) > 0 for rows in (easy, medium, hard)] == [False, False, True]
    assert mean_spare(easy) > mean_spare(medium) > mean_spare(hard)


def num_changes(rows):
    texts = [message["content"] for row in rows for message in row["messages"]]
    return sum("earlier time" in text or "Forget" in text for text in texts)


def mean_spare(rows):
    """Return the mean number of minutes of the day that no event takes."""
    spare = [
        minutes_of(wishes[0]["max_time"])
        - minutes_of(wishes[0]["min_time"])
        - sum(one["duration"] for one in wishes)
        for wishes in (list(row["exp_cal_state"].values()) for row in rows)
    ]
    return sum(spare) / len(spare)


def test_tasks_end_in_all_ways(rows):
    """Some end with a new event, others with a constraint on an existing one."""
    last = [row["messages"][-1]["content"] for row in rows]
    additions = [text for text in last if " minutes" in text]

    assert len(last) / 5 < len(additions) < len(last) * 4 / 5
    assert len({msgspec.json.encode(row["messages"]) for row in rows}) == len(rows)
