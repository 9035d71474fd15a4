"""Rows of google/IFEval, made by hand: every instruction has its own arguments, or none."""

INSTRUCTIONS = [
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 3, "capital_relation": "less than"},
    ),
    ("change_case:english_capital", {}),
    ("change_case:english_lowercase", {}),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Write a note."}),
    ("combination:two_responses", {}),
    ("detectable_content:number_placeholders", {"num_placeholders": 3}),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}),
    ("detectable_format:constrained_response", {}),
    ("detectable_format:json_format", {}),
    ("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 2}),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}),
    ("detectable_format:title", {}),
    ("keywords:existence", {"keywords": ["rain", "hail"]}),
    ("keywords:forbidden_words", {"forbidden_words": ["sun"]}),
    ("keywords:frequency", {"keyword": "rain", "frequency": 2, "relation": "at least"}),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 2, "let_relation": "at least"}),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "rain"},
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}),
    ("length_constraints:number_words", {"num_words": 30, "relation": "at least"}),
    ("punctuation:no_comma", {}),
    ("startend:end_checker", {"end_phrase": "Is there anything else?"}),
    ("startend:quotation", {}),
]


def rows(rng, num):
    return {"": [_row(rng, place) for place in range(num)]}


def _row(rng, place):
    chosen = [INSTRUCTIONS[place % len(INSTRUCTIONS)]]
    if chosen[0][0].startswith("keywords"):
        chosen.append(rng.choice(INSTRUCTIONS[-4:-3]))
    return {
        "key": 1000 + place,
        "prompt": f"Write note {place} {{as usual}}.",
        "instruction_id_list": [name for name, _ in chosen],
        "kwargs": [given for _, given in chosen],
    }
