"""The environment instruction_following: every check, the grading modes, and the tasks."""

import sys
from collections import Counter
from random import Random

import langdetect
import pytest
from pydantic import ValidationError

from gymcli.envs.instruction_following import InstructionFollowing
from gymcli.envs.instruction_following.checks import CHECKS
from gymcli.errors import MissingPackageError, VerifierError, VerifierTimeoutError
from gymcli.rollout.episode import EpisodeFailedError
from tests.envs.episodes import (
    answered,
    played,
    row_of_file,
    says,
    scored,
    scored_here,
    task_row,
)
from tests.envs.instruction_following_cases import (
    ABBREVIATIONS,
    EDGES,
    FOLLOWED,
    LEAST,
    MANY_E,
    ONE_SENTENCE,
    TWO_OF_TWO,
)


def row(*instructions, **fields):
    """Return a row; each instruction is an id and its arguments."""
    return {
        "instruction_id_list": [name for name, _ in instructions],
        "kwargs": [arguments for _, arguments in instructions],
        **fields,
    }


def follows_here(name, arguments, text):
    rollout = answered("instruction_following", row((name, arguments)), text)
    return scored_here(rollout).reward == 1.0


def follows(name, arguments, text):
    return scored(answered("instruction_following", row((name, arguments)), text)).reward == 1.0


@pytest.mark.parametrize(
    ("name", "arguments", "right", "wrong"), FOLLOWED, ids=[case[0] for case in FOLLOWED]
)
def test_check_tells_what_follows_it_from_what_does_not(name, arguments, right, wrong):
    assert follows(name, arguments, right)
    assert not follows(name, arguments, wrong)


def test_every_check_has_a_case():
    assert [case[0] for case in FOLLOWED] == list(CHECKS)


@pytest.mark.parametrize(("name", "arguments", "text", "is_followed"), EDGES)
def test_check_at_its_edges(name, arguments, text, is_followed):
    assert follows(name, arguments, text) == is_followed


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(piece * (40_000 // len(piece)), id=ascii(piece))
        for piece in (
            *"[<*- \n.\"'{a\u0130\x00",
            "!?",
            "<< ",
            "* ",
            "a-",
            "Mr. ",
            "rain ",
            "\n\n ",
            "\u3042\u3002",
            "P. ",
            "So it is! ",
            ". . a",
            ".' ",
            ".)",
        )
    ],
)
def test_hostile_text_is_scored_by_every_check(text):
    """Each check takes linear time; a quadratic one would not finish here."""
    fields = row(*((name, arguments) for name, arguments, _, _ in FOLLOWED))

    rollout = scored(answered("instruction_following", fields, text))

    assert rollout.reward == 0.0


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_empty_answer_follows_nothing(text):
    """The checks themselves would accept it, such as the one for "no comma"."""
    fields = row(*((name, arguments) for name, arguments, _, _ in FOLLOWED))

    rollout = scored(answered("instruction_following", fields, text))

    assert rollout.details["reason"] == "no_answer"
    assert rollout.details["not_followed"] == list(CHECKS)


def test_pattern_that_takes_too_long_leaves_the_rollout_unscored():
    with pytest.raises(VerifierTimeoutError):
        follows("keywords:existence", {"keywords": ["(a|a|aa)+$"]}, "a" * 60 + "!")


RADIO = ("language:response_language", {"language": "hr"}, "radio")
"""A text for which langdetect reports different languages from call to call."""


@pytest.mark.parametrize("seed", [None, 1, 3, 9])
def test_language_is_the_same_each_time(monkeypatch, seed):
    monkeypatch.setattr(langdetect.DetectorFactory, "seed", seed)

    assert follows(*RADIO)


def test_language_needs_its_package(monkeypatch):
    name, arguments, text = RADIO
    monkeypatch.setitem(sys.modules, "langdetect", None)

    with pytest.raises(MissingPackageError, match=r"langdetect: pip install 'gymcli\[ifeval\]'"):
        InstructionFollowing.parse_task(row((name, arguments)))
    with pytest.raises(VerifierError, match="language:response_language needs the package"):
        follows_here(name, arguments, text)
    assert follows_here("change_case:english_lowercase", {}, text)


def test_rules_split_after_abbreviations_that_punkt_knows():
    rollout = answered("instruction_following", row(ONE_SENTENCE), ABBREVIATIONS)

    rewards = [scored(rollout, sentences=splitter).reward for splitter in ("punkt", "rules")]

    assert rewards == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "arguments", "text"), [case[:3] for case in FOLLOWED], ids=[c[0] for c in FOLLOWED]
)
def test_only_rows_about_sentences_need_punkt(monkeypatch, name, arguments, text):
    monkeypatch.setitem(sys.modules, "punkt", None)
    task = InstructionFollowing.parse_task(row((name, arguments)))
    by_punkt, by_rules = (
        InstructionFollowing.Options(sentences=splitter) for splitter in ("punkt", "rules")
    )

    InstructionFollowing.check_task(task, by_rules)
    if not CHECKS[name].splits_sentences:
        InstructionFollowing.check_task(task, by_punkt)
        assert follows_here(name, arguments, text)
        return
    ways_out = r"pip install 'gymcli\[ifeval\]'; .* --env-arg sentences=rules"
    with pytest.raises(MissingPackageError, match=ways_out):
        InstructionFollowing.check_task(task, by_punkt)
    with pytest.raises(VerifierError, match=ways_out):
        follows_here(name, arguments, text)


def test_language_is_unscored_where_the_package_is_damaged(monkeypatch, tmp_path):
    monkeypatch.setattr(langdetect.detector_factory, "_factory", None)
    monkeypatch.setattr(langdetect.detector_factory, "PROFILES_DIRECTORY", str(tmp_path))

    with pytest.raises(VerifierError, match="Not found profile"):
        follows_here(*RADIO)


COMMA_AND_CASE = [("punctuation:no_comma", None), ("change_case:english_lowercase", {})]


@pytest.mark.parametrize(
    ("mode", "text", "reward", "reason"),
    [
        pytest.param("binary", "rain", 1.0, "all_followed", id="all"),
        pytest.param("binary", "Rain", 0.0, "some_followed", id="one of two"),
        pytest.param("binary", "Rain, hail", 0.0, "none_followed", id="none"),
        pytest.param("fraction", "rain", 1.0, "all_followed", id="all, by share"),
        pytest.param("fraction", "Rain", 0.5, "some_followed", id="one of two, by share"),
        pytest.param("fraction", "Rain, hail", 0.0, "none_followed", id="none, by share"),
    ],
)
def test_grading_mode(mode, text, reward, reason):
    fields = row(*COMMA_AND_CASE, grading_mode=mode)

    rollout = scored(answered("instruction_following", fields, text))

    assert (rollout.reward, rollout.details["reason"]) == (reward, reason)


def test_verify_says_what_was_not_followed():
    rollout = scored(answered("instruction_following", row(*COMMA_AND_CASE), "Rain"))

    assert rollout.details["not_followed"] == ["change_case:english_lowercase"]
    assert rollout.metrics == {
        "follow_all_instructions": 0.0,
        "share_followed": 0.5,
        "num_instructions": 2.0,
        "num_followed": 1.0,
        "follow_all_loosely": 0.0,
        "num_followed_loosely": 1.0,
    }


@pytest.mark.parametrize("text", ["", "rain"])
def test_row_without_instructions_is_scored_by_its_mode(text):
    """The reference does the same, although such a row teaches nothing."""
    binary, fraction = (
        scored(answered("instruction_following", row(grading_mode=mode), text))
        for mode in ("binary", "fraction")
    )

    assert (binary.reward, fraction.reward) == (1.0, 0.0)


def test_verify_reads_the_last_message():
    rollout = answered("instruction_following", row(*COMMA_AND_CASE), "Rain, hail", "rain")

    assert scored(rollout).reward == 1.0


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        pytest.param(
            "language:politeness",
            {"language": "en"},
            "no check 'language:politeness', only change_case:capital_word_frequency,",
            id="unknown check",
        ),
        pytest.param(
            "language:response_language",
            {"language": "EN"},
            "langdetect knows no language 'EN', only af, ar, bg",
            id="unknown language",
        ),
        pytest.param("keywords:word_once", None, "keywords:word_once needs keyword", id="missing"),
        pytest.param("keywords:word_once", {"keyword": None}, "needs keyword", id="null"),
        pytest.param("keywords:word_once", {"keyword": " "}, "needs keyword", id="blank"),
        pytest.param("keywords:existence", {"keywords": []}, "needs keywords", id="empty list"),
        pytest.param(
            "length_constraints:number_words", {"num_words": 3}, "needs relation", id="relation"
        ),
        pytest.param(
            "length_constraints:number_words",
            {"num_words": 3, "relation": "at most"},
            "at least",
            id="unknown relation",
        ),
        pytest.param(
            "length_constraints:number_words",
            {"num_words": -1} | LEAST,
            "greater than or equal to 0",
            id="negative number",
        ),
        pytest.param("letters:letter_counting2", MANY_E | {"letter": "ee"}, "letter", id="letters"),
        pytest.param(
            "length_constraints:nth_paragraph_first_word",
            TWO_OF_TWO | {"nth_paragraph": 3},
            "no paragraph 3 of 2",
            id="paragraph beyond the last",
        ),
        pytest.param(
            "copy:repeat_phrase",
            {"phrase": "rain falls", "small_n": 2},
            "three words",
            id="phrase without a middle",
        ),
    ],
)
def test_parse_task_refuses_what_no_answer_can_follow(name, arguments, message):
    with pytest.raises(ValidationError, match=message):
        InstructionFollowing.parse_task(row((name, arguments)))


def test_parse_task_refuses_lists_of_different_length():
    with pytest.raises(ValidationError, match="differ in length"):
        InstructionFollowing.parse_task(
            {"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}
        )


@pytest.mark.parametrize("name", CHECKS)
def test_parse_task_refuses_a_check_without_an_argument(name):
    arguments = {case[0]: case[1] for case in FOLLOWED}[name]
    assert set(CHECKS[name].needs) == set(arguments)

    for need in CHECKS[name].needs:
        rest = {key: value for key, value in arguments.items() if key != need}
        with pytest.raises(ValidationError, match=f"needs {need} in kwargs"):
            InstructionFollowing.parse_task(row((name, rest)))


@pytest.mark.parametrize("is_nested", [False, True])
def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path, is_nested):
    fields = row(
        (
            "length_constraints:number_words",
            {"num_words": 4, "relation": "less than", "letter": None},
        ),
        ("paragraphs:paragraphs2", {}),
        ("detectable_format:title", None),
    )
    prompt = "Describe the weather in two paragraphs and under four words, with a title."
    row_read = row_of_file(
        tmp_path,
        "instruction_following",
        {
            "id": 71,
            "prompt": prompt,
            "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
            **({"verifier_metadata": fields} if is_nested else fields),
        },
    )
    right, wrong = (
        scored(played(row_read, says(text)))
        for text in ("<<Rain>>\n\nIt falls.", "<<Rain>>\n\nIt falls and falls.")
    )

    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert right.messages[0].text == prompt


@pytest.mark.parametrize(
    "instructions",
    [
        pytest.param(
            [
                ("length_constraints:nth_paragraph_first_word", TWO_OF_TWO),
                ("last_word:last_word_answer", {"last_word": "cloud"}),
            ],
            id="paragraph and last word",
        ),
        pytest.param(
            [
                ("length_constraints:number_paragraphs", {"num_paragraphs": 2}),
                ("count:lowercase_counting", {"N": 3}),
                ("detectable_format:number_bullet_lists", {"num_bullets": 5}),
            ],
            id="paragraphs, bullets and capitals",
        ),
        pytest.param(
            [
                ("keywords:forbidden_words", {"forbidden_words": ["light", "street"]}),
                ("first_word:first_word_sent", {"first_word": "rain"}),
            ],
            id="forbidden words and first words",
        ),
        pytest.param(
            [
                ("detectable_content:number_placeholders", {"num_placeholders": 4}),
                ("letters:letter_counting", {"N": 3} | LEAST),
                ("length_constraints:number_sentences", {"num_sentences": 17} | LEAST),
            ],
            id="placeholders and sentences",
        ),
    ],
)
def test_oracle_composes_answers_for_rows_of_others(instructions):
    rollout = scored(played(task_row("instruction_following", row(*instructions))))

    assert rollout.reward == 1.0


def test_oracle_has_no_answer_to_an_instruction_beyond_it():
    with pytest.raises(EpisodeFailedError, match="no oracle"):
        played(task_row("instruction_following", row(("count:count_unique", {}))))


@pytest.mark.slow
def test_tasks_can_be_followed_whatever_the_seed():
    rows = list(InstructionFollowing.generate(Random(7), 90))

    for fields in rows:
        composed = scored(played(task_row("instruction_following", fields)))
        echoed = scored(answered("instruction_following", fields, fields["prompt"]))
        assert composed.reward == 1.0, (fields["prompt"], composed.output_text)
        assert echoed.reward < 1.0, fields["prompt"]
    assert len({fields["prompt"] for fields in rows}) == len(rows)


def test_tasks_cover_many_checks_and_grow_harder():
    rows = list(InstructionFollowing.generate(Random(0), 60))

    nums = {(fields["difficulty"], len(fields["kwargs"])) for fields in rows}
    used = Counter(name for fields in rows for name in fields["instruction_id_list"])
    assert nums == {("easy", 1), ("medium", 2), ("hard", 4)}
    assert len(used) >= 25
    assert {fields["grading_mode"] for fields in rows} == {"binary", "fraction"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param(
            "copy:repeat_phrase", "in small letters even at the start", id="phrase's case"
        ),
        pytest.param("copy:repeat_phrase", "use its first word nowhere else", id="phrase's start"),
        pytest.param("count:count_increment_word", "inside longer words too", id="two words"),
        pytest.param("keywords:word_once", "inside longer words too", id="word"),
        pytest.param("first_word:first_word_answer", "no punctuation after it", id="first word"),
        pytest.param("first_word:first_word_sent", "no punctuation after it", id="first words"),
        pytest.param("length_constraints:number_words", "count as two each", id="number of words"),
        pytest.param("count:lowercase_counting", "is a word of its own", id="small letters"),
        pytest.param("keywords:palindrome", "of three letters or more", id="palindrome"),
    ],
)
def test_tasks_say_where_a_check_is_stricter_than_it_sounds(name, words):
    rows = InstructionFollowing.generate(Random(0), 300)
    prompts = [fields["prompt"] for fields in rows if name in fields["instruction_id_list"]]

    assert prompts
    assert all(words in prompt for prompt in prompts)
