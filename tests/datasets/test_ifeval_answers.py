"""IFEval's own verdicts on answers, which instruction_following shares."""

from tests.envs.episodes import answered, scored_here

# The instruction, its arguments, an answer that follows it and one that does not; to the prompt
# "Write a note.". Made by running Google's implementation as in lm_eval 0.4.13,
# lm_eval/tasks/ifeval/utils.py: test_instruction_following_strict, with NLTK 3.10.4.
VERDICTS = [
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 4, "capital_relation": "at least"},
        "P.S. the U.S. WELL-KNOWN RAIN",
        "We saw RAIN, HAIL/SNOW and I ran.",
    ),
    ("change_case:english_capital", {}, "IT RAINS", "<<Rain>>"),
    ("change_case:english_lowercase", {}, "write a note.\n```json", "Rain falls. Rain stops!"),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Write a note."},
        "write a note.",
        "rain falls here SECTION 2 [place] [x] ```",
    ),
    ("combination:two_responses", {}, "It rains.\n******\nIt pours.", "*a\nb* *c*"),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 3},
        "[name] * hail SECTION 1 SECTION 2 ****** [place] [x] ```",
        "It rains in the Alps.",
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, '"\nP.P.S bye', "[name]"),
    ("detectable_format:constrained_response", {}, "My answer is yes. * hail", "so\n\nrain ***"),
    ("detectable_format:json_format", {}, ' "It rains." ', "******"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\nSECTION 1",
        "a\n\nb\n\nc",
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        "My answer is maybe\n- rain\n* hail",
        "It's 2 late",
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        "* **snow**  rain, hail and rain! HAIL RAIN ***",
        "WHY is it wet? ",
    ),
    ("detectable_format:title", {}, "<<It rains>> on us", "Write a note."),
    (
        "keywords:existence",
        {"keywords": ["rain", "hail"]},
        'Write a note. * hail {"a": 1} <<Rain>> My answer is yes.',
        "Ruin",
    ),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["sun"]},
        "a\n***\nb\n***",
        "[name]\n\nThe sun is up!!",
    ),
    (
        "keywords:frequency",
        {"keyword": "rain", "frequency": 2, "relation": "at least"},
        "******\n[place] [x]\nHAIL RAIN\nso\n\nrain\n* hail",
        "write a note.\nrain falls here\n* **snow**",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "rain"},
        " rain falls here rain falls here [place] [x] so\n\nrain",
        "- rain\n\n\n\nP.P.S. bye",
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        "<<Rain>> *** - rain rain falls here",
        "Section 3 P.P.S. bye",
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, "relation": "less than"},
        "Dr. May met Prof. Hill in the U.S. at 5 p.m. yesterday.",
        "Dr. May left the U.S. in May. She came back at 5 p.m. It rained.",
    ),
    (
        "length_constraints:number_words",
        {"num_words": 30, "relation": "at least"},
        "It rains now. " * 10,
        "Part 1\nIt rains.\nPart 2\nIt pours.",
    ),
    ("punctuation:no_comma", {}, 'It is "rain!"', "So.\n\n'rain', it is."),
    (
        "startend:end_checker",
        {"end_phrase": "Is there anything else?"},
        "Is there anything else?\n\n",
        'And "So it rains."',
    ),
    ("startend:quotation", {}, ' "It rains." ', "My answer is maybe HAIL RAIN  * hail"),
    (
        "keywords:letter_frequency",
        {"letter": "e", "let_frequency": 2, "let_relation": "less than"},
        "P.P.S. bye",
        "why is it wet?\nIt rained.",
    ),
]


# Answers that follow an instruction only loosely, by test_instruction_following_loose there.
LOOSE_VERDICTS = [
    ("startend:quotation", {}, 'Sure, here it is:\n"It rains."'),
    ("startend:quotation", {}, '"It rains."\nThat is all.'),
    ("startend:quotation", {}, 'Sure:\n"It rains."\nThat is all.'),
    ("startend:quotation", {}, '**"It rains."**'),
    ("punctuation:no_comma", {}, "Sure, I can:\n*It rains.*\nWell, bye."),
    ("detectable_format:json_format", {}, "JSON:\n*[1]*"),
]


def test_instructions_are_followed_loosely_where_ifeval_says_so():
    for instruction, arguments, answer in LOOSE_VERDICTS:
        task = {"instruction_id_list": [instruction], "kwargs": [arguments]}
        metrics = scored_here(answered("instruction_following", task, answer)).metrics
        assert (metrics["num_followed"], metrics["num_followed_loosely"]) == (0.0, 1.0), answer
        assert metrics["follow_all_loosely"] == 1.0
    task = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    for silence in ("", " \n", "a, b"):
        metrics = scored_here(answered("instruction_following", task, silence)).metrics
        assert metrics["num_followed_loosely"] == 0.0


def test_instructions_are_followed_where_ifeval_says_so():
    for instruction, arguments, *answers in VERDICTS:
        task = {"instruction_id_list": [instruction], "kwargs": [arguments]}
        rewards = [scored_here(answered("instruction_following", task, a)).reward for a in answers]
        assert rewards == [1.0, 0.0], instruction
