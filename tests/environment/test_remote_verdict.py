import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.environment.remote_session import MAX_DETAILS, check_verdict, own_fields, score_of
from gymcli.errors import VerifierError


def test_own_fields_leaves_out_the_echo():
    row = {"id": 1, "expected": 5, "reward": 1.0, "changed": 1}
    answer = {
        **row,
        "responses_create_params": {"input": []},
        "response": {"id": "r"},
        "reward": 1.0,
        "changed": 2,
        "extracted_answer": None,
        "judge": None,
    }
    found = own_fields(answer, row)
    assert found == {"reward": 1.0, "changed": 2, "extracted_answer": None}


def test_score_of_sorts_what_the_server_said():
    score = score_of(
        {
            "reward": 2,
            "reward_components": {"format": 1.0, "correct": True, "note": "x"},
            "format": 1.0,
            "library_reward": 0.5,
            "is_equal": False,
            "extracted_answer": "7",
            "reason": "equal",
            "judge": {"label": "A=B"},
            "mask_sample": False,
        }
    )
    assert score.reward == 2.0
    assert score.components == {"format": 1.0, "correct": 1.0}
    assert score.metrics == {"library_reward": 0.5, "is_equal": 0.0}
    assert score.answer == "7"
    assert score.details == {"reason": "equal", "judge": {"label": "A=B"}}


def test_score_of_an_answer_that_is_no_text():
    score = score_of({"reward": 1.0, "extracted_answer": [1, 2], "reward_components": 3})
    assert score.answer is None
    assert score.details == {"extracted_answer": [1, 2]}
    assert score.components == {}


def test_score_of_long_details_names_what_it_leaves_out():
    score = score_of({"reward": 0.0, "a": "x" * MAX_DETAILS, "b": "short"})
    assert score.details == {"b": "short", "left_out": ["a"]}


@given(texts=st.dictionaries(st.text(max_size=5), st.text(max_size=6000), max_size=6))
def test_score_of_has_details_of_a_bounded_size(texts):
    details = score_of({**{f"_{name}": text for name, text in texts.items()}, "reward": 1}).details
    assert sum(len(msgspec.json.encode(v)) for v in details.values()) <= MAX_DETAILS + 100


def test_check_verdict_names_the_judge_that_failed():
    answer = {"reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "x\ny"}
    with pytest.raises(VerifierError, match=r"^POST /verify: .*judge_failed \(x y\)$"):
        check_verdict(answer, "POST /verify")


def test_check_verdict_takes_a_number():
    check_verdict({"reward": 0, "mask_sample": False, "failure_kind": "slow"}, "POST /verify")
