from collections import Counter
from random import Random

import pytest
from pydantic import ValidationError

from gymcli.envs.instruction_following import InstructionFollowing
from gymcli.envs.instruction_following.checks import CHECKS
from gymcli.errors import VerifierTimeoutError
from gymcli.rollout import EpisodeFailedError
from tests.envs.episodes import answered, played, row_of_file, says, scored, task_row


def row(*instructions, **fields):
    """Give a row; each instruction is an id and its arguments."""
    return {
        "instruction_id_list": [name for name, _ in instructions],
        "kwargs": [arguments for _, arguments in instructions],
        **fields,
    }


def follows(name, arguments, text):
    return scored(answered("instruction_following", row((name, arguments)), text)).reward == 1.0


LEAST, LESS = {"relation": "at least"}, {"relation": "less than"}
FEW_E = {"letter": "e", "let_frequency": 2, "let_relation": "less than"}
MANY_E = {"letter": "E", "let_frequency": 2, "let_relation": "at least"}
TWO_OF_TWO = {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Rain"}
PHRASE = {"phrase": "rain falls on the roof", "small_n": 2}
ASK = {"prompt_to_repeat": " Why is it wet? "}

FOLLOWED = [
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "We saw RAIN and I ran.",
        "We saw RAIN.",
    ),
    ("change_case:english_capital", {}, "IT RAINS, 2 DAYS.", "IT RAINS, 2 days."),
    ("change_case:english_lowercase", {}, "it rains, 2 days.", "It rains, 2 days."),
    ("combination:repeat_prompt", ASK, "why is it wet?\nIt rained.", "Well. Why is it wet?"),
    ("combination:two_responses", {}, "It rains.\n******\nIt pours.", "It rains.\n***\nIt pours."),
    ("copy:copy", ASK, "WHY is it wet? ", "Why is it wet? It rained."),
    (
        "copy:copying_multiple",
        ASK | {"N": 2},
        "Why is it wet?\n******\nWhy is it wet?",
        "Why is it wet? Why is it wet?",
    ),
    ("copy:copying_simple", ASK, "Why is it wet?", "It rained."),
    (
        "copy:repeat_phrase",
        PHRASE,
        "rain falls on our roof, rain drums on the roof",
        "rain falls on our roof, and hail too",
    ),
    (
        "count:count_increment_word",
        {"keyword1": "rain", "keyword2": "hail"},
        "Hail, rain and hail.",
        "Rain and hail.",
    ),
    ("count:count_unique", {}, "It rains. No.", "It rains and it rains."),
    (
        "count:counting_composition",
        {"n_sent": 2, "n_words": 3},
        "It rains today. We stay in.\n***\nIt rains now. I stay dry.\n***\nHe sees it. I do so.",
        "It rains today. We stay in.\n***\nIt rains now. I stay dry.\n***\nHe sees it.",
    ),
    ("count:lowercase_counting", {"N": 2}, "It rains IN the Alps.", "It rains in the Alps."),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        "Dear [name], come to [place].",
        "Dear [name], come.",
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        "It rains.\n\np. s. Come in.",
        "It rains. PS: come in.",
    ),
    ("detectable_format:bigram_wrapping", {}, "<<It rains>> <<on us>>", "<<It rains>> on us"),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "My answer is rain."),
    ("detectable_format:json_format", {}, '```json\n{"rain": [1, 2]}\n```', '{"rain": [1, 2}'),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Part", "num_sections": 2},
        "Part 1\nIt rains.\nPart 2\nIt pours.",
        "Part 1\nIt rains.\nPart two\nIt pours.",
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        "Now:\n* rain\n  - hail",
        "Now:\n* rain\n* hail\n* snow",
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        "Now *rain*, then **much hail**.",
        "Now *rain*, then ** **.",
    ),
    ("detectable_format:sentence_hyphens", {}, "It rains.-We run.", "It rains. We run."),
    ("detectable_format:square_brackets", {}, "[It] [rains.]", "[It rains.]"),
    ("detectable_format:title", {}, "<<Rain>>\nIt falls.", "<< >>\nIt falls."),
    ("first_word:first_word_answer", {"first_word": "Rain"}, "rain falls.", "Rain, it falls."),
    (
        "first_word:first_word_sent",
        {"first_word": "rain"},
        "Rain falls. Rain stops!",
        "Rain falls. It stops!",
    ),
    ("keywords:exclude_word_harder", {"keyword": "rain"}, "Rain, rain.", "The rain falls."),
    ("keywords:existence", {"keywords": ["rain", "hail"]}, "RAIN on hailstones", "Rain on snow"),
    ("keywords:forbidden_words", {"forbidden_words": ["rain", "snow"]}, "It rains.", "RAIN falls."),
    ("keywords:frequency", {"keyword": "rain", "frequency": 2} | LEAST, "Rain, rains", "Rain"),
    (
        "keywords:keyword_specific_position",
        {"keyword": "rain", "n": 2, "m": 3},
        "Yes. We like rain, Dr. May.",
        "Yes. We like Rain.",
    ),
    ("keywords:letter_frequency", MANY_E, "Even so", "Evil"),
    ("keywords:no_adjacent_consecutive", {}, "a cloud falls", "A big."),
    ("keywords:palindrome", {}, "until noon today", "until noon."),
    ("keywords:start_end", {}, "Rain follows rain", "Rain follows rain."),
    (
        "keywords:word_count_different_numbers",
        {"keyword": "rain", "frequency": 2} | LESS,
        "Rain",
        "Rain, rain",
    ),
    ("keywords:word_once", {"keyword": "rain"}, "It rains.", "Rain rains."),
    ("last_word:last_word_answer", {"last_word": "Rain"}, 'It is "rain!"', "Rain it is"),
    (
        "last_word:last_word_sent",
        {"last_word": "rain"},
        "Here is rain. There is no Rain!",
        "Here is rain. There is none!",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        TWO_OF_TWO,
        "So.\n\n'rain', it is.",
        "Rain.\n\nSo it is.",
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 3},
        "a ***b\n***\nc",
        "a\n\nb\n\nc",
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3} | LEAST,
        'Mr. May runs. "It rains!" He stops',
        "Mr. May runs. He stops at 3.5 miles.",
    ),
    ("length_constraints:number_words", {"num_words": 4} | LEAST, "It's 2 late", "It is late"),
    ("letters:letter_counting", {"N": 5} | LESS, "Rain 2026 \u00e4\u00f6", "Rainy"),
    ("letters:letter_counting2", FEW_E, "Evil", "Even"),
    (
        "new:copy_span_idx",
        {"prompt_to_repeat": "It rains here", "n_start": 0, "n_end": 8},
        "IT RAINS",
        "It rains here",
    ),
    ("paragraphs:paragraphs", {}, "a\n***\nb\n***", "a\n***\nb\n***\nc"),
    ("paragraphs:paragraphs2", {}, "a\n\nb\n", "a\nb"),
    ("punctuation:no_comma", {}, "It rains; we run.", "It rains, we run."),
    ("punctuation:punctuation_dot", {}, "It rains!", "It rains."),
    ("punctuation:punctuation_exclamation", {}, "It rains.", "It rains!"),
    (
        "startend:end_checker",
        {"end_phrase": "so it rains."},
        'And "So it rains."',
        "So it rains. Yes",
    ),
    ("startend:quotation", {}, ' "It rains." ', '"It" rains.'),
]
"""An instruction, its arguments, an answer that follows it and one that does not."""


@pytest.mark.parametrize(
    ("name", "arguments", "right", "wrong"), FOLLOWED, ids=[case[0] for case in FOLLOWED]
)
def test_check_tells_what_follows_it_from_what_does_not(name, arguments, right, wrong):
    assert follows(name, arguments, right)
    assert not follows(name, arguments, wrong)


def test_every_check_has_a_case():
    assert [case[0] for case in FOLLOWED] == list(CHECKS)


BULLETS = ("detectable_format:number_bullet_lists", {"num_bullets": 1})
HIGHLIGHTS = ("detectable_format:number_highlighted_sections", {"num_highlights": 2})
HYPHENS = ("detectable_format:sentence_hyphens", {})
JSON = ("detectable_format:json_format", {})
PAIRS = ("detectable_format:bigram_wrapping", {})
NEIGHBOURS = ("keywords:no_adjacent_consecutive", {})
PARAGRAPHS = ("length_constraints:number_paragraphs", {"num_paragraphs": 2})
TITLE = ("detectable_format:title", {})
TWO = ("combination:two_responses", {})


@pytest.mark.parametrize(
    ("name", "arguments", "text", "is_followed"),
    [
        pytest.param("keywords:existence", {"keywords": ["r.in"]}, "Ruin", True, id="a pattern"),
        pytest.param(
            "keywords:existence", {"keywords": [":("]}, "wet :(", True, id="no pattern: literal"
        ),
        pytest.param(
            "keywords:forbidden_words",
            {"forbidden_words": ["a(b"]},
            "xa(bx",
            True,
            id="literal word",
        ),
        pytest.param("keywords:word_once", {"keyword": " rain "}, "rain", True, id="stripped"),
        pytest.param(
            "detectable_format:multiple_sections",
            {"section_spliter": "Part", "num_sections": 1},
            "part 1",
            False,
            id="section's case",
        ),
        pytest.param(
            "detectable_content:postscript",
            {"postscript_marker": "P.P.S"},
            "p.p.s bye",
            True,
            id="second postscript",
        ),
        pytest.param(
            "detectable_content:postscript",
            {"postscript_marker": "NB"},
            "so, nb: bye",
            True,
            id="another marker",
        ),
        pytest.param(*BULLETS, "*\u00a0a\n***\n**b**", True, id="stars that are no bullets"),
        pytest.param(*BULLETS, "- a\n\n\n--", False, id="a dash with nothing is one"),
        pytest.param(*HIGHLIGHTS, "**a** b **c**", True, id="two strong stretches"),
        pytest.param(*HIGHLIGHTS, "*a\nb* *c*", False, id="emphasis ends with the line"),
        pytest.param(*HYPHENS, "It rains.- We run.", False, id="space after the hyphen"),
        pytest.param(*HYPHENS, "It is well-known.", False, id="hyphen within a sentence"),
        pytest.param(*HYPHENS, "It rains.-", True, id="hyphen at the end, known looseness"),
        pytest.param(*JSON, "7", True, id="any JSON value"),
        pytest.param(*JSON, "[" * 100_000, False, id="nested too deep"),
        pytest.param(*JSON, "1" * 10_000, False, id="number too long"),
        pytest.param(*PAIRS, "<<It rains>> now", True, id="an odd word at the end"),
        pytest.param(*NEIGHBOURS, "b a", True, id="falling letters"),
        pytest.param(*NEIGHBOURS, "\u0130 a", False, id="initial that is two in lower case"),
        pytest.param(*PARAGRAPHS, "***a***b***", True, id="dividers at the ends"),
        pytest.param(*PARAGRAPHS, "a\n***\n***\nb", False, id="empty paragraph between"),
        pytest.param(*TITLE, "1 << 2 and 3 >> 2", True, id="anything in double brackets"),
        pytest.param(*TITLE, "<<>>", False, id="nothing in double brackets"),
        pytest.param(*TITLE, "<<Rain\nFalls>>", False, id="title over two lines"),
        pytest.param(*TWO, "a ****** a", False, id="the same twice"),
        pytest.param(*TWO, "a ****** ****** b", False, id="empty response between"),
        pytest.param(*TWO, "****** a ****** b ******", True, id="separators at the ends"),
        pytest.param(
            "length_constraints:nth_paragraph_first_word",
            TWO_OF_TWO,
            "So.\n\nRain.\n\n\n\n",
            True,
            id="empty paragraphs do not count",
        ),
        pytest.param(
            "length_constraints:nth_paragraph_first_word",
            TWO_OF_TWO,
            "So.\n\n\n\nRain.",
            False,
            id="but keep their place",
        ),
        pytest.param(
            "copy:repeat_phrase",
            PHRASE,
            "rain falls on our roof and rain falls on the roof",
            False,
            id="the last variant must differ",
        ),
        pytest.param(
            "copy:repeat_phrase",
            PHRASE,
            "rain falls on the roof and rain falls on our roof",
            True,
            id="others need not, known looseness",
        ),
        pytest.param(
            "copy:repeat_phrase",
            PHRASE,
            "rain beats on our roof and rain falls on our roof",
            False,
            id="two words changed",
        ),
        pytest.param(
            "copy:repeat_phrase",
            PHRASE,
            "rain on the roof and rain falls on our roof",
            False,
            id="a word left out",
        ),
        pytest.param("keywords:palindrome", {}, "a day", True, id="one letter, known looseness"),
        pytest.param("keywords:start_end", {}, "Rain", False, id="one word is not two"),
        pytest.param("keywords:start_end", {}, '"Rain and rain"', False, id="marks around"),
        pytest.param(
            "count:count_unique", {}, "The the. Well-being, being.", True, id="case differs"
        ),
        pytest.param(
            "count:counting_composition",
            {"n_sent": 1, "n_words": 1},
            "Rain.\n***\nRain.\n***\nRain.\n***\n",
            False,
            id="divider after the third paragraph",
        ),
        pytest.param(
            "change_case:capital_word_frequency",
            {"capital_frequency": 1, "capital_relation": "less than"},
            "I ran",
            False,
            id="I",
        ),
        pytest.param("change_case:english_capital", {}, "12", False, id="no letter at all"),
        pytest.param("startend:quotation", {}, '"', False, id="one mark is not two"),
        pytest.param(
            "length_constraints:number_words", {"num_words": 1} | LESS, "-", True, id="none"
        ),
        pytest.param(
            "length_constraints:number_sentences",
            {"num_sentences": 2} | LESS,
            "It is (e.g. today) wet... very",
            False,
            id="split after dots, not after e.g.",
        ),
        pytest.param("letters:letter_counting", {"N": 2} | LEAST, "ab", True, id="at least"),
        pytest.param(
            "first_word:first_word_sent",
            {"first_word": ["rain"]},
            "Rain.",
            False,
            id="with its mark",
        ),
        pytest.param(
            "first_word:first_word_sent", {"first_word": ["rain"]}, "Rain falls.", True, id="list"
        ),
    ],
)
def test_check_at_its_edges(name, arguments, text, is_followed):
    assert follows(name, arguments, text) == is_followed


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(piece * (100_000 // len(piece)), id=ascii(piece))
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
        )
    ],
)
def test_hostile_text_is_scored_by_every_check(text):
    """Each takes linear time: a quadratic one would not come to an end here."""
    fields = row(*((name, arguments) for name, arguments, _, _ in FOLLOWED))

    rollout = scored(answered("instruction_following", fields, text))

    assert rollout.reward == 0.0


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_empty_answer_follows_nothing(text):
    """The checks alone would find no comma in it."""
    fields = row(*((name, arguments) for name, arguments, _, _ in FOLLOWED))

    rollout = scored(answered("instruction_following", fields, text))

    assert rollout.details["reason"] == "empty_answer"
    assert rollout.details["not_followed"] == list(CHECKS)


def test_pattern_that_takes_too_long_leaves_the_rollout_unscored():
    with pytest.raises(VerifierTimeoutError):
        follows("keywords:existence", {"keywords": ["(a|a|aa)+$"]}, "a" * 60 + "!")


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
    assert rollout.metrics == {"follow_all_instructions": 0.0, "share_followed": 0.5}


@pytest.mark.parametrize("text", ["", "rain"])
def test_row_without_instructions_is_scored_by_its_mode(text):
    """As the reference does, although nothing can be learnt from it."""
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
            "language:response_language",
            {"language": "en"},
            "no check 'language:response_language', only change_case:capital_word_frequency,",
            id="unknown check",
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


def test_tasks_can_be_followed_whatever_the_seed():
    rows = list(InstructionFollowing.generate(Random(7), 150))

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


def test_tasks_never_run_out():
    """Prompts with one instruction are few; one that comes again gets another instruction."""
    rows = list(InstructionFollowing.generate(Random(0), 3_000))

    assert len({fields["prompt"] for fields in rows}) == 3_000
