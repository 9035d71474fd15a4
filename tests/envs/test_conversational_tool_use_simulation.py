"""The environment conversational_tool_use_simulation: simulators, judge and tasks."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.envs.conversational_tool_use_simulation import NOT_RUN, ConversationalToolUseSimulation
from gymcli.envs.conversational_tool_use_simulation.judging import JUDGE
from gymcli.envs.conversational_tool_use_simulation.simulation import SimulationTask, transcript
from gymcli.errors import RoleError
from gymcli.rollout.episode import EpisodeFailedError
from gymcli.types import FunctionCall, Message, Rollout, TaskRow, ToolCall
from tests.environment.scripted import Scripted, failing
from tests.envs.episodes import calls, cut, played, row_of_file, says, scored

NAME = "conversational_tool_use_simulation"
YES = '{"explanation": "Fine.", "success": true}'
NO = '{"explanation": "It was rude.", "success": false}'
LAMP = '{"lamp": "hall"}'


def saying(*texts):
    """Return a model that gives these answers in order and repeats the last; None is a failure."""
    left = list(texts)

    def said(_):
        text = left.pop(0) if len(left) > 1 else left[0]
        return failing("the model cannot be reached") if text is None else text

    return Scripted(said)


def judging(*failed, verdict=NO):
    """Return a judge that answers no to questions with one of these texts, and yes to others."""

    def said(prompt):
        if prompt.startswith("Your reply has no verdict"):
            return verdict
        question = prompt.rpartition("\nQuestion: ")[2]
        return verdict if any(text in question for text in failed) else YES

    return Scripted(said)


def rows(num=60):
    return list(ConversationalToolUseSimulation.generate(Random(0), num))


def own_row(number):
    fields = rows(number + 1)[number]
    prompt = [Message(role="system", content="Serve.")]
    return TaskRow(id="t", env=NAME, hash="0", messages=prompt, fields=fields)


def lamp_fields(**more):
    """Return a minimal row in the format of other sources."""
    tool = {
        "name": "switch_lamp",
        "doc": "Switch a lamp.",
        "params": {
            "type": "object",
            "properties": {"lamp": {"type": "string"}},
            "required": ["lamp"],
        },
        "returns": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}},
            "required": ["on"],
        },
        "strict": True,
    }
    scenario = {"reason_for_contact": "It is dark.", "outside_policy_scope": False}
    return {
        "policy": "Switch lamps.",
        "tools": [tool],
        "customer_scenario": scenario,
        "initial_user_message": "It is dark in the hall.",
        **more,
    }


def lamp_row(**more):
    prompt = [Message(role="system", content="Serve.")]
    fields = lamp_fields(**more)
    return TaskRow(id="t", env=NAME, hash="0", messages=prompt, fields=fields)


def roles(*, user=("###STOP###",), tool=None, judge=None):
    found = {"user": saying(*user), "judge": judge or judging()}
    return found if tool is None else {**found, "tool": saying(*tool)}


def lamp_played(*messages, fields=None, found=None, **options):
    return played(lamp_row(**(fields or {})), *messages, roles=found or roles(), **options)


def failure_of(*messages, **keywords):
    with pytest.raises(EpisodeFailedError) as caught:
        lamp_played(*messages, **keywords)
    return caught.value.__cause__


def texts(rollout):
    return [(message.role, message.text) for message in rollout.responses]


def questions(judge):
    """Return the first words of each question that a judge was asked."""
    asked = [prompt.rpartition("\nQuestion: ")[2] for prompt in judge.prompts]
    return [text.partition(":")[0] for text in asked]


def test_general_customer_tells_what_is_needed_with_the_request():
    rollout = played(own_row(0))

    opening = rollout.messages[1].text
    assert all(value in opening for value in rollout.task["facts"].values())
    assert [call.name for call in rollout.tool_calls] == ["find_loan"]


def test_proactive_customer_tells_only_what_is_asked():
    rollout = played(own_row(15))

    facts = rollout.task["facts"]
    assert not any(value in rollout.messages[1].text for value in facts.values())
    ask, told = rollout.responses[:2]
    assert all(name in ask.text for name in facts)
    assert all(value in told.text for value in facts.values())


def test_proactive_guess_fails():
    """Correct gold calls fail if they use what the customer has not told yet."""
    row = own_row(15)
    [gold] = row.fields["gold_calls"]
    guess = calls((gold["name"], msgspec.json.encode(gold["arguments"]).decode()))
    for mode in ("message", "combined"):
        rollout = played(row, guess, says(row.fields["report"]), judge_mode=mode)
        rollout = scored(rollout, judge_mode=mode)

        assert rollout.final_state["ended"] == "stop"
        assert next(m.text for m in rollout.responses if m.role == "tool").startswith('{"loan_id"')
        assert (rollout.reward, rollout.details["reason"]) == (0.0, "agent_failure")
        assert len(rollout.details["verdicts"]) == 1, "the call itself is a failure"


def test_stand_in_judge_fails_a_call_whose_argument_comes_with_its_result():
    """The arguments of a change's second call come from the result of its first call."""
    row = own_row(5)
    golds = row.fields["gold_calls"]
    named = [(gold["name"], msgspec.json.encode(gold["arguments"]).decode()) for gold in golds]
    report = says(row.fields["report"])

    assert len(golds) == 2
    assert scored(played(row, calls(*named), report)).details["reason"] == "agent_failure"
    one_by_one = [calls(call) for call in named]
    assert scored(played(row, *one_by_one, report)).reward == 1.0


def test_setup_shows_the_tools_of_the_row():
    [spec] = lamp_played(says("Hi.")).tools

    assert spec["function"]["name"] == "switch_lamp"
    assert spec["function"]["description"] == "Switch a lamp."
    assert spec["function"]["parameters"]["required"] == ["lamp"]


def test_setup_takes_rows_of_others(tmp_path):
    row = {**lamp_fields(), "id": "x", "responses_create_params": {"input": [], "tools": []}}
    row["responses_create_params"]["input"] = [{"role": "system", "content": "Any words."}]
    del row["initial_user_message"], row["responses_create_params"]["tools"]
    found = roles(user=("Customer: It is dark.", "###STOP###"))
    rollout = played(row_of_file(tmp_path, NAME, row), says("Now it is not."), roles=found)

    assert [message.text for message in rollout.messages[:2]] == ["Any words.", "It is dark."]
    assert rollout.stop_reason == "env_done"
    assert scored(rollout, roles=roles()).reward == 1.0


@pytest.mark.parametrize("schema", [{"type": "lamp"}, {"$ref": "http://127.0.0.1:9/lamp"}])
def test_step_with_a_schema_that_is_none_is_unscored(schema):
    fields = lamp_fields()
    fields["tools"][0]["returns"] = schema
    found = roles(tool=('{"on": true}',))
    error = failure_of(calls(("switch_lamp", LAMP)), fields=fields, found=found)

    assert error.phase == "role"
    assert "of the tool switch_lamp is not a JSON Schema" in str(error)


def test_setup_without_a_usable_first_message_is_no_fault_of_the_policy():
    error = failure_of(says("Hi."), fields={"initial_user_message": None})

    assert error.phase == "role"


def test_step_tells_of_a_bad_call_and_goes_on():
    found = roles(tool=('{"on": true}',))
    messages = calls(("switch_lamp", "{}"), ("no_such_tool", "{}"), ("switch_lamp", LAMP))
    rollout = lamp_played(messages, says("Done."), found=found)

    results = [message.text for message in rollout.responses if message.role == "tool"]
    assert "'lamp' is a required property" in results[0]
    assert results[1].startswith("There is no tool 'no_such_tool'.")
    assert results[2] == '{"on": true}'
    assert rollout.tool_errors == {"wrong_arguments": 1, "unknown_tool": 1}
    assert questions(found["judge"]) == [
        "Look at the customer's last message only",
        "Look at the last result of a tool only",
        "Look at the customer's last message only",
    ]
    assert scored(rollout, roles=roles()).metrics["tool_schema_failure"] == 1.0


def test_step_asks_the_tool_again_until_its_result_fits():
    tool = ("on", '{"on": "yes"}', '```json\n{"on": false}\n```')
    found = roles(tool=tool)
    rollout = lamp_played(calls(("switch_lamp", LAMP)), says("Done."), found=found)

    assert texts(rollout)[1] == ("tool", '{"on": false}')
    assert len(found["tool"].asked) == 3


def test_step_with_a_tool_that_never_fits_is_unscored():
    error = failure_of(calls(("switch_lamp", LAMP)), found=roles(tool=('{"on": 1}',)))

    assert (error.phase, "switch_lamp returned no JSON that fits" in str(error)) == ("role", True)


def test_step_reminds_the_tools_of_their_earlier_results():
    found = roles(tool=('{"on": true}', '{"on": false}'))
    lamp_played(calls(("switch_lamp", LAMP)), calls(("switch_lamp", LAMP)), says("."), found=found)

    _, call, result, last = found["tool"].asked[1].messages
    assert call.text == '{"tool":"switch_lamp","arguments":{"lamp":"hall"}}'
    assert result.text == '{"on": true}'
    assert last.text.endswith(call.text)
    assert '{"speaker":"tool","tool":"switch_lamp","result":"{\\"on\\": true}"}' in last.text


def test_step_leaves_tools_to_the_user_model_where_there_is_none_for_them():
    found = roles(user=('{"on": true}', "###STOP###"))
    rollout = lamp_played(calls(("switch_lamp", LAMP)), says("Done."), found=found)

    assert texts(rollout)[1] == ("tool", '{"on": true}')


def test_step_runs_the_calls_of_a_message_with_text():
    """The customer sees the text together with that of the next turn."""
    both = calls(("switch_lamp", LAMP))
    both.content = "One moment."
    found = roles(tool=('{"on": true}',))
    lamp_played(both, says("Done."), found=found)

    heard = [message.text for message in found["user"].asked[0].messages]
    assert heard[-2:] == ["Representative: One moment.", "Representative: Done."]


@pytest.mark.parametrize(("is_parallel", "num_run"), [(False, 1), (True, 2)])
async def test_step_runs_only_the_first_call_where_the_row_wants_one_at_a_time(
    is_parallel, num_run
):
    found = roles(tool=('{"on": true}',))
    task = SimulationTask.model_validate(lamp_fields())
    environment = ConversationalToolUseSimulation(task, roles=found)
    environment.rollout = Rollout(sampling={"parallel_tool_calls": is_parallel})
    await environment.setup()
    results = (await environment.step(calls(("switch_lamp", LAMP), ("switch_lamp", LAMP)))).messages
    assert [message.tool_call_id for message in results] == ["call_0", "call_1"]
    assert sum(message.text == '{"on": true}' for message in results) == num_run


def test_step_runs_no_more_than_32_calls_of_a_message():
    """Each call costs a call to the tool model and a question that shows the whole history."""
    found = roles(tool=('{"on": true}',))
    many = calls(*[("switch_lamp", LAMP)] * 40)
    rollout = lamp_played(many, says("Done."), found=found)

    results = [message.text for message in rollout.responses if message.role == "tool"]
    assert results == ['{"on": true}'] * 32 + [NOT_RUN] * 8
    assert len(found["tool"].asked) == 32
    assert questions(found["judge"]).count("Look at the last result of a tool only") == 32


def test_final_state_makes_its_prompts_when_they_are_asked():
    """Built in advance, they would take memory quadratic in the number of messages."""
    found = roles(tool=('{"on": true}',), judge=saying(None))
    rollout = lamp_played(calls(*[("switch_lamp", LAMP)] * 32), says("Done."), found=found)

    assert rollout.final_state == {"ended": "stop"}
    assert len(found["judge"].asked) == 16


def test_final_state_judges_every_message_once_and_in_order():
    found = roles(tool=('{"on": true}',))
    lamp_played(calls(*[("switch_lamp", LAMP)] * 32), says("Done."), found=found)

    shown = [prompt.count('"speaker":"tool"') for prompt in found["judge"].prompts]
    assert shown == [*range(33), 32]


def test_step_ends_after_50_messages_of_the_representative():
    rollout = lamp_played(says("Still on it."), found=roles(user=("Go on.",)))

    assert sum(message.role == "assistant" for message in rollout.responses) == 50
    assert rollout.stop_reason == "max_turns"


def test_simulators_sample_as_the_source_does_and_the_judge_as_its_role_says():
    found = roles(tool=('{"on": true}',))
    rollout = lamp_played(calls(("switch_lamp", LAMP)), says("Done."), found=found)
    scored(rollout, roles=found)

    params = {role: [asked.params for asked in model.asked] for role, model in found.items()}
    assert params["user"] == params["tool"] == [{"temperature": 1.0}]
    assert set(map(str, params["judge"])) == {"None"}


@pytest.mark.parametrize(("said", "num"), [("Thanks. ###STOP###", 2), ("###STOP###", 2)])
def test_judge_sees_the_ending_with_the_last_words_of_the_customer(said, num):
    found = roles(user=(said,))
    lamp_played(says("Done."), found=found)

    shown = found["judge"].prompts
    assert ['"ends":"stop"' in text for text in shown] == [False, True]
    assert len(shown) == num


@pytest.mark.parametrize(
    ("said", "ended", "recorded"),
    [
        ("Thanks. ###STOP###", "stop", [("user", "Thanks.")]),
        ("###STOP###", "stop", []),
        ("Well. ###TRANSFER###", "transfer", [("user", "Well.")]),
    ],
)
def test_step_ends_where_the_customer_does(said, ended, recorded):
    rollout = lamp_played(says("Done."), found=roles(user=(said,)))

    assert rollout.stop_reason == "env_done"
    assert rollout.final_state["ended"] == ended
    assert texts(rollout)[1:] == recorded


def test_step_ends_at_an_empty_message():
    found = roles()
    rollout = lamp_played(says(" "), found=found)

    assert (rollout.stop_reason, rollout.final_state) == ("env_done", {"ended": "none"})
    assert not found["user"].asked


def test_step_breaks_markers_of_the_policy():
    found = roles(user=("What?", "###STOP###"))
    lamp_played(says("Say ###STOP###"), says("Done."), found=found)

    assert not any("Say ###STOP###" in message.text for message in found["user"].asked[0].messages)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (says("Still on it."), "unfinished"),
        (cut(says("It is")), "unfinished"),
        (says(" "), "no_answer"),
    ],
)
def test_verify_of_a_conversation_that_did_not_end_asks_no_judge(last, reason):
    found = roles(user=("Go on.",))
    rollout = scored(lamp_played(last, found=found, max_turns=3), roles=found)

    assert (rollout.reward, rollout.details) == (0.0, {"reason": reason})
    assert not found["judge"].asked


@pytest.mark.parametrize(
    ("said", "is_beyond", "reason"),
    [("###TRANSFER###", False, "wrong_transfer"), ("###STOP###", True, "missing_transfer")],
)
def test_verify_of_a_wrong_ending_asks_no_judge(said, is_beyond, reason):
    fields = {"customer_scenario": {"outside_policy_scope": is_beyond}}
    found = roles(user=(said,))
    rollout = scored(lamp_played(says("Bye."), fields=fields, found=found), roles=found)

    assert (rollout.reward, rollout.details) == (0.0, {"reason": reason})
    assert rollout.metrics["transfer_mismatch"] == 1.0
    assert not found["judge"].asked


def test_verify_leaves_transfers_to_the_judge_where_they_are_not_enforced():
    found = roles(user=("###TRANSFER###",))
    rollout = lamp_played(says("Bye."), found=found, enforce_transfer=False)

    again = scored(rollout, roles=found, enforce_transfer=False)
    assert (again.reward, again.metrics["transfer"]) == (1.0, 1.0)


def test_verify_asks_of_every_message_and_then_of_the_whole():
    found = roles(user=("And?", "###STOP###"))
    rollout = lamp_played(says("Hello."), says("Done."), found=found)
    judge = judging()
    rollout = scored(rollout, roles={**found, "judge": judge})

    assert rollout.reward == 1.0
    assert questions(judge) == [
        "Look at the representative's last message only, with its calls",
        "Look at the representative's last message only, with its calls",
        "Look at everything that the representative did",
    ]
    shown = judge.prompts
    assert ['"says":"Done."' in text for text in shown] == [False, True, True]
    assert ['"ends":"stop"' in text for text in shown] == [False, False, True]
    assert rollout.details["verdicts"][0]["label"] == "true"


@pytest.mark.parametrize(
    ("failed", "num_asked"), [("last message only, with", 1), ("Look at everything", 2)]
)
def test_verify_stops_at_the_first_failure(failed, num_asked):
    judge = judging(failed, verdict=NO)
    rollout = scored(lamp_played(says("Done.")), roles=roles(judge=judge))

    assert (rollout.reward, rollout.details["reason"]) == (0.0, "agent_failure")
    assert rollout.metrics["agent_failure"] == 1.0
    assert len(judge.asked) == len(rollout.details["verdicts"]) == num_asked


@pytest.mark.parametrize("text", ["customer's last", "result of a tool"])
def test_final_state_with_a_simulator_out_of_its_part_is_unscored(text):
    found = roles(tool=('{"on": true}',), judge=judging(text))
    error = failure_of(calls(("switch_lamp", LAMP)), says("Done."), found=found)

    assert (error.phase, "did not keep to their part: It was rude." in str(error)) == ("role", True)


def test_verify_scores_nothing_without_a_verdict():
    found = roles(judge=judging("last message only, with", verdict="Hm."))
    with pytest.raises(RoleError, match="no readable verdict"):
        scored(lamp_played(says("Done."), found=roles()), roles=found)


def test_final_state_leaves_a_verdict_that_cannot_be_read_to_verify():
    found = roles(judge=judging("customer's last", verdict="Hm."))
    rollout = lamp_played(says("Done."), found=found)

    assert "simulator_verdicts" not in rollout.final_state
    with pytest.raises(RoleError, match="no readable verdict"):
        scored(rollout, roles=found)


def test_verify_judges_the_simulators_where_that_failed_before():
    rollout = lamp_played(says("Done."), found=roles(judge=saying(None)))

    assert rollout.final_state == {"ended": "stop"}
    assert len(scored(rollout, roles=roles()).details["simulator_verdicts"]) == 2
    with pytest.raises(RoleError, match="did not keep to their part"):
        scored(rollout, roles=roles(judge=judging("customer's last")))
    with pytest.raises(RoleError, match="cannot be reached"):
        scored(rollout, roles=roles(judge=saying(None)))


def test_verify_takes_simulators_at_their_word_where_it_is_told_to():
    judge = judging("customer's last", "result of a tool")
    rollout = lamp_played(says("Done."), found=roles(judge=judge), judge_simulators=False)

    assert not judge.asked
    assert scored(rollout, roles=roles(judge=judge), judge_simulators=False).reward == 1.0


def parties(*, customer=True, tools=True, representative=True):
    named = {"customer": customer, "tools": tools, "representative": representative}
    flags = {f"{name}_success": is_right for name, is_right in named.items()}
    return msgspec.json.encode({"explanation": "Because.", **flags}).decode()


@pytest.mark.parametrize("is_right", [True, False])
def test_verify_combined_asks_the_same_question_once_more(is_right):
    """In a run, the second question is answered from the recorded verdict."""
    judge = saying(parties(representative=is_right))
    found = roles(judge=judge)
    rollout = lamp_played(says("Done."), found=found, judge_mode="combined")
    rollout = scored(rollout, roles=found, judge_mode="combined")

    assert rollout.reward == float(is_right)
    assert len(judge.asked) == 2
    assert judge.asked[0].messages == judge.asked[1].messages


@pytest.mark.parametrize(("name", "party"), [("customer", "customer"), ("tools", "tools")])
def test_final_state_combined_with_a_simulator_out_of_its_part_is_unscored(name, party):
    found = roles(judge=saying(parties(**{name: False})))
    error = failure_of(says("Done."), found=found, judge_mode="combined")

    assert str(error) == f"the simulated {party} did not keep to their part: Because."


@pytest.mark.parametrize(
    ("text", "ended"),
    [("Hm.", "unfinished"), ("Bye ###STOP###", "correct"), ("###TRANSFER###", "wrong_transfer")],
)
def test_verify_reads_the_ending_of_rollouts_of_others_from_their_markers(text, ended):
    messages = [says("Done."), Message(role="user", content=text)]
    rollout = Rollout(env=NAME, task=lamp_fields(), messages=messages)

    assert scored(rollout, roles=roles()).details["reason"] == ended


def test_verify_passes_over_messages_of_thought():
    found = roles()
    rollout = lamp_played(Message(role="assistant", reasoning="Hm."), says("Done."), found=found)
    judge = judging()

    assert scored(rollout, roles=roles(judge=judge)).reward == 1.0
    assert len(judge.asked) == 2


def test_judge_of_proactive_rows_is_told_to_fail_guesses():
    asked = []
    for profile in ("general", "proactive"):
        judge = judging()
        rollout = lamp_played(says("Done."), fields={"profile": profile})
        scored(rollout, roles=roles(judge=judge))
        asked.append(["it had to be asked for" in prompt for prompt in judge.prompts])

    assert asked == [[False, False], [True, True]]


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text()), min_size=1))
def test_transcript_has_one_line_for_each_message(spoken):
    messages = [Message(role=role, content=text, tool_call_id="c") for role, text in spoken]
    lines = transcript(messages, "stop").split("\n")

    heard = [msgspec.json.decode(line) for line in lines[:-1]]
    assert [line.get("says", line.get("result")) for line in heard] == [t for _, t in spoken]
    assert lines[-1] == '{"speaker":"customer","ends":"stop"}'


def test_transcript_names_tools_where_ids_come_again():
    messages = []
    for name in ("first", "second"):
        call = ToolCall(id="call_0", function=FunctionCall(name, "{"))
        messages.append(Message(role="assistant", tool_calls=[call]))
        messages.append(Message(role="tool", tool_call_id="call_0", content="1"))
    lines = [msgspec.json.decode(line) for line in transcript(messages).split("\n")]

    assert [line["tool"] for line in lines if "tool" in line] == ["first", "second"]
    assert lines[0]["calls"] == [{"tool": "first", "arguments": "{"}]


def test_oracle_of_rows_of_others_is_none():
    with pytest.raises(EpisodeFailedError, match="no oracle"):
        played(lamp_row(), roles=roles())


def gold_record(number):
    rollout = played(own_row(number))
    rollout.final_state = {"ended": rollout.final_state["ended"]}
    return rollout


@pytest.mark.parametrize("number", [0, 6, 25])
@pytest.mark.parametrize("mode", ["message", "combined"])
def test_stand_in_judge_passes_the_gold(number, mode):
    rollout = gold_record(number)

    assert scored(rollout, judge_mode=mode).reward == 1.0


@pytest.mark.parametrize("mode", ["message", "combined"])
def test_stand_in_judge_fails_other_calls_and_other_words(mode):
    for change in ("arguments", "words", "missing", "needless"):
        rollout = gold_record(10)
        turns = [message for message in rollout.responses if message.tool_calls]
        if change == "arguments":
            turns[-1].tool_calls[0].function.arguments = "{"
        elif change == "words":
            rollout.messages[-2].content = "I have looked after it."
        elif change == "needless":
            turns[0].tool_calls = [*turns[0].tool_calls, *turns[0].tool_calls]
            turns[0].tool_calls[1] = ToolCall("x", FunctionCall("open_handover", "{}"))
        else:
            place = rollout.messages.index(turns[0])
            del rollout.messages[place : place + 2]

        again = scored(rollout, judge_mode=mode)
        assert (again.reward, again.details["reason"]) == (0.0, "agent_failure"), change


@pytest.mark.parametrize("mode", ["message", "combined"])
def test_stand_in_judge_fails_a_result_that_is_not_the_gold(mode):
    rollout = gold_record(10)
    result = next(message for message in rollout.responses if message.role == "tool")
    result.content = '{"loan_id": "other"}'

    with pytest.raises(RoleError, match="tools did not keep"):
        scored(rollout, judge_mode=mode)


@pytest.mark.parametrize("mode", ["message", "combined"])
def test_stand_in_judge_fails_a_customer_who_tells_what_nobody_asked(mode):
    rollout = gold_record(15)
    rollout.messages[1].content += f" My number is {rollout.task['facts']['card number']}."

    with pytest.raises(RoleError, match="customer"):
        scored(rollout, judge_mode=mode)


def test_stand_ins_play_rows_without_a_gold():
    fields = lamp_fields(initial_user_message=None)
    fields["tools"][0]["returns"] = {
        "type": "object",
        "properties": {"state": {"enum": ["on", "off"]}, "watts": {"type": "number"}, "x": {}},
    }
    fields["tools"].append({"name": "list_lamps"})
    task = SimulationTask.model_validate(fields)
    found = {**ConversationalToolUseSimulation.stand_ins(task), "judge": judging()}
    message = calls(("switch_lamp", LAMP), ("list_lamps", ""))
    rollout = played(lamp_row(**fields), message, says("Done."), roles=found, max_turns=3)

    assert rollout.messages[1].text == "It is dark."
    assert texts(rollout)[1:3] == [
        ("tool", '{"state":"on","watts":0,"x":null}'),
        ("tool", "null"),
    ]
    assert texts(rollout)[-1] == ("user", "I do not know. Can you do what I asked for, please?")


def test_rows_beyond_the_policy_end_in_a_transfer():
    beyond = [row for row in rows() if row["customer_scenario"]["outside_policy_scope"]]

    assert len(beyond) == 8
    assert all([call["name"] for call in row["gold_calls"]] == ["open_handover"] for row in beyond)


def test_rows_cannot_be_served_without_what_the_customer_knows():
    for row in rows():
        assert set(row["gold_calls"][0]["arguments"].values()) == set(row["facts"].values())
        assert not any(fact in row["policy"] for fact in row["facts"].values())
        assert row["report"] not in row["policy"]


def test_rows_have_no_sentence_into_which_a_name_does_not_fit():
    """Devices, plants and book titles take different articles, so they are written as a list."""
    for row in rows():
        known = row["customer_scenario"]["customer_details"]
        assert known == ", ".join(f'{name} "{fact}"' for name, fact in row["facts"].items())


def test_rows_of_hard_tasks_have_a_record_that_may_not_be_changed():
    for row in rows():
        record = row["gold_calls"][0]["result"]
        if row["difficulty"] != "easy" and "num_changes" in record:
            is_allowed = f"is below {record['num_changes']}." not in row["policy"]
            assert is_allowed == (row["difficulty"] == "medium")


def test_judge_reads_no_objects_that_disagree():
    assert JUDGE.parse(f"It said {NO}, and that is right. {YES}")[0] is None
    assert JUDGE.parse(f"It did {YES}. {YES}")[0] == "true"
