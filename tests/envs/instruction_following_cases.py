"""Instructions, each with answers that follow it and answers that do not."""

import pytest

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
    (
        "language:response_language",
        {"language": "de"},
        "Die Sonne scheint und wir gehen heute alle hinaus.",
        "The sun shines and we all go out today.",
    ),
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

BULLETS = ("detectable_format:number_bullet_lists", {"num_bullets": 1})
HIGHLIGHTS = ("detectable_format:number_highlighted_sections", {"num_highlights": 2})
HYPHENS = ("detectable_format:sentence_hyphens", {})
JSON = ("detectable_format:json_format", {})
PAIRS = ("detectable_format:bigram_wrapping", {})
NEIGHBOURS = ("keywords:no_adjacent_consecutive", {})
PARAGRAPHS = ("length_constraints:number_paragraphs", {"num_paragraphs": 2})
TITLE = ("detectable_format:title", {})
TWO = ("combination:two_responses", {})
ENGLISH = ("language:response_language", {"language": "en"})
ONE_SENTENCE = ("length_constraints:number_sentences", {"num_sentences": 2} | LESS)
ABBREVIATIONS = "Dr. May met Prof. Hill in the U.S. at 5 p.m. yesterday."

EDGES = [
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
    pytest.param("keywords:existence", {"keywords": ["[[r]a]i"]}, "rain", False, id="odd brackets"),
    pytest.param("keywords:existence", {"keywords": ["[a--b]"]}, "[A--B]", True, id="bad range"),
    pytest.param(
        "keywords:existence",
        {"keywords": ["a{99999999999}"]},
        "a{99999999999}",
        True,
        id="number too large for a pattern",
    ),
    pytest.param("keywords:word_once", {"keyword": " rain "}, "rain", True, id="stripped"),
    pytest.param(
        "keywords:word_once", {"keyword": "tent"}, "A tent, content.", False, id="within a word"
    ),
    pytest.param(
        "count:count_increment_word",
        {"keyword1": "rain", "keyword2": "hail"},
        "Hail, rain, hail and hail.",
        False,
        id="three times, not twice",
    ),
    pytest.param(
        "copy:copying_multiple",
        ASK | {"N": 2},
        "Why is it wet?******Why is it wet?******Why is it wet?",
        False,
        id="a third copy",
    ),
    pytest.param(
        "letters:letter_counting2",
        {"letter": "#", "let_frequency": 3, "let_relation": "at least"},
        "# a ##",
        True,
        id="a mark for a letter",
    ),
    pytest.param(*ENGLISH, "12 + 30 = 42", True, id="digits are in every language"),
    pytest.param(
        *ENGLISH,
        "https://example.org " * 500 + "Es regnet heute in allen Bergen",
        True,
        id="addresses are among the first characters",
    ),
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
    pytest.param(*HYPHENS, " It rains.-We run.", False, id="space at the beginning"),
    pytest.param(*HYPHENS, "It is well-known.", False, id="hyphen within a sentence"),
    pytest.param(*HYPHENS, "It rains.-", True, id="hyphen at the end, known looseness"),
    pytest.param(*JSON, "7", True, id="any JSON value"),
    pytest.param(*JSON, "[" * 100_000, False, id="nested too deep"),
    pytest.param(*JSON, "1" * 10_000, False, id="number too long"),
    pytest.param(*PAIRS, "<<It rains>> now", True, id="an odd word at the end"),
    pytest.param(*NEIGHBOURS, "b a", True, id="falling letters"),
    pytest.param(*NEIGHBOURS, "\u0130 a", False, id="initial that is two in lower case"),
    pytest.param(*NEIGHBOURS, "\u0130", True, id="the only word"),
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
    pytest.param(
        "copy:repeat_phrase",
        PHRASE,
        "Rain falls on our roof. And rain falls on their roof.",
        False,
        id="a capital at its beginning",
    ),
    pytest.param(
        "copy:repeat_phrase",
        PHRASE,
        "In rain and hail, rain falls on our roof and rain falls on their roof.",
        False,
        id="its first word before it",
    ),
    pytest.param("keywords:palindrome", {}, "a day", True, id="one letter, known looseness"),
    pytest.param("keywords:start_end", {}, "Rain", False, id="one word is not two"),
    pytest.param("keywords:start_end", {}, '"Rain and rain"', False, id="marks around"),
    pytest.param("count:count_unique", {}, "The the. Well-being, being.", True, id="case differs"),
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
    pytest.param(
        "change_case:capital_word_frequency",
        {"capital_frequency": 3, "capital_relation": "less than"},
        "P.S. We fly to the U.S. now",
        True,
        id="an abbreviation is one word",
    ),
    pytest.param("change_case:english_capital", {}, "12", False, id="no letter at all"),
    pytest.param("startend:quotation", {}, '"', False, id="one mark is not two"),
    pytest.param("length_constraints:number_words", {"num_words": 1} | LESS, "-", True, id="none"),
    pytest.param(
        "length_constraints:number_sentences",
        {"num_sentences": 2} | LESS,
        "It is (e.g. today) wet",
        False,
        id="Punkt does not know e.g.",
    ),
    pytest.param(*ONE_SENTENCE, ABBREVIATIONS, True, id="Punkt knows Dr., U.S. and p.m."),
    pytest.param(*ONE_SENTENCE, "It rains\n\nWe run", True, id="a blank line is no end"),
    pytest.param(*ONE_SENTENCE, "It rains!!!", True, id="marks at the end are no sentence"),
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
]
