"""Tests of `agent_ref` in rows of NeMo Gym, and of rows that need external tables."""

from pathlib import Path

import pytest

from tests.builders import add_up, gym, lines_of, write_rows

SUM = {"a": 1, "b": 2, "answer": 3}
REQUEST = {
    "ground_truth": [
        {"name": "email_delete_email", "arguments": '{"email_id": "00000001"}'},
    ],
    "category": "workplace_assistant_email",
    "environment_name": "workplace_assistant",
}


@pytest.fixture
def collect(working_folder, mock_server):
    """Return a function that collects rows in NeMo Gym's format."""
    mock_server.behaviour = add_up

    def run(*rows, command="collect", options=()):
        write_rows("t.jsonl", rows)
        if command == "validate":
            return gym("data", "validate", "t.jsonl", *options)
        policy = ("--model", "m", "--base-url", mock_server.base_url, "--out", "run")
        return gym("collect", "t.jsonl", *policy, *options)

    return run


def row(agent, fields=SUM, number=0):
    text = "What is 1 + 2?"
    params = {"input": [{"role": "user", "content": text}], "tools": None}
    reference = {"type": "responses_api_agents", "name": agent}
    return {"id": number, "responses_create_params": params, "agent_ref": reference, **fields}


def environments_of(run):
    return {line["env"] for line in lines_of(Path(run) / "rollouts.jsonl")}


def test_an_unknown_agent_plays_the_env_option_with_one_warning(collect):
    rows = [row("tales_gymnasium_agent", number=number) for number in range(3)]
    done = collect(*rows, options=("--env", "arithmetic"))
    assert done.exit_code == 0, done.stderr
    assert environments_of("run") == {"arithmetic"}
    assert done.stderr.count('no environment is known for the agent "tales_gymnasium_agent"') == 1

    done = collect(*rows, command="validate", options=("--env", "arithmetic"))
    assert (done.exit_code, done.stderr.count("tales_gymnasium_agent")) == (0, 1)


def test_an_unknown_agent_is_refused_with_the_option_to_use(collect, mock_server):
    done = collect(row("tales_gymnasium_agent"))
    assert done.exit_code == 2
    assert "--env tales_gymnasium_agent=ENV" in done.stderr
    assert mock_server.num_requests == 0


def test_env_maps_the_name_of_an_agent(collect):
    rows = [row("mcqa_simple_agent"), row("arithmetic_simple_agent", number=1)]
    done = collect(*rows, options=("--env", "mcqa_simple_agent=arithmetic"))
    assert done.exit_code == 0, done.stderr
    assert "agent" not in done.stderr
    assert environments_of("run") == {"arithmetic"}
    again = gym("verify", "run", "--env", "mcqa_simple_agent=arithmetic")
    assert "2 rescored, 0 changed rewards" in again.stdout


@pytest.mark.parametrize("command", ["collect", "validate"])
def test_rows_for_external_tables_are_refused_without_them(collect, mock_server, command):
    done = collect(
        row("workplace_assistant_simple_agent", REQUEST),
        command=command,
        options=("--env", "workplace_assistant"),
    )
    assert done.exit_code == 2
    said = done.stderr if command == "collect" else done.stdout
    assert said.removeprefix("error: ").startswith(
        "t.jsonl:1: the row was written for other tables"
    )
    assert "--env-arg data_dir=FOLDER" in said
    assert mock_server.num_requests == 0


@pytest.mark.parametrize("command", ["collect", "validate"])
@pytest.mark.parametrize("option", ["data_dir", "workplace_assistant.data_dir"])
def test_rows_for_external_tables_are_collected_with_them(collect, command, option):
    write_office(Path("tables"))
    done = collect(
        row("workplace_assistant_simple_agent", REQUEST),
        command=command,
        options=("--env", "workplace_assistant", "--env-arg", f"{option}=tables"),
    )
    assert done.exit_code == 0, done.stderr
    if command == "collect":
        [record] = lines_of(Path("run/rollouts.jsonl"))
        assert (record["env_options"], record["reward"]) == ({"data_dir": "tables"}, 0.0)


def test_validate_refuses_an_option_that_no_environment_has(collect):
    options = ("--env", "arithmetic", "--env-arg", "data_dri=x")
    done = collect(row("arithmetic_simple_agent"), command="validate", options=options)
    assert (done.exit_code, "no environment of this run has it" in done.stderr) == (2, True)


def write_office(folder):
    """Write tables in the reference's layout that hold a single e-mail."""
    header = "email_id,inbox/outbox,sender/recipient,subject,sent_datetime,body"
    mail = "00000001,inbox,a@b.example,Tea,2023-11-01 09:00:00,At five."
    tables = {
        "processed/emails": f"{header}\n{mail}\n",
        "processed/calendar_events": "event_id,event_name,participant_email,event_start,duration\n",
        "processed/analytics_data": (
            "date_of_visit,visitor_id,page_views,session_duration_seconds,traffic_source,"
            "user_engaged\n"
        ),
        "processed/customer_relationship_manager_data": (
            "customer_id,assigned_to_email,customer_name,customer_email,customer_phone,"
            "last_contact_date,product_interest,status,follow_up_by,notes\n"
        ),
        "processed/project_tasks": "task_id,task_name,assigned_to_email,list_name,due_date,board\n",
        "raw/email_addresses": "a@b.example\n",
    }
    for name, text in tables.items():
        path = folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
