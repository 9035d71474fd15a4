"""The environment reasoning_gym: entries of the library, their scores, and its failures."""

import asyncio
import decimal
import json
import os
import re
import subprocess
import sys
import threading
from importlib.metadata import version
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymcli.envs import load_generator
from gymcli.envs.reasoning_gym import Puzzle, ReasoningGym, extracted
from gymcli.envs.reasoning_gym.library import UNPLAYABLE, Address, entry_at, evaluate, guarded
from gymcli.envs.reasoning_gym.scoring import Outcome
from gymcli.envs.reasoning_gym.scoring import scored as scored_here
from gymcli.errors import MissingPackageError, VerifierError, VerifierTimeoutError
from gymcli.rollout.episode import EpisodeFailedError
from gymcli.types import Rollout, TaskRow
from tests.envs.episodes import answered, played, row_of_file, says, scored

generator = load_generator("reasoning_gym")

SIX = "2 \u00d7 3"

WITHOUT_ORACLE = {"boxnet", "rush_hour"}
"""Generators whose entries have neither an answer nor an example."""

UNCLOSED = "ignore:unclosed file:ResourceWarning"
"""A package that reasoning-gym uses leaves a data file open."""


def row(**fields):
    return TaskRow(id="t", env="reasoning_gym", hash="0", messages=[], fields=fields)


def entry(name, gold, **metadata):
    return {"question": "?", "answer": gold, "metadata": {"source_dataset": name, **metadata}}


def judged(name, gold, text, options=None, **metadata):
    record = answered("reasoning_gym", entry(name, gold, **metadata), text)
    return scored(record, **options or {})


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("<answer>12</answer>", "12", id="tags"),
        pytest.param("<answer>\n 1 2\n3 \n</answer>", "1 2\n3", id="lines"),
        pytest.param("<answer>1</answer> no, <answer>2</answer>", "2", id="last tags"),
        pytest.param("<answer>1</answer> no, <answer>2", "1", id="not closed"),
        pytest.param("<answer>1 <answer>2</answer>", "1 <answer>2", id="opened twice"),
        pytest.param("<answer>1</answer> 2</answer>", "1", id="closed twice"),
        pytest.param("<answer></answer> 3", "", id="empty tags"),
        pytest.param("<ANSWER>1</ANSWER>", "<ANSWER>1</ANSWER>", id="capitals"),
        pytest.param(r"\boxed{2} <answer>1</answer>", "1", id="tags before boxes"),
        pytest.param(r"\boxed{1} or \boxed{2}", "1", id="first box"),
        pytest.param(r"\boxed{ 1 }", "1", id="box with spaces"),
        pytest.param(r"\boxed{}\boxed{2}", "2", id="empty box"),
        pytest.param(r"\boxed{\frac{1}{2}}", r"\frac{1", id="up to the first brace"),
        pytest.param(r"\boxed{1", r"\boxed{1", id="open box"),
        pytest.param("  It is 12.\n", "It is 12.", id="all of it"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_extracted_finds_the_answer(text, answer):
    assert extracted(text) == answer


@given(st.lists(st.sampled_from(["<answer>", "</answer>", "\\boxed{", "}", "{", " ", "\n", "a"])))
def test_extracted_finds_what_the_patterns_of_the_source_do(pieces):
    text = "".join(pieces)

    tags = re.findall(r"<answer>\s?(.*?)\s?</answer>", text, re.DOTALL)
    box = re.search(r"\\boxed\{([^}]+)\}", text)
    assert extracted(text) == (tags[-1] if tags else box[1] if box else text).strip()


@pytest.mark.parametrize("piece", ["<answer>", "</answer>", "\\boxed{", "\\boxed{}"])
def test_extracted_takes_all_of_a_text_that_only_opens_and_closes(piece):
    """The source's patterns would take minutes on some of these."""
    assert extracted(piece * 100_000) == piece * 100_000


@pytest.mark.parametrize(
    ("name", "gold", "text", "reward", "reason"),
    [
        pytest.param("caesar_cipher", "OLD HAT", "OLD HAT", 1.0, "right", id="right"),
        pytest.param("caesar_cipher", "OLD HAT", "NEW HAT", 0.0, "wrong", id="wrong"),
        pytest.param("caesar_cipher", "OLD", "OLD HAT", 3 / 7, "partly_right", id="partial"),
        pytest.param("caesar_cipher", "OLD", "", 0.0, "no_answer", id="empty"),
        pytest.param(
            "binary_matrix", "0 1\n1 0", "[[0, 1], [1, 0]]", 0.1, "partly_right", id="list"
        ),
        pytest.param("chain_sum", "7", "7.0", 1.0, "right", id="number"),
        pytest.param("prime_factorization", SIX, "3 \u00d7 2", 1.0, "right", id="another order"),
        pytest.param("prime_factorization", SIX, "nan", 0.0, "unreadable", id="raises"),
        pytest.param("prime_factorization", SIX, "9" * 5000, 0.0, "unreadable", id="digits"),
    ],
)
def test_verify_gives_the_reward_of_the_scorer(name, gold, text, reward, reason):
    rollout = judged(name, gold, f"<answer>{text}</answer>")

    assert rollout.reward == pytest.approx(reward)
    assert rollout.details == {"reason": reason, "expected": gold}
    assert rollout.answer == (text[:1000] or None)


def test_verify_reads_the_text_of_all_turns():
    record = answered("reasoning_gym", entry("chain_sum", "7"), "<answer>7", "</answer> So it is.")

    assert scored(record).reward == 1.0


def test_verify_reads_nothing_but_tags_where_an_option_says_so():
    for text, reward, reason in (
        ("<answer>7</answer>", 1.0, "right"),
        ("<answer></answer>", 0.0, "no_answer"),
        ("7", 0.0, "no_answer"),
        (r"\boxed{7}", 0.0, "no_answer"),
        ("", 0.0, "no_answer"),
    ):
        rollout = judged("chain_sum", "7", text, {"answer_place": "tags"})

        assert (rollout.reward, rollout.details["reason"]) == (reward, reason), text
        assert rollout.answer == ("7" if reward else None)
    assert judged("chain_sum", "7", "7").reward == 1.0


def test_verify_scores_nothing_where_the_gold_answer_fails_too():
    with pytest.raises(VerifierError, match=r"cannot score the gold answer .* ValueError: invalid"):
        judged("prime_factorization", "two", "nan")
    with pytest.raises(VerifierError, match=r"cannot score the gold answer .* KeyError"):
        judged("rubiks_cube", None, "U U", example_correct_answer="R")


class Answers:
    """A context whose `isolated` returns or raises the given outcomes in order."""

    def __init__(self, *outcomes):
        self.options = ReasoningGym.Options()
        self.outcomes = list(outcomes)

    async def isolated(self, function, answer, *rest, timeout, imports):
        assert (function, timeout) == (scored_here, 10.0)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_verify_blames_the_answer_where_the_library_takes_the_gold_one():
    record = answered("reasoning_gym", entry("chain_sum", "7"), "<answer>8</answer>")
    error = VerifierError("needed more than 1024 MB")

    found = asyncio.run(ReasoningGym.verify(record, Answers(error, Outcome(1.0, ""))))
    assert (found.reward, found.details["reason"], found.answer) == (0.0, "too_large", "8")
    with pytest.raises(VerifierError, match="gold answer of this task: KeyError"):
        asyncio.run(ReasoningGym.verify(record, Answers(error, Outcome(None, "KeyError"))))
    with pytest.raises(type(error), match=str(error)):
        asyncio.run(ReasoningGym.verify(record, Answers(error, error)))


def test_verify_scores_nothing_that_runs_away():
    """A timeout depends on the machine, so it must not become a score."""
    with pytest.raises(VerifierTimeoutError, match=r"scored took longer than 0\.5 seconds"):
        judged("coin_flip", "1", "<answer>1e999999999</answer>", {"library_timeout": 0.5})


def test_scored_leaves_a_lack_of_memory_to_the_worker(monkeypatch):
    """The worker process ends then; any other exception of a scorer is the answer's fault."""
    from reasoning_gym import factory

    class Endless:
        def __init__(self, config):
            self.config = config

        def score_answer(self, answer, entry):
            raise MemoryError

    config = factory.DATASETS["chain_sum"][1]
    monkeypatch.setitem(factory.DATASETS, "chain_sum", (Endless, config))
    with pytest.raises(MemoryError):
        scored_here("8", entry("chain_sum", "7"), Address("chain_sum", {}, 0, 0))


@pytest.mark.parametrize(
    ("name", "gold", "text", "reward", "reason"),
    [
        pytest.param("number_sorting", "['1', '2']", "[NaN, NaN]", 0, "unreadable", id="NaN"),
        pytest.param("number_sorting", "['1', '2']", "[1, 2]", 1, "right", id="numbers"),
        pytest.param("complex_arithmetic", "1.0 + 2.0i", "nan", 0, "unreadable", id="nan"),
        pytest.param("complex_arithmetic", "1.0 + 2.0i", "0 + nani", 0, "unreadable", id="nani"),
        pytest.param("complex_arithmetic", "1.0 + 2.0i", "-inf", 0, "unreadable", id="inf"),
        pytest.param("chain_sum", "7", "Infinity", 0, "unreadable", id="Infinity"),
        pytest.param("chain_sum", "nan 7", "nan 7", 1, "right", id="gold NaN"),
        pytest.param("caesar_cipher", "OLD NAN", "NAN", 0, "wrong", id="word"),
        pytest.param("countdown", "4 * 6", " 6 * (4) ", 1, "right", id="four operators"),
        pytest.param("countdown", "4 * 6", "0x18 # 4 6", 0, "unreadable", id="comment"),
        pytest.param("countdown", "4 * 6", "2_4 + 0*(4 + 6)", 0, "unreadable", id="underscore"),
        pytest.param("countdown", "4 * 6", "23.4 + .6", 0, "unreadable", id="decimals"),
        pytest.param("countdown", "4 * 6", "4 ** 6", 0, "unreadable", id="power"),
        pytest.param("countdown", "4 * 6", "4 // 6", 0, "unreadable", id="whole quotient"),
        pytest.param("countdown", "4 * 6", "4*6 = 24", 0, "unreadable", id="equation"),
        pytest.param("countdown", "4 * 6", "4 + 6", 0.05, "partly_right", id="another value"),
        pytest.param("countdown", "4 * 6", "", 0.01, "no_answer", id="nothing"),
        pytest.param("puzzle24", "3*8*(2-1)", "(2-1)*3*8", 1, "right", id="own numbers"),
        pytest.param("puzzle24", "3*8*(2-1)", "4*6*1*1", 0.01, "partly_right", id="others"),
        pytest.param("puzzle24", "3*8*(2-1)", "8*3+1/2", 0.01, "partly_right", id="24.5"),
        pytest.param("puzzle24", "3*8*(2-1)", "8 / (2/3 - 1/3)", 0.01, "partly_right", id="twice"),
        pytest.param("puzzle24", "8/(3-8/3)", "8/(3 - 8/3)", 1, "right", id="fractions on the way"),
        pytest.param("puzzle24", "3*8*(2-1)", "0x18", 0, "unreadable", id="hexadecimal"),
        pytest.param("spell_backward", "tsibroeht", "TSIBROEHT", 1, "right", id="capitals"),
        pytest.param("spell_backward", "tsibroeht", "tsibroehts", 0.8, "partly_right", id="more"),
        pytest.param("spell_backward", "ainomma", "ainomma or", 0.8, "partly_right", id="rounded"),
        pytest.param("coin_flip", "0.125", "0.12501", 1, "right", id="near"),
        pytest.param("coin_flip", "0.125", "1/8", 1, "right", id="fraction"),
        pytest.param("coin_flip", "0.125", "0", 0.2, "partly_right", id="prefix"),
        pytest.param("coin_flip", "1", "11", 0.5, "partly_right", id="longer"),
        pytest.param("game_of_life_halting", "False", "It is false.", 1, "right", id="its word"),
        pytest.param("game_of_life_halting", "False", "True", 0, "wrong", id="other word"),
        pytest.param("game_of_life_halting", "False", "true or false", 0, "wrong", id="both"),
        pytest.param("game_of_life_halting", "True", "yes", 0, "wrong", id="neither"),
    ],
)
def test_verify_corrects_scores_of_the_library(name, gold, text, reward, reason):
    metadata = {"target": 24, "numbers": [4, 6], "result": [1.0, 2.0], "direction": "ascending"}

    rollout = judged(name, gold, f"<answer>{text}</answer>", **metadata)
    assert rollout.reward == pytest.approx(reward)
    assert rollout.reward <= 1.0
    assert rollout.details == {"reason": reason, "expected": gold}


@pytest.mark.parametrize(
    ("name", "gold", "text", "reward"),
    [
        ("simple_integration", "x**2 + C", "x**2", 1.0),
        ("simple_integration", "x**2 + C", "Integral(2*x, x)", 0.0),
        ("intermediate_integration", "Integral(2*x, x) + C", "Integral(2*x, x)", 1.0),
    ],
)
def test_verify_takes_an_integral_only_where_the_gold_answer_has_one(name, gold, text, reward):
    rollout = judged(name, gold, text, variable="x", integrand="2*x")

    assert rollout.reward == reward


@pytest.mark.parametrize(
    ("name", "gold", "metadata", "text"),
    [
        pytest.param("spiral_matrix", "1 2", {}, "[{call}]", id="list"),
        pytest.param("polynomial_multiplication", "x", {}, "{call} + x", id="sympy"),
        pytest.param("polynomial_multiplication", "x", {}, "sqrt({text}) + x", id="text in sympy"),
        pytest.param("puzzle24", "4*6", {}, "({call}) or 24", id="parse_expr"),
        pytest.param(
            "simple_integration", "x", {"variable": "x", "integrand": "{call}"}, "x", id="metadata"
        ),
        pytest.param("bitwise_arithmetic", "0x1", {"problem": "{call}"}, "0x1", id="the row"),
    ],
)
def test_verify_runs_no_answer_as_a_program(tmp_path, name, gold, metadata, text):
    touched = tmp_path / "touched"
    call = f"__import__('pathlib').Path({str(touched)!r}).touch()"
    values = {"call": call, "text": repr(call)}
    filled = {key: value.format(**values) for key, value in metadata.items()}

    assert judged(name, gold, text.format(**values), **filled).reward <= 0.01
    assert not touched.exists()


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("[['a', 1], (-2.5,)]", [["a", 1], (-2.5,)]),
        (" {'a': [True, None]}", {"a": [True, None]}),
        ("(0x42 - 0x1) << 2", 260),
        ("2**3 // 3 % 2", 0),
    ],
)
def test_evaluate_gives_what_eval_does(source, value):
    assert evaluate(source) == value


def test_evaluate_refuses_all_but_terms_and_lists(subtests):
    cases = [
        "(1).real",
        "open('x')",
        "abs(x=1)",
        "[n for n in (1, 2)]",
        "lambda: 1",
        "f'{1}'",
        "'a'[0]",
        "1 if 2 else 3",
        "__import__",
        "(x := 1)",
        "sqrt(4)(5)",
        "await x",
        "-" * 100_000 + "1",
        "[" * 5000,
    ]
    for source in cases:
        with subtests.test(source=source), pytest.raises((ValueError, SyntaxError)):
            evaluate(source)


def test_evaluate_calls_functions_of_the_given_names_alone():
    assert evaluate("sqrt(x)", {"sqrt": str}, {"x": 2}) == "2"
    assert evaluate("root(2)", {"root": str}, names=frozenset({"root"})) == "2"
    with pytest.raises(ValueError, match="neither a term nor a list: 'root"):
        evaluate("root(x)", {"root": str}, {"x": 2})


def test_guarded_covers_the_library_for_as_long_as_it_scores():
    from reasoning_gym.algorithmic import spiral_matrix
    from sympy.parsing import sympy_parser

    with guarded(frozenset({"root"})):
        for module in (spiral_matrix, sympy_parser):
            assert module.eval("root(2)", {"root": str}) == "2"
            with pytest.raises(ValueError, match="neither a term nor a list"):
                module.eval("print(2)")
    assert not hasattr(spiral_matrix, "eval")
    assert not hasattr(sympy_parser, "eval")


def test_setup_asks_the_question_of_an_address():
    rollout = played(row(generator="chain_sum", seed=4, index=2), says("?"))

    [asked] = rollout.messages[:1]
    made = entry_at(Address("chain_sum", {}, 4, 2))
    assert asked.role == "user"
    assert asked.text.startswith(made["question"])
    assert "<answer>" in asked.text
    assert rollout.num_prompt_messages == 1
    assert rollout.final_state == {"library_version": version("reasoning-gym"), "entry": made}


def test_setup_takes_the_config_of_an_address():
    config = {"min_terms": 9, "max_terms": 9, "size": 3000}
    made = entry_at(Address("chain_sum", config, 0, 2000))

    assert len(re.findall(r"[+-]", made["question"])) == 8


def test_setup_gives_up_an_entry_that_takes_too_long():
    """Four ones never add up to 24. The next entry can be made, and no thread keeps running."""
    before = set(threading.enumerate())
    config = {"operators": ["+"], "max_value": 1}

    with pytest.raises(
        EpisodeFailedError, match=r"longer than 0\.2 seconds to make entry 0 of 'puzzle24'"
    ):
        played(row(generator="puzzle24", config=config), says("24"), generator_timeout=0.2)
    assert played(row(generator="chain_sum"), says("?")).stop_reason == "done"
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
    assert ReasoningGym.Options().generator_timeout == 60.0


def test_setup_names_the_entry_that_the_library_fails_at():
    config = {"min_numbers": 2, "max_numbers": 2, "max_value": 1, "min_target": 998}

    with pytest.raises(EpisodeFailedError, match="cannot make entry 0 of 'countdown': ValueError"):
        played(row(generator="countdown", config=config), says("?"))


def test_entry_at_prints_nothing(capfd):
    entry_at(Address("bf", {}, 0, 0))

    assert capfd.readouterr() == ("", "")


def test_entry_at_makes_the_same_entry_after_any_other():
    """decimal_arithmetic sets the precision of all decimals of the process."""
    one = Address("decimal_chain_sum", {"max_digits": 9}, 3, 1)
    made = entry_at(one)

    other = entry_at(Address("decimal_arithmetic", {"precision": 6}, 3, 1))
    scored_here(other["answer"], other, Address("decimal_arithmetic", {"precision": 6}, 3, 1))
    assert decimal.getcontext().prec == 28
    assert entry_at(one) == made


def test_verify_scores_the_question_on_record_not_the_one_of_today():
    rollout = played(row(generator="caesar_cipher"), says("<answer>OLD HAT</answer>"))
    assert scored(rollout).reward == 0.0

    rollout.final_state["entry"]["answer"] = "OLD HAT"
    assert scored(rollout).reward == 1.0


def test_verify_makes_the_question_of_an_answer_from_elsewhere():
    """The library version that asked it is unknown, so it is taken to be the installed one."""
    address = {"generator": "chain_sum", "seed": 4, "index": 2}
    gold = entry_at(Address("chain_sum", {}, 4, 2))["answer"]

    assert scored(answered("reasoning_gym", address, f"<answer>{gold}</answer>")).reward == 1.0
    assert scored(answered("reasoning_gym", address, "<answer>-</answer>")).reward < 1.0


def test_verify_says_where_a_record_has_no_question():
    record = answered("reasoning_gym", {"generator": "ransom_note"}, "True")
    with pytest.raises(VerifierError, match=r"no final_state.* ransom_note makes a different one"):
        scored(record)

    unasked = scored(Rollout(env="reasoning_gym", task={"generator": "chain_sum"}))
    assert (unasked.reward, unasked.details) == (0.0, {"reason": "no_answer"})


def test_verify_scores_grids_that_json_has_changed():
    """The scorer compares tuples, which JSON turns into lists."""
    rollout = scored(played(row(generator="rearc")))
    assert rollout.reward == 1.0

    as_row = answered("reasoning_gym", rollout.final_state["entry"], rollout.last_text)
    assert scored(as_row).reward == 1.0
    assert scored(answered("reasoning_gym", as_row.task, "<answer>1 2</answer>")).reward == 0.05


def test_verify_scores_an_entry_that_json_cannot_write():
    """Its metadata contains a Fraction."""
    rollout = scored(played(row(generator="gsm_symbolic", index=7)))

    assert rollout.reward == 1.0
    assert "Fraction" not in json.dumps(rollout.final_state)


def test_verify_scores_a_gold_answer_with_an_integral():
    rollout = scored(played(row(generator="intermediate_integration", seed=3, index=2)))

    assert "Integral(" in rollout.answer
    assert rollout.reward == 1.0


def test_verify_scores_with_the_config_of_an_address():
    """The scorer of time differences scales an error by the largest difference in the config."""
    config = {"max_time_difference_seconds": 3600, "task_types": ["time"]}
    rollout = played(row(generator="time_intervals", config=config))
    hours, minutes = rollout.final_state["entry"]["answer"].split(":")
    off = f"<answer>{hours}:{(int(minutes) + 6) % 60:02}</answer>"

    narrow = scored(played(row(generator="time_intervals", config=config), says(off)))
    as_row = scored(answered("reasoning_gym", rollout.final_state["entry"], off))
    assert 0.0 < narrow.reward < as_row.reward < 1.0


def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path):
    given_row = {
        "responses_create_params": {"input": [{"role": "user", "content": "3 + 4 = ?"}]},
        **entry("chain_sum", "7", difficulty={"num_terms": 2}, source_index=0),
    }
    rollout = played(row_of_file(tmp_path, "reasoning_gym", given_row))

    assert [message.text for message in rollout.messages] == ["3 + 4 = ?", "<answer>7</answer>"]
    assert rollout.final_state is None
    assert scored(rollout).reward == 1.0


def test_parse_task_refuses_what_cannot_be_played(subtests):
    cases = [
        ({"generator": "chain_sums"}, "has no generator 'chain_sums'; did you mean 'chain_sum'"),
        ({"generator": "zzz"}, "has no generator 'zzz' "),
        ({"generator": "composite"}, "the generator 'composite' has no tasks: it mixes other"),
        ({"generator": "codeio"}, "the generator 'codeio' has no tasks: it makes its entries by"),
        (entry("chain_sums", "7"), "has no generator 'chain_sums'"),
        (entry("composite", "7"), "the generator 'composite' has no tasks"),
        (
            {"generator": "chain_sum", "config": {"max_term": 3}},
            "the config of 'chain_sum' has no option 'max_term'; did you mean 'max_terms'",
        ),
        (
            {"generator": "chain_sum", "config": {"seed": 3}},
            "the config of 'chain_sum' has no option 'seed'",
        ),
        (
            {"generator": "chain_sum", "config": {"min_terms": 0}},
            "the config of 'chain_sum' is refused: min_terms must be positive",
        ),
        (
            {"generator": "chain_sum", "config": {"min_terms": "few"}},
            "the config of 'chain_sum' is refused: '>' not supported",
        ),
        (
            {"generator": "spell_backward", "config": {"data_file": "/etc/hostname"}},
            "names '/etc/hostname', which is not a file of the library",
        ),
        ({"generator": "aiw", "index": 10}, "there is no entry 10 of 'aiw': its \"size\" is 10"),
        ({"generator": "aiw", "index": -1}, "greater than or equal to 0"),
        ({"question": "?", "answer": "1"}, 'needs a "generator", or "question" and'),
        ({"answer": "1", "metadata": {"source_dataset": "aiw"}}, 'needs a "generator", or'),
        ({"question": "?", "metadata": {"source_dataset": 1}}, 'needs a "generator", or'),
    ]
    for fields, words in cases:
        matches = pytest.raises(ValidationError, match=re.escape(words))
        with subtests.test(fields=fields), matches:
            ReasoningGym.parse_task(fields)


def test_verify_scores_a_row_of_codeio():
    assert judged("codeio", '{"n": 3}', '<answer>{"n": 3}</answer>').reward == 1.0


@pytest.mark.parametrize("module", ["reasoning_gym", "reasoning_gym.factory"])
def test_environment_names_the_package_that_is_missing(monkeypatch, module):
    """Also if the library is installed but cannot import one of its own requirements."""
    monkeypatch.setitem(sys.modules, module, None)
    words = r"reasoning_gym needs reasoning-gym: pip install 'gymcli\[reasoning-gym\]' \(import of"

    assert isinstance(ReasoningGym.parse_task({"generator": "zzz"}), Puzzle)
    with pytest.raises(MissingPackageError, match=words):
        ReasoningGym.prepare(ReasoningGym.Options())
    with pytest.raises(VerifierError, match=words):
        judged("chain_sum", "7", "7")


def test_generate_names_every_series_in_three_degrees():
    rows = list(ReasoningGym.generate(Random(0), 300))

    assert len({msgspec.json.encode(one["messages"]) for one in rows}) == 300
    found = {(one["generator"], one["difficulty"]) for one in rows}
    assert found == {
        (name, level) for name in generator.SERIES for level in ("easy", "medium", "hard")
    }
    assert len(generator.SERIES) >= 12


@pytest.mark.slow
def test_generate_gives_addresses_whose_questions_are_the_same_everywhere():
    """The order of a set of strings depends on PYTHONHASHSEED."""
    script = (
        "import hashlib, json; from random import Random\n"
        "from gymcli.envs.reasoning_gym import ReasoningGym\n"
        "from gymcli.envs.reasoning_gym.library import entry_at\n"
        "tasks = map(ReasoningGym.parse_task, ReasoningGym.generate(Random(0), 60))\n"
        "print('found', json.dumps([entry_at(task.address) for task in tasks]))"
    )

    def found(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", script]
        output = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        return json.loads(output.decode().rpartition("found")[2])

    entries = found("1")
    assert entries == found("2")
    assert len({one["question"] for one in entries}) == 60


CONSTANTS = (
    *("", " ", "0", "1", "-1", "0x1", "1/2", "0.5", "1e400", "nan", "NaN", "-inf", "Infinity"),
    *("[]", "[[]]", "{}", "null", "None", "True", "False", "yes", "no", "a", "?", "0:0"),
    *("[NaN]", "[1e400]", "x", "0*x", "()", "1, 1", "1 # 2", "zoo", "\\n"),
)


@pytest.mark.slow
def test_scored_gives_no_constant_the_full_reward_in_the_series_of_the_data_set():
    for fields in ReasoningGym.generate(Random(0), 60):
        address = ReasoningGym.parse_task(fields).address
        one = entry_at(address)
        num_numbers = len(re.findall(r"-?\d+(?:\.\d+)?", one["answer"]))
        for text in (*CONSTANTS, "[" + ", ".join(["NaN"] * num_numbers) + "]"):
            reward = scored_here(text, one, address).reward or 0.0
            assert reward <= 0.5 or text == one["answer"], (address.generator, text)


@pytest.mark.slow
@pytest.mark.filterwarnings(UNCLOSED)
def test_every_generator_gives_gold_answers_that_its_scorer_finds_right(capfd):
    from reasoning_gym.factory import DATASETS

    assert len(DATASETS) > 100
    assert UNPLAYABLE.keys() | WITHOUT_ORACLE <= DATASETS.keys()
    for name in sorted(DATASETS.keys() - UNPLAYABLE.keys() - WITHOUT_ORACLE):
        assert scored(played(row(generator=name))).reward == 1.0, name
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("name", sorted(WITHOUT_ORACLE))
def test_generators_without_an_answer_are_scored(name):
    rollout = scored(played(row(generator=name), says("<answer>5</answer>")))

    assert rollout.final_state["entry"]["answer"] is None
    assert rollout.reward <= 0.01
