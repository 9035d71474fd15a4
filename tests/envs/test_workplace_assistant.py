"""The environment workplace_assistant: its tools, its tables, and the final comparison."""

import csv
import itertools
from collections import Counter
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymcli.environment.registry import environment_options, shipped_tasks
from gymcli.envs.workplace_assistant import WorkplaceAssistant, WorkplaceTask
from gymcli.envs.workplace_assistant.company import SOURCES, TEAM, address_of, made_up
from gymcli.envs.workplace_assistant.tables import COLUMNS, NOW, Table, labelled, page_of
from gymcli.errors import UsageError, VerifierError
from gymcli.tasks.task_files import read_tasks
from gymcli.tasks.task_row import TaskReading
from gymcli.types import FunctionCall, ToolCall
from tests.envs.episodes import calls, played, row_of_file, says, scored, task_row

NAME = "workplace_assistant"
CRM = "customer_relationship_manager"
DEPENDENCY = "information dependency"
NUMBERS = ("1.", "2.", "3.")
IMARA = "imara.voss@brightmoor.example"

TOOLS = {
    "company_directory_find_email_address": ("", "name"),
    "email_get_email_information_by_id": ("email_id field", ""),
    "email_search_emails": ("", "query date_min date_max page page_size"),
    "email_send_email": ("recipient subject body", ""),
    "email_delete_email": ("email_id", ""),
    "email_forward_email": ("email_id recipient", ""),
    "email_reply_email": ("email_id body", ""),
    "calendar_get_event_information_by_id": ("event_id field", ""),
    "calendar_search_events": ("", "query time_min time_max page page_size"),
    "calendar_create_event": ("event_name participant_email event_start duration", ""),
    "calendar_delete_event": ("event_id", ""),
    "calendar_update_event": ("event_id field new_value", ""),
    "analytics_get_visitor_information_by_id": ("visitor_id", ""),
    "analytics_create_plot": ("time_min time_max value_to_plot plot_type", ""),
    "analytics_total_visits_count": ("", "time_min time_max"),
    "analytics_engaged_users_count": ("", "time_min time_max"),
    "analytics_traffic_source_count": ("", "time_min time_max traffic_source"),
    "analytics_get_average_session_duration": ("", "time_min time_max"),
    "project_management_get_task_information_by_id": ("task_id field", ""),
    "project_management_search_tasks": (
        "",
        "task_name assigned_to_email list_name due_date board",
    ),
    "project_management_create_task": (
        "task_name assigned_to_email list_name due_date board",
        "",
    ),
    "project_management_delete_task": ("task_id", ""),
    "project_management_update_task": ("task_id field new_value", ""),
    f"{CRM}_search_customers": (
        "",
        "customer_name customer_email product_interest status assigned_to_email "
        "last_contact_date_min last_contact_date_max follow_up_by_min follow_up_by_max "
        "page page_size",
    ),
    f"{CRM}_update_customer": ("customer_id field new_value", ""),
    f"{CRM}_add_customer": (
        "customer_name assigned_to_email status",
        "customer_email customer_phone last_contact_date product_interest notes follow_up_by",
    ),
    f"{CRM}_delete_customer": ("customer_id", ""),
}
"""The tools of the reference with their required and optional arguments."""


def call(name, /, **arguments):
    return name, msgspec.json.encode(arguments).decode()


def send(body="See you at nine.", subject="Tomorrow"):
    return call("email_send_email", recipient=IMARA, subject=subject, body=body)


def delete_email(identity):
    return call("email_delete_email", email_id=identity)


def create_event(name="Tea"):
    return call(
        "calendar_create_event",
        event_name=name,
        participant_email=IMARA,
        event_start="2023-12-01 09:00:00",
        duration="30",
    )


def set_status(identity, status="Won"):
    return call(f"{CRM}_update_customer", customer_id=identity, field="status", new_value=status)


def rename_task(identity, name):
    return call(
        "project_management_update_task", task_id=identity, field="task_name", new_value=name
    )


def add_customer(**fields):
    given = {"customer_name": "Ada Stone", "assigned_to_email": IMARA, "status": "Lead", **fields}
    return call(f"{CRM}_add_customer", **given)


def row_with(*gold, tools=None):
    truth = [{"name": name, "arguments": arguments} for name, arguments in gold]
    return task_row(NAME, {"ground_truth": truth}, tools=tools)


def score_of(gold, *predicted):
    """Score calls that were made one message each."""
    return scored(played(row_with(*gold), *map(calls, predicted), says("Done."), max_turns=20))


def answers(*made, **options):
    """Return the results of calls that were made in order."""
    rollout = played(row_with(), calls(*made), says("Done."), **options)
    return [message.text for message in rollout.messages if message.role == "tool"]


def answer(name, /, **arguments):
    [text] = answers(call(name, **arguments))
    return text


def table(name):
    return made_up().rows(name)


def shipped_rows():
    return list(read_tasks([shipped_tasks(NAME)], TaskReading(default_env=NAME)))


# The final comparison


@pytest.mark.parametrize(
    ("gold", "predicted", "reward"),
    [
        pytest.param([send()], [send()], 1.0, id="gold"),
        pytest.param([send()], [], 0.0, id="nothing"),
        pytest.param([send()], [send(), send()], 0.0, id="sent twice"),
        pytest.param([send()], [send("SEE you at nine.")], 1.0, id="case of a body"),
        pytest.param([send()], [send("See you at ten.")], 0.0, id="another body"),
        pytest.param(
            [set_status("00000003")],
            [set_status("00000003"), set_status("00000003")],
            1.0,
            id="updated twice",
        ),
        pytest.param(
            [set_status("00000003"), rename_task("00000004", "Rest"), send()],
            [send(), rename_task("00000004", "Rest"), set_status("00000003")],
            1.0,
            id="reversed",
        ),
        pytest.param(
            [rename_task("00000004", "Rest")],
            [rename_task("00000004", "Work"), rename_task("00000004", "Rest")],
            1.0,
            id="mended",
        ),
        pytest.param([add_customer()], [add_customer(status="lead")], 0.0, id="case of a status"),
        pytest.param([add_customer()], [add_customer(notes="")], 1.0, id="empty optional text"),
        pytest.param([add_customer()], [add_customer(notes="New.")], 0.0, id="something invented"),
        pytest.param([], [], 1.0, id="nothing asked, nothing done"),
        pytest.param([], [delete_email("00000001")], 0.0, id="nothing asked, something done"),
        pytest.param(
            [delete_email("00000001")], [delete_email("00000002")], 0.0, id="another deleted"
        ),
        pytest.param(
            [create_event("Tea"), create_event("Cake")],
            [create_event("Cake"), create_event("Tea")],
            0.0,
            id="ids in another order",
        ),
        pytest.param(
            [delete_email("00000001"), send()],
            [send(), delete_email("00000001")],
            0.0,
            id="labels of e-mails",
        ),
        pytest.param(
            [call("calendar_delete_event", event_id="00000001"), create_event()],
            [create_event(), call("calendar_delete_event", event_id="00000001")],
            1.0,
            id="labels of events stay",
        ),
    ],
)
def test_verify_compares_the_tables_at_the_end(gold, predicted, reward):
    rollout = score_of(gold, *predicted)

    assert rollout.reward == reward
    assert (rollout.details["reason"] == "correct") == bool(reward)


def test_verify_names_the_tables_that_differ():
    rollout = score_of([send()], create_event())

    assert rollout.details == {
        "reason": "wrong_state",
        "changed_tables": ["calendar_events"],
        "different_tables": ["calendar_events", "emails"],
    }
    assert score_of([send()]).details["reason"] == "nothing_changed"


@pytest.mark.parametrize(
    "useless",
    [
        pytest.param(("email_search_emails", "{}"), id="reading"),
        pytest.param(("no_such_tool", "{}"), id="unknown tool"),
        pytest.param(("email_send_email", "{"), id="not JSON"),
        pytest.param(("email_send_email", "[]"), id="not an object"),
        pytest.param(("email_send_email", '{"recipient": "a@b.example"}'), id="argument missing"),
        pytest.param(
            ("email_delete_email", '{"email_id": "00000001", "sure": true}'), id="one too many"
        ),
        pytest.param(("email_delete_email", '{"email_id": 1}'), id="a number for a text"),
        pytest.param(("email_delete_email", '{"email_id": null}'), id="null"),
        pytest.param(delete_email("99999999"), id="no such row"),
    ],
)
def test_verify_passes_over_calls_that_change_nothing(useless):
    assert score_of([send()], useless, send(), useless).reward == 1.0
    assert score_of([send()], useless).reward == 0.0


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        pytest.param(
            [delete_email("99999999")],
            "email_delete_email: There is no e-mail with the id '99999999'.",
            id="unknown id",
        ),
        pytest.param(
            [send(), ("no_such_tool", "{}")], "no_such_tool: There is no tool", id="unknown tool"
        ),
        pytest.param(
            [("email_delete_email", '{"email_id": 1}'), send()],
            "email_delete_email: The arguments of email_delete_email do not fit",
            id="wrong type",
        ),
        pytest.param([("email_send_email", "{")], "are not valid JSON", id="not JSON"),
        pytest.param(
            [call("calendar_update_event", event_id="1", field="duration", new_value="30")],
            "no event with the id '1'",
            id="id without zeros",
        ),
    ],
)
def test_verify_leaves_a_row_unscored_whose_gold_calls_are_refused(gold, reason):
    """The reference rewards doing nothing in this case."""
    rollout = played(row_with(*gold), says("Done."))

    with pytest.raises(VerifierError, match="pass --env-arg data_dir=FOLDER") as failure:
        scored(rollout)
    assert str(failure.value).startswith("a gold call was refused; were they written for other")
    assert reason in str(failure.value)


def test_verify_leaves_a_row_unscored_whose_gold_calls_change_nothing():
    status = table("customer_relationship_manager_data")[3]["status"]
    rollout = played(row_with(set_status("00000003", status)), says("Done."))

    with pytest.raises(VerifierError, match=r"^the gold calls change nothing; were they written"):
        scored(rollout)


def test_verify_takes_gold_calls_that_only_read_for_a_request_to_change_nothing():
    row = row_with(("email_search_emails", '{"query": "zeppelin"}'))

    assert scored(played(row, says("Done."))).reward == 1.0
    assert scored(played(row, calls(send()), says("Done."))).reward == 0.0


def test_verify_lets_a_gold_call_repeat_another():
    gold = [set_status("00000003", "Won"), set_status("00000003", "Won"), send()]

    assert score_of(gold, send(), set_status("00000003", "Won")).reward == 1.0


def test_verify_passes_over_calls_of_tools_that_were_not_shown():
    own = WorkplaceAssistant.method_tools()
    row = row_with(send(), tools=[own["email_send_email"].spec])
    rollout = played(row, calls(delete_email("00000001"), send()), says("Done."))

    assert rollout.tool_errors == {"unknown_tool": 1}
    assert scored(rollout).reward == 1.0


def test_verify_counts_calls_that_a_limit_cut_off():
    """The reference replays every call, whether or not the episode executed it."""
    rollout = played(row_with(send()), calls(send()), max_turns=1)

    assert rollout.stop_reason == "max_turns"
    assert scored(rollout).reward == 1.0


def test_call_tools_takes_null_for_left_out():
    gold, given = add_customer(), add_customer(notes=None, follow_up_by=None)

    rollout = score_of([gold], given)

    assert not rollout.tool_errors
    assert rollout.reward == 1.0


# Tools


def test_tools_are_those_of_the_reference():
    tools = WorkplaceAssistant.method_tools()

    assert list(tools) == list(TOOLS)
    for name, (required, optional) in TOOLS.items():
        schema = tools[name].parameters
        properties = schema["properties"]
        numbers = {"page", "page_size"}
        assert schema["required"] == required.split()
        assert list(properties) == [*required.split(), *optional.split()]
        assert schema["additionalProperties"] is False
        for argument, described in properties.items():
            assert described["type"] == ("integer" if argument in numbers else "string")
            assert described["description"]


def test_rows_in_the_reference_shape_are_read_and_played(tmp_path):
    tools = [
        {"type": "function", "strict": False, **tool.spec["function"]}
        for tool in WorkplaceAssistant.method_tools().values()
    ]
    row = row_of_file(
        tmp_path,
        NAME,
        {
            "id": 0,
            "responses_create_params": {
                "input": [{"role": "user", "content": "Take the first event out."}],
                "tools": tools,
                "parallel_tool_calls": False,
            },
            "ground_truth": [
                {"name": "calendar_delete_event", "arguments": '{"event_id": "00000000"}'}
            ],
            "category": "workplace_assistant_calendar",
            "environment_name": "workplace_assistant",
        },
    )

    assert scored(played(row)).reward == 1.0


def test_tools_show_an_empty_cell_as_null():
    customers = table("customer_relationship_manager_data")
    silent = next(customer for customer in customers if not customer["notes"])

    found = answer(f"{CRM}_search_customers", customer_name=silent["customer_name"], page_size=200)
    shown = {one["customer_id"]: one for one in msgspec.json.decode(found)["customers"]}
    assert shown[silent["customer_id"]] == {**silent, "notes": None}


def test_every_tool_answers_about_rows_that_are_not_there():
    """They return a sentence; nothing is raised."""
    for name, (required, _) in TOOLS.items():
        text = answer(name, **dict.fromkeys(required.split(), "nothing"))
        assert text
        assert "failed" not in text
        assert "do not fit" not in text


def changes(tool, field, value):
    """Return a call of a tool that changes a field of row 1."""
    noun = tool.rpartition("_")[2]
    return tool, {f"{noun}_id": "00000001", "field": field, "new_value": value}


def test_tools_answer_misuse_with_a_sentence(subtests):
    cases = [
        ("company_directory_find_email_address", {}, "Give the name"),
        ("company_directory_find_email_address", {"name": "zz"}, "No address contains 'zz'"),
        ("email_get_email_information_by_id", {"email_id": "1", "field": "body"}, "no e-mail"),
        (
            "email_get_email_information_by_id",
            {"email_id": "00000001", "field": "cc"},
            "E-mails have no field 'cc', only email_id, inbox/outbox",
        ),
        ("email_search_emails", {"date_min": "yesterday"}, "no day"),
        ("email_search_emails", {"date_max": "2023-13-01"}, "no day"),
        ("email_search_emails", {"date_max": "20231101"}, "no day"),
        ("email_search_emails", {"query": "zeppelin"}, "No emails found."),
        ("email_search_emails", {"page_size": 0}, "page_size must be at least 1."),
        ("email_send_email", {"recipient": "x", "subject": "s", "body": "b"}, "no e-mail address"),
        ("email_send_email", {"recipient": "", "subject": "s", "body": "b"}, "not be empty"),
        ("email_forward_email", {"email_id": "1", "recipient": IMARA}, "no e-mail with the id '1'"),
        ("email_forward_email", {"email_id": "00000001", "recipient": "x"}, "no e-mail address"),
        ("email_reply_email", {"email_id": "1", "body": "b"}, "no e-mail with the id '1'"),
        ("email_reply_email", {"email_id": "00000001", "body": ""}, "not be empty"),
        ("calendar_search_events", {"time_min": "noon"}, "'noon' is no time"),
        ("calendar_search_events", {"time_max": "noon"}, "'noon' is no time"),
        ("calendar_search_events", {"query": "zeppelin"}, "No events found."),
        (*changes("calendar_update_event", "event_start", "noon"), "'noon' is no time"),
        (*changes("calendar_update_event", "duration", "an hour"), "'an hour' is no length"),
        (*changes("calendar_update_event", "duration", "0"), "'0' is no length"),
        (*changes("calendar_update_event", "event_name", ""), "must not be empty"),
        (
            *changes("calendar_update_event", "event_id", "00000900"),
            "cannot be changed, only event_name, participant_email, event_start, duration.",
        ),
        (
            "calendar_create_event",
            {"event_name": "", "participant_email": "", "event_start": "", "duration": ""},
            "must not be empty",
        ),
        ("analytics_get_visitor_information_by_id", {"visitor_id": "x"}, "no visitor"),
        ("project_management_search_tasks", {}, "at least one thing"),
        ("project_management_search_tasks", {"assigned_to_email": "Imara"}, "no e-mail address"),
        ("project_management_search_tasks", {"task_name": "zeppelin"}, "No tasks found."),
        (
            *changes("project_management_update_task", "list_name", "completed"),
            "list_name must be one of Backlog, In Progress, In Review, Completed.",
        ),
        (
            *changes("project_management_update_task", "board", "Back End"),
            "board must be one of Back end, Front end, Design.",
        ),
        (
            *changes("project_management_update_task", "assigned_to_email", "a@b.example"),
            "Nobody on the team has the address 'a@b.example'.",
        ),
        (*changes("project_management_update_task", "task_name", ""), "must not be empty"),
        (f"{CRM}_search_customers", {}, "at least one thing"),
        (f"{CRM}_search_customers", {"customer_name": "zeppelin"}, "No customers found."),
        (*changes(f"{CRM}_update_customer", "status", "won"), "status must be one of"),
        (
            *changes(f"{CRM}_update_customer", "product_interest", "Cake"),
            "product_interest must be one of",
        ),
        (*changes(f"{CRM}_update_customer", "notes", ""), "must not be empty"),
        (
            f"{CRM}_add_customer",
            {"customer_name": "", "assigned_to_email": "", "status": ""},
            "nobody was added",
        ),
    ]
    for name, arguments, says_so in cases:
        with subtests.test(name=name, arguments=arguments, says_so=says_so):
            assert says_so in answer(name, **arguments)


NO_DAYS = ["2023-12-4", "20231204", "2023-W49-1", " 2023-12-04", "2023-12-04 09:00:00", "4 Dec"]
NO_TIMES = [
    "2023-12-04",
    "2023-12-04 09:00",
    "2023-12-04T09:00:00",
    "2023-12-04 09:00:00Z",
    "2023-12-04 09:00:00+00:00",
    "2023-12-04 09:00:00.5",
    "2023-12-04 09:00:00 ",
    "2023-12-04 9:00:00",
    "2023-02-30 09:00:00",
]
NO_DURATIONS = ["030", "30 ", "+30", "3_0", "30.0", "30 minutes", "-30", "0", "\u0663\u0660"]

EVENT = {
    "event_name": "Tea",
    "participant_email": IMARA,
    "event_start": "2023-12-01 09:00:00",
    "duration": "30",
}
TASK = {
    "task_name": "Rest",
    "assigned_to_email": IMARA,
    "list_name": "Backlog",
    "due_date": "2023-12-04",
    "board": "Design",
}
CUSTOMER = {"customer_name": "Ada Stone", "assigned_to_email": IMARA, "status": "Lead"}
PLOT = {
    "time_min": "2023-11-01",
    "time_max": "2023-11-02",
    "value_to_plot": "visits_direct",
    "plot_type": "bar",
}


def event_update(field):
    return "calendar_update_event", {"event_id": "00000001", "field": field}, "new_value"


def customer_update(field):
    return f"{CRM}_update_customer", {"customer_id": "00000001", "field": field}, "new_value"


@pytest.mark.parametrize(
    ("places", "texts", "form"),
    [
        pytest.param(
            [
                ("calendar_create_event", EVENT, "event_start"),
                event_update("event_start"),
                ("calendar_search_events", {}, "time_min"),
                ("calendar_search_events", {}, "time_max"),
            ],
            NO_TIMES,
            "is no time; write it as YYYY-MM-DD HH:MM:SS.",
            id="times",
        ),
        pytest.param(
            [("calendar_create_event", EVENT, "duration"), event_update("duration")],
            NO_DURATIONS,
            "is no length; give whole minutes in digits, such as 45.",
            id="durations",
        ),
        pytest.param(
            [
                ("project_management_create_task", TASK, "due_date"),
                (
                    "project_management_update_task",
                    {"task_id": "00000001", "field": "due_date"},
                    "new_value",
                ),
                ("project_management_search_tasks", {}, "due_date"),
                (f"{CRM}_add_customer", CUSTOMER, "last_contact_date"),
                (f"{CRM}_add_customer", CUSTOMER, "follow_up_by"),
                customer_update("last_contact_date"),
                customer_update("follow_up_by"),
                (f"{CRM}_search_customers", {}, "last_contact_date_min"),
                (f"{CRM}_search_customers", {}, "last_contact_date_max"),
                (f"{CRM}_search_customers", {}, "follow_up_by_min"),
                (f"{CRM}_search_customers", {}, "follow_up_by_max"),
                ("email_search_emails", {}, "date_min"),
                ("email_search_emails", {}, "date_max"),
                ("analytics_create_plot", PLOT, "time_min"),
                ("analytics_create_plot", PLOT, "time_max"),
                ("analytics_total_visits_count", {}, "time_min"),
                ("analytics_engaged_users_count", {}, "time_max"),
                ("analytics_traffic_source_count", {}, "time_min"),
                ("analytics_get_average_session_duration", {}, "time_max"),
            ],
            NO_DAYS,
            "is no day; write it as YYYY-MM-DD.",
            id="days",
        ),
    ],
)
def test_tools_take_days_times_and_lengths_in_one_form(places, texts, form):
    """A value in another form would be reported as a success and then score 0."""
    made = [
        (call(name, **{**fields, argument: text}), text)
        for name, fields, argument in places
        for text in texts
    ]

    said = answers(*(one for one, _ in made))

    assert said == [f"{text!r} {form}" for _, text in made]
    assert score_of([send()], *(one for one, _ in made[:5])).details["reason"] == "nothing_changed"


def test_tools_take_the_form_that_they_ask_for():
    texts = answers(
        call("calendar_create_event", **EVENT),
        call("project_management_create_task", **TASK),
        add_customer(follow_up_by="2023-12-31", last_contact_date="2023-11-30"),
        call(
            "calendar_update_event",
            event_id="00000001",
            field="event_start",
            new_value="2023-12-01 10:30:00",
        ),
        call(
            f"{CRM}_update_customer",
            customer_id="00000001",
            field="follow_up_by",
            new_value="2024-02-29",
        ),
    )

    assert texts[:3] == ["00000300", "00000300", "00000200"]
    assert all(text.endswith("has been updated.") for text in texts[3:])


@pytest.mark.parametrize(("field", "value"), [("status", "lead"), ("product_interest", "Cake")])
def test_add_customer_takes_known_values_alone(field, value):
    [text] = answers(add_customer(**{field: value}))

    assert text.startswith(f"{field} must be one of ")


def test_plots_are_refused_with_what_is_wrong():
    good, name = PLOT, "analytics_create_plot"

    assert answer(name, **good) == "plots/2023-11-01_2023-11-02_visits_direct_bar.png"
    assert "first and the last day" in answer(name, **{**good, "time_max": ""})
    assert "value_to_plot must be one of" in answer(name, **{**good, "value_to_plot": "joy"})
    assert "plot_type must be one of" in answer(name, **{**good, "plot_type": "pie"})


def test_find_email_address_takes_a_part_of_a_name_in_any_case():
    assert answer("company_directory_find_email_address", name="VOSS") == f'["{IMARA}"]'


def test_search_emails_takes_every_word_and_sorts_by_time():
    name, query = "email_search_emails", "WREN pricing"
    found = msgspec.json.decode(answer(name, query=query, page_size=500))

    expected = [
        email
        for email in sorted(table("emails"), key=lambda row: row["sent_datetime"], reverse=True)
        if all(
            word in f"{email['subject']} {email['body']} {email['sender/recipient']}".lower()
            for word in ("wren", "pricing")
        )
    ]
    assert len(expected) > 2
    assert found["emails"] == expected
    assert found["pagination"]["total_emails"] == len(expected)
    day = expected[1]["sent_datetime"][:10]
    of_day = msgspec.json.decode(answer(name, query=query, date_min=day, date_max=day))
    assert expected[1] in of_day["emails"]
    assert all(email["sent_datetime"].startswith(day) for email in of_day["emails"])


@pytest.mark.slow
def test_search_emails_bears_a_query_of_any_length():
    """Each word is looked up once; otherwise these would not finish and would block episodes."""
    many = [" ".join(["wren"] * 5_000_000), " ".join(f"w{number}" for number in range(2_000_000))]

    texts = answers(*(call("email_search_emails", query=query) for query in many))

    assert msgspec.json.decode(texts[0])["pagination"]["total_emails"] > 0
    assert texts[1] == "A query may have 100 different words at most."
    hundred = " ".join(f"w{number}" for number in range(100))
    assert answer("email_search_emails", query=hundred) == "No emails found."


def test_new_emails_are_sent_now_under_the_next_id():
    first = table("emails")[0]
    texts = answers(
        call("email_reply_email", email_id=first["email_id"], body="Yes."),
        call("email_forward_email", email_id=first["email_id"], recipient="Out@There.example"),
        call("email_get_email_information_by_id", email_id="00000500", field="subject"),
        call("email_get_email_information_by_id", email_id="00000500", field="sent_datetime"),
        call("email_get_email_information_by_id", email_id="00000501", field="subject"),
        call("email_get_email_information_by_id", email_id="00000501", field="body"),
        call("email_get_email_information_by_id", email_id="00000501", field="sender/recipient"),
        delete_email("00000501"),
        delete_email("00000501"),
        send(),
    )

    fields = [msgspec.json.decode(text) for text in texts[2:7]]
    assert texts[0].endswith("its id is 00000500.")
    assert fields == [
        {"subject": f"RE: {first['subject']}"},
        {"sent_datetime": NOW},
        {"subject": f"FW: {first['subject']}"},
        {"body": first["body"]},
        {"sender/recipient": "out@there.example"},
    ]
    assert texts[7:9] == [
        "The e-mail 00000501 has been deleted.",
        "There is no e-mail with the id '00000501'.",
    ]
    assert texts[9].endswith("its id is 00000501."), "a free id is used again"


def test_search_events_takes_a_text_and_times():
    name = "calendar_search_events"
    day = {"time_min": "2023-12-04 00:00:00", "time_max": "2023-12-04 23:59:59"}
    found = msgspec.json.decode(answer(name, **day, page_size=20))["events"]

    expected = [row for row in table("calendar_events") if "2023-12-04" in row["event_start"]]
    assert found == sorted(expected, key=lambda row: row["event_start"], reverse=True)
    of_person = msgspec.json.decode(answer(name, query="Imara", page_size=1))
    assert of_person["events"][0]["participant_email"] == IMARA
    assert of_person["pagination"]["page_size"] == 1


def test_events_are_made_and_changed():
    texts = answers(
        create_event(),
        call(
            "calendar_update_event",
            event_id="00000300",
            field="participant_email",
            new_value="Someone@Else.example",
        ),
        call(
            "calendar_get_event_information_by_id", event_id="00000300", field="participant_email"
        ),
        call("calendar_delete_event", event_id="00000300"),
    )

    assert texts == [
        "00000300",
        "The event 00000300 has been updated.",
        '{"participant_email":"someone@else.example"}',
        "The event 00000300 has been deleted.",
    ]


def test_analytics_count_by_day():
    visits = [row for row in table("analytics_data") if row["date_of_visit"] == "2023-11-02"]
    limits = {"time_min": "2023-11-02", "time_max": "2023-11-02"}

    def counted(name, **more):
        return msgspec.json.decode(answer(f"analytics_{name}", **limits, **more))["2023-11-02"]

    direct = [visit for visit in visits if visit["traffic_source"] == "direct"]
    engaged = [visit for visit in visits if visit["user_engaged"] == "True"]
    seconds = [int(visit["session_duration_seconds"]) for visit in visits]
    assert counted("total_visits_count") == counted("traffic_source_count") == len(visits) > 0
    assert counted("traffic_source_count", traffic_source="direct") == len(direct)
    assert counted("engaged_users_count") == len(engaged)
    assert counted("get_average_session_duration") == sum(seconds) / len(seconds)
    days = msgspec.json.decode(answer("analytics_total_visits_count"))
    assert list(days) == sorted(days)
    assert sum(days.values()) == 1000


def test_visitor_information_gives_every_visit():
    visit = table("analytics_data")[7]
    name = "analytics_get_visitor_information_by_id"
    found = msgspec.json.decode(answer(name, visitor_id=visit["visitor_id"]))

    assert {**visit, "user_engaged": visit["user_engaged"] == "True"} in found


def test_tasks_are_searched_made_and_changed():
    task = table("project_tasks")[5]
    wanted = {field: task[field] for field in ("task_name", "list_name", "due_date", "board")}
    texts = answers(
        call(
            "project_management_search_tasks",
            **{field: text.upper() for field, text in wanted.items()},
            assigned_to_email=task["assigned_to_email"].upper(),
        ),
        call(
            "project_management_create_task",
            **{**wanted, "task_name": "Rest", "assigned_to_email": "Imara.Voss@Brightmoor.example"},
        ),
        call(
            "project_management_update_task",
            task_id="00000300",
            field="assigned_to_email",
            new_value=task["assigned_to_email"].upper(),
        ),
        call(
            "project_management_get_task_information_by_id",
            task_id="00000300",
            field="assigned_to_email",
        ),
        call("project_management_delete_task", task_id="00000300"),
    )

    assert msgspec.json.decode(texts[0]) == [task]
    assert texts[1:3] == ["00000300", "The task 00000300 has been updated."]
    assert msgspec.json.decode(texts[3]) == {"assigned_to_email": task["assigned_to_email"]}
    assert texts[4] == "The task 00000300 has been deleted."


def test_customers_are_searched_by_text_and_days():
    customers = table("customer_relationship_manager_data")
    found = msgspec.json.decode(
        answer(
            f"{CRM}_search_customers",
            status="pro",
            assigned_to_email="BRIGHTMOOR",
            last_contact_date_min="2023-07-01",
            last_contact_date_max="2023-10-31",
            follow_up_by_max="2023-12-31",
            page_size=50,
        )
    )["customers"]

    expected = [
        {**row, "notes": row["notes"] or None}
        for row in customers
        if row["status"] == "Proposal"
        and "2023-07-01" <= row["last_contact_date"] <= "2023-10-31"
        and row["follow_up_by"] <= "2023-12-31"
    ]
    assert found == expected != []


def test_customers_are_added_changed_and_deleted():
    texts = answers(
        add_customer(customer_email="Ada@Stone.example"),
        call(f"{CRM}_search_customers", customer_email="ada@stone.example"),
        call(f"{CRM}_search_customers", customer_name="Ada Stone", follow_up_by_max="2030-01-01"),
        call(
            f"{CRM}_update_customer",
            customer_id="00000200",
            field="customer_email",
            new_value="A@Stone.example",
        ),
        call(f"{CRM}_search_customers", customer_email="a@stone.example"),
        call(f"{CRM}_delete_customer", customer_id="00000200"),
    )

    assert texts[0] == "00000200"
    added = msgspec.json.decode(texts[1])["customers"][0]
    assert {*added} == {*COLUMNS["customer_relationship_manager_data"]}
    assert (added["customer_email"], added["follow_up_by"]) == ("ada@stone.example", None)
    assert texts[2] == "No customers found.", "an unknown day is in no range"
    changed = msgspec.json.decode(texts[4])["customers"][0]
    assert changed == {**added, "customer_email": "a@stone.example"}
    assert texts[5] == "The customer 00000200 has been deleted."


# Tables


ROWS = labelled({"row_id": f"{number:08}", "text": "a"} for number in range(4))

IDS = st.integers(0, 6).map("{:08}".format)
UPDATES = st.lists(st.tuples(st.just("update"), IDS, st.sampled_from("ab")))
CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "update", "delete"]), IDS, st.sampled_from("ab"))
)


def changed(changes, **options):
    found = Table(ROWS, "row_id", noun="row", **options)
    for what, identity, text in changes:
        if what == "add":
            found.add({"text": text})
        elif what == "update":
            found.update(identity, "text", text)
        else:
            found.delete(identity)
    return found


@given(CHANGES, st.booleans())
def test_table_keeps_its_laws_under_any_changes(changes, relabels):
    found = changed(changes, relabels=relabels)
    ids = [row["row_id"] for row in found.rows]

    assert len({*ids}) == len(ids)
    assert found.equals(changed(changes, relabels=relabels))
    assert found.equals(changed([*changes, ("delete", "99999999", "")], relabels=relabels))
    assert [row["text"] for _, row in ROWS] == ["a"] * 4, "rows are shared and never changed"


@given(CHANGES)
def test_table_numbers_rows_as_if_all_were_numbered_at_every_addition(changes):
    entries = list(ROWS)
    for what, identity, text in changes:
        known = [row["row_id"] for _, row in entries]
        if what == "add":
            added = {"row_id": f"{max(map(int, known), default=0) + 1:08}", "text": text}
            entries = list(enumerate([row for _, row in entries] + [added]))
        elif what == "update":
            entries = [
                (label, {**row, "text": text} if row["row_id"] == identity else row)
                for label, row in entries
            ]
        else:
            entries = [entry for entry in entries if entry[1]["row_id"] != identity]

    assert changed(changes).labelled_rows == entries


@given(CHANGES)
def test_table_counts_what_was_carried_out(changes):
    found, num_done = Table(ROWS, "row_id", noun="row"), 0
    for what, identity, text in changes:
        is_there = found.find(identity) is not None
        if what == "add":
            found.add({"text": text})
        elif what == "update":
            found.update(identity, "text", text)
        else:
            found.delete(identity)
        num_done += what == "add" or is_there

    assert found.num_changes == num_done


def test_table_takes_many_rows():
    """Adding neither renumbers nor scans the rows; otherwise this would not finish."""
    found = Table(labelled(table("emails")), "email_id", noun="e-mail")
    for _ in range(200_000):
        found.add({"body": "Hello."})

    assert len(found.labelled_rows) == 200_500


@pytest.mark.parametrize(
    ("column", "counts"),
    [("status", True), ("list_name", True), ("board", True), ("text", False)],
)
def test_table_compares_case_in_three_columns(column, counts):
    tables = [Table(labelled([{"id": "1", column: text}]), "id", noun="row") for text in "aA"]

    assert tables[0].equals(tables[1]) != counts


@given(UPDATES)
def test_table_updates_count_once(changes):
    once = changed(changes)

    assert once.equals(changed([change for change in changes for _ in range(2)]))


@given(st.integers(0, 30), st.integers(1, 12))
def test_page_of_gives_every_row_once(num_rows, page_size):
    rows = [{"id": str(number)} for number in range(num_rows)]
    num_pages = -(-num_rows // page_size)

    pages = [page_of(rows, "rows", page, page_size) for page in range(1, num_pages + 1)]

    assert [row for page in pages for row in page["rows"]] == rows
    if rows:
        assert page_of(rows, "rows", 99, page_size) == pages[-1]
        assert page_of(rows, "rows", -3, page_size) == pages[0]


def test_company_has_the_sizes_of_the_reference():
    assert {name: len(table(name)) for name in COLUMNS} == {
        "emails": 500,
        "calendar_events": 300,
        "analytics_data": 1000,
        "customer_relationship_manager_data": 200,
        "project_tasks": 300,
    }
    for name, columns in COLUMNS.items():
        for row in table(name):
            assert {*row} == {*columns}
            assert all(isinstance(text, str) for text in row.values())


def test_company_leaves_no_doubt_about_who_and_when():
    """First names, times of e-mails, starts of events, customers and tasks are unique."""
    for name in TEAM:
        first = name.split()[0].lower()
        assert [known for known in made_up().addresses if first in known] == [address_of(name)]
    for name, columns in {
        "emails": ["sent_datetime"],
        "calendar_events": ["event_start"],
        "customer_relationship_manager_data": ["customer_name"],
        "project_tasks": ["task_name", "board"],
    }.items():
        values = {tuple(row[column] for column in columns) for row in table(name)}
        assert len(values) == len(table(name))
    assert all(row["sent_datetime"] < NOW for row in table("emails"))
    assert all(address.endswith(".example") for address in made_up().addresses)


def test_episodes_share_no_changes():
    before = made_up().rows("emails")
    assert scored(played(row_with(delete_email("00000001")))).reward == 1.0

    assert made_up().rows("emails") == before
    assert "00000001" in answer(
        "email_get_email_information_by_id", email_id="00000001", field="email_id"
    )


# Custom tables


def write_tables(folder, *, processed="", raw="", header="email_address\n"):
    """Write the company's tables as CSV, with shuffled columns and an additional one."""
    for place in (processed, raw):
        (folder / place).mkdir(exist_ok=True)
    for name, columns in COLUMNS.items():
        # Spreadsheets put a byte order mark first.
        path = folder / processed / f"{name}.csv"
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, [*columns[1:], columns[0], "more"], restval="x")
            writer.writeheader()
            writer.writerows(table(name))
    lines = header + "\n".join(made_up().addresses) + "\n"
    (folder / raw / "email_addresses.csv").write_text(lines)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param({}, id="one folder"),
        pytest.param({"processed": "processed", "raw": "raw", "header": ""}, id="two folders"),
    ],
)
def test_data_dir_gives_the_tables_of_others(tmp_path, shape):
    write_tables(tmp_path, **shape)

    assert WorkplaceAssistant.Options(data_dir=tmp_path).source == made_up()


@pytest.mark.parametrize("part", ["processed", "raw"])
def test_data_dir_may_be_a_part_of_the_folder_of_the_reference(tmp_path, monkeypatch, part):
    write_tables(tmp_path, processed="processed", raw="raw", header="")

    assert WorkplaceAssistant.Options(data_dir=tmp_path / part).source == made_up()
    monkeypatch.chdir(tmp_path / part)
    assert WorkplaceAssistant.Options(data_dir=".").source == made_up()


def test_check_task_refuses_a_row_whose_tables_are_not_here(tmp_path):
    write_tables(tmp_path)
    ours = WorkplaceTask(ground_truth=[], tables="made_up")
    theirs = WorkplaceTask(ground_truth=[])

    for options in (WorkplaceAssistant.Options(), WorkplaceAssistant.Options(data_dir=tmp_path)):
        WorkplaceAssistant.check_task(ours, options)
    WorkplaceAssistant.check_task(theirs, WorkplaceAssistant.Options(data_dir=tmp_path))
    with pytest.raises(ValueError, match=r"written for other tables.*data_dir=FOLDER"):
        WorkplaceAssistant.check_task(theirs, WorkplaceAssistant.Options())


def test_verify_scores_no_rollout_of_others_without_its_tables(tmp_path):
    write_tables(tmp_path)
    rollout = played(row_with(send()), calls(send()), says("Done."))
    rollout.env_version = ""

    with pytest.raises(VerifierError, match="data_dir=FOLDER"):
        scored(rollout)
    assert scored(rollout, data_dir=tmp_path).reward == 1.0


def test_data_dir_may_be_none():
    assert WorkplaceAssistant.Options(data_dir=None).source == made_up()


def test_data_dir_is_where_episodes_and_scores_start(tmp_path):
    write_tables(tmp_path)
    header = ",".join(COLUMNS["emails"])
    (tmp_path / "emails.csv").write_text(f"{header}\n7,inbox,a@b.example,Hi\n\n")
    row = row_with(call("email_reply_email", email_id="7", body="Yes."))

    rollout = played(row, data_dir=tmp_path)

    assert rollout.messages[2].text == "The e-mail was sent to a@b.example; its id is 00000008."
    assert rollout.env_options == {"data_dir": str(tmp_path)}
    assert scored(rollout, data_dir=tmp_path).reward == 1.0
    short = WorkplaceAssistant.Options(data_dir=tmp_path).source.rows("emails")[0]
    assert (short["subject"], short["body"]) == ("Hi", ""), "missing cells at the end are empty"


def test_data_dir_is_refused_where_a_file_is_missing(tmp_path):
    write_tables(tmp_path)
    (tmp_path / "project_tasks.csv").unlink()

    with pytest.raises(UsageError) as refused:
        environment_options(WorkplaceAssistant, NAME, {"data_dir": str(tmp_path)}, {})
    assert f"{tmp_path / 'project_tasks.csv'}: no such file; data_dir must hold" in str(
        refused.value
    )
    assert "email_addresses.csv" in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"task_id,board\n", 'no column "task_name"; its first line', id="column"),
        pytest.param(b"", 'no column "task_id"', id="empty file"),
        pytest.param(b"\xff\xfe\x00", "not readable as CSV in UTF-8", id="encoding"),
        pytest.param(b"{header}\na,b\n", '"task_id" must be a whole number', id="id no number"),
        pytest.param(b"{header}\n1,b\n1,c\n", '"task_id" must be a whole number', id="id twice"),
    ],
)
def test_data_dir_is_refused_where_a_file_is_wrong(tmp_path, content, message):
    write_tables(tmp_path)
    path = tmp_path / "project_tasks.csv"
    path.write_bytes(content.replace(b"{header}", ",".join(COLUMNS["project_tasks"]).encode()))

    with pytest.raises(ValidationError, match=message) as refused:
        WorkplaceAssistant.Options(data_dir=tmp_path)
    assert str(path) in str(refused.value)


# Tasks


def test_tasks_change_the_tables_and_end_in_time():
    for row in shipped_rows():
        rollout = scored(played(row))

        assert rollout.details["changed_tables"], row.id
        assert rollout.last_text
        turns = [message for message in rollout.responses if message.role == "assistant"]
        assert [len(turn.tool_calls) for turn in turns] == [1] * (len(turns) - 1) + [0]
        assert len(turns) <= WorkplaceAssistant.max_turns


def looks_for(row):
    """Return the look-ups for a request: its colleagues, and one search for each wish."""
    text, gold = row.messages[1].text, row.fields["ground_truth"]
    # These requests contain every id, or the gold calls look it up.
    if row.fields["difficulty"] == "easy" or row.fields["capability"] == DEPENDENCY:
        return []
    people = [name.split()[0] for name in TEAM if name.split()[0] in text]
    found = [call("company_directory_find_email_address", name=person) for person in people]
    kinds = {one["name"].partition("_")[0] for one in gold}
    searches = {
        "email": call("email_search_emails", query="the", page_size=500),
        "calendar": call("calendar_search_events", page_size=300),
        "project": call("project_management_search_tasks", board="e"),
        "customer": call(f"{CRM}_search_customers", customer_name="e", page_size=200),
    }
    if kinds == {"analytics"}:
        return [call("analytics_traffic_source_count", traffic_source=s) for s in SOURCES[:2]]
    writes = {one["name"] for one in gold}
    needed = kinds - ({"email"} if "email_send_email" in writes else set())
    return [*found, *(searches[kind] for kind in sorted(needed))]


@pytest.mark.slow
def test_tasks_leave_turns_for_look_ups_and_a_repeat():
    """At one call a turn nine turns are enough, as the README says; a tenth allows a repeat."""
    lengths = []
    for row in shipped_rows():
        gold = [(one["name"], one["arguments"]) for one in row.fields["ground_truth"]]
        looks = looks_for(row)
        rollout = scored(played(row, *map(calls, [*looks, *looks[:1], *gold]), says("Done.")))
        lengths.append(len(looks) + len(gold) + 1)

        assert (rollout.stop_reason, rollout.reward) == ("done", 1.0), row.id
        assert not rollout.tool_errors

    assert max(lengths) == 9
    readme = (shipped_tasks(NAME).parent / "README.md").read_text()
    assert "takes nine turns at most" in " ".join(readme.split())


def test_episode_ends_after_ten_turns():
    rollout = played(row_with(send()), calls(("email_search_emails", "{}")))

    assert rollout.stop_reason == "max_turns"
    assert len(rollout.tool_calls) == 10


def test_tasks_name_ids_only_where_they_are_easy():
    for row in shipped_rows():
        text = row.messages[1].text
        is_easy = row.fields["difficulty"] == "easy"
        if is_easy and row.fields["capability"] == "tool use":
            assert len(row.fields["ground_truth"]) == 1
        if not is_easy or row.fields["capability"] == DEPENDENCY:
            assert "0000" not in text
            assert "@" not in text


def test_tasks_are_of_every_kind():
    fields = [row.fields for row in shipped_rows()]

    tools = WorkplaceAssistant.method_tools()
    gold = [(row, tools[gold["name"]]) for row in fields for gold in row["ground_truth"]]
    assert all(row["capability"] == DEPENDENCY for row, tool in gold if tool.reads_only)
    acting = {tool.name for _, tool in gold if not tool.reads_only}
    assert acting == {name for name, tool in tools.items() if not tool.reads_only}
    assert {row["category"] for row in fields} == {
        "email",
        "calendar",
        "analytics",
        "project_management",
        CRM,
        "multiple",
    }


def test_tasks_are_of_every_capability():
    fields = [row.fields for row in shipped_rows()]
    counts = Counter(row["capability"] for row in fields)

    assert {*counts} == {"tool use", "multiple intents", DEPENDENCY}
    assert min(counts.values()) >= 10
    for capability in counts:
        levels = {row["difficulty"] for row in fields if row["capability"] == capability}
        assert levels == {"easy", "medium", "hard"}


def test_tasks_of_several_intents_change_several_tables():
    for row in shipped_rows():
        if row.fields["capability"] == "multiple intents":
            rollout = scored(played(row))

            assert row.fields["category"] == "multiple"
            assert len(rollout.details["changed_tables"]) >= 2, row.id


def test_tasks_of_numbered_intents_can_be_done_in_any_order():
    """The wishes are independent: each one changes a different table."""
    num_seen = 0
    for row in shipped_rows():
        wishes = [line for line in row.messages[1].text.splitlines() if line[:2] in NUMBERS]
        if not wishes:
            continue
        gold = [(one["name"], one["arguments"]) for one in row.fields["ground_truth"]]
        rollout = scored(played(row, *map(calls, reversed(gold)), says("Done.")))

        assert rollout.reward == 1.0
        assert len(rollout.details["changed_tables"]) == len(wishes) == len(gold) >= 2
        num_seen += 1
    assert num_seen == 12


def test_tasks_of_numbered_intents_do_not_name_the_next_year():
    """A date of the next year would look like a slip beside dates without a year."""
    rows = list(WorkplaceAssistant.generate(Random(7), 900))
    texts = [row["messages"][1]["content"] for row in rows]
    numbered = [text for text in texts if " things:\n" in text]

    assert len(numbered) >= 100
    assert not any("2024" in text for text in numbered)


def told_before(rollout):
    """Yield each call with the arguments that an earlier result showed and the prompt did not."""
    prompt = " ".join(message.text for message in rollout.messages[: rollout.num_prompt_messages])
    results = ""
    for message in rollout.responses:
        for made in message.tool_calls or []:
            texts = [str(value) for value in msgspec.json.decode(made.arguments).values()]
            yield made, [text for text in texts if text in results and text not in prompt]
        if message.role == "tool":
            results += message.text


def test_tasks_of_dependency_need_what_an_earlier_call_has_told():
    tools = WorkplaceAssistant.method_tools()
    for row in shipped_rows():
        if row.fields["capability"] != DEPENDENCY:
            continue
        found = list(told_before(scored(played(row))))
        changes = [told for made, told in found if not tools[made.name].reads_only]
        looks = [told for made, told in found if tools[made.name].reads_only]

        assert changes, row.id
        assert all(changes), row.id
        if row.fields["difficulty"] == "easy":
            assert (len(looks), len(changes)) == (1, 1)
        else:
            assert any(looks[1:]), "a look-up needs the result of an earlier one"
        assert len(changes) == (2 if row.fields["difficulty"] == "hard" else 1)


def test_tasks_fit_no_gold_of_another():
    """The calls of one request never fulfil another one."""
    rows = [row for row in shipped_rows() if row.fields["difficulty"] == "hard"]
    rollouts = [played(row) for row in rows]

    for row, following in itertools.pairwise(rollouts):
        assert scored(msgspec.structs.replace(row, task=following.task)).reward == 0.0


def test_gold_calls_are_numbered():
    task = WorkplaceTask(ground_truth=[{"name": "a", "arguments": "{}"}] * 2)

    assert task.gold_calls == [
        ToolCall(id="call_0", function=FunctionCall("a", "{}")),
        ToolCall(id="call_1", function=FunctionCall("a", "{}")),
    ]
