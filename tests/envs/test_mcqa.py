"""The environment mcqa: the modes in which a letter is read, and the generated questions."""

import datetime as dt
import string
import time
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import gymcli.envs
from gymcli.environment.registry import shipped_tasks
from gymcli.envs.mcqa import GRADERS, MultipleChoice, Question
from gymcli.errors import VerifierTimeoutError
from tests.envs.episodes import answered, played, row_of_file, says, scored, task_row

OPTIONS = {
    "A": "north wind",
    "B": "south wind",
    "C": "no wind",
    "D": "a storm",
    "E": "fog",
    "F": "Light  Rain",
    "G": r"5 \text{km}",
    "H": "hail",
    "I": "ice",
}


def question(**fields):
    return {
        "options": [{letter: text} for letter, text in OPTIONS.items()],
        "expected_answer": "E",
        **fields,
    }


def asked(texts=(), **fields):
    """Return a task whose options have these texts."""
    texts = texts or OPTIONS.values()
    options = [{letter: text} for letter, text in zip("ABCDEFGHI", texts, strict=False)]
    return Question.model_validate({"options": options, "expected_answer": "B", **fields})


def found(text, *, mode=None, pattern=None):
    """Return the letter that is found in a text."""
    fields = {"grading_mode": mode} if mode else {}
    if pattern is not None:
        fields["template_metadata"] = {"output_regex": pattern}
    return scored(answered("mcqa", question(**fields), text)).answer


def found_in_markdown(text):
    rollout = answered("mcqa", question(), text)
    return scored(rollout, grading_mode="lenient_answer_colon_md").answer


STRICT = [
    pytest.param(r"\boxed{E}", "E", id="letter"),
    pytest.param(r"\boxed{\text{E}}", "E", id="letter in text command"),
    pytest.param(r"\boxed{\text{\text{E}}}", "E", id="text command in text command"),
    pytest.param(r"\boxed{\text{E}: fog}", "E", id="label in text command"),
    pytest.param(r"\boxed{E: foo}", "E", id="label with colon"),
    pytest.param(r"\boxed{E) foo}", "E", id="label with parenthesis"),
    pytest.param(r"\boxed{ E - foo}", "E", id="label with dash"),
    pytest.param(r"\boxed{E. coli}", "E", id="label with dot, known looseness"),
    pytest.param(r"\boxed{ [C] }", "C", id="in brackets and spaces"),
    pytest.param(r"\boxed{{C}}", "C", id="in braces"),
    pytest.param(r"\boxed{12. C}", "C", id="after a number"),
    pytest.param(r"\boxed{A} or rather \boxed{B}", "B", id="two boxes, the last"),
    pytest.param(r"\boxed{\boxed{D}}", "D", id="box in box, the last"),
    pytest.param(r"\boxed{\textbf{E}}", "E", id="bold letter"),
    pytest.param(r"\boxed{\mathrm{E}}", "E", id="upright letter"),
    pytest.param(r"\boxed{\mathbf{\text{(E)}}}", "E", id="fonts in fonts"),
    pytest.param("\\boxed{\uff25}", "E", id="full-width letter"),
    pytest.param(r"\boxed{\text{ب}}", "B", id="Arabic letter"),
    pytest.param(r"\boxed{e}", None, id="lower case"),
    pytest.param(r"\boxed{B and C}", None, id="two letters"),
    pytest.param(r"\boxed{BC}", None, id="two capitals together"),
    pytest.param(r"\boxed{Z}", None, id="not among the options"),
    pytest.param(r"\boxed{Z: mist}", None, id="label not among the options"),
    pytest.param(r"\boxed{E foo}", None, id="letter and words"),
    pytest.param(r"\boxed{}", None, id="empty box"),
    pytest.param(r"\boxed{E", None, id="not closed"),
    pytest.param(r"\boxed{A} then \boxed{E", None, id="last one not closed"),
    pytest.param("E", None, id="no box"),
    pytest.param("", None, id="empty"),
]


@pytest.mark.parametrize(("text", "letter"), STRICT)
def test_strict_boxed(text, letter):
    assert found(text, mode="strict_single_letter_boxed") == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        *STRICT,
        pytest.param(r"\boxed{fog}", "E", id="option's text"),
        pytest.param(r"\boxed{It is FOG today}", "E", id="option's text within"),
        pytest.param(r"\boxed{light rain}", "F", id="other case and spaces"),
        pytest.param(r"\boxed{\text{no  wind}}", "C", id="text command around it"),
        pytest.param(r"\boxed{5 \text{km}}", "G", id="text command of the option"),
        pytest.param(r"\boxed{fog and hail}", None, id="two options quoted"),
        pytest.param(r"\boxed{wind}", None, id="part of options"),
        pytest.param("fog", None, id="quoted without a box"),
        pytest.param(r"\boxed{hail} \boxed{fog}", "E", id="quoted in the last box"),
    ],
)
def test_lenient_boxed(text, letter):
    assert found(text, mode="lenient_boxed") == letter


@pytest.mark.parametrize(
    ("options", "text", "letter"),
    [
        pytest.param(["20", "text"], r"\boxed{\text{20}}", "A", id="command's name is no quote"),
        pytest.param(["20", "text"], r"\boxed{\text{text}}", "B", id="command's name as content"),
        pytest.param([r"\text{20 km}", "9"], r"\boxed{20 km}", "A", id="command in the option"),
        pytest.param([r"20 \text{km}", "9"], r"\boxed{\text{20 km}}", "A", id="in both"),
        pytest.param(["", "hail"], r"\boxed{zzz}", None, id="empty option is never quoted"),
        pytest.param([r"\text{ }", "hail"], r"\boxed{zzz}", None, id="empty within the command"),
        pytest.param(["", "hail"], r"\boxed{}", None, id="empty box and empty option"),
        pytest.param(["", "hail"], r"\boxed{some hail}", "B", id="empty option beside a quote"),
    ],
)
def test_lenient_boxed_reads_what_stands_in_text_commands(options, text, letter):
    assert GRADERS["lenient_boxed"](text, asked(options)) == letter


WITHIN = [
    # The options, then boxes that have the text of the first one, and boxes that do not.
    (["71", "5"], ["71", "It is 71.", "x = 71", "$71$", "71 km", "(71)", "71%", "71个"], "171 713"),
    (["71", "5"], ["about 71, I think", "71; not 8"], "71.5 1.71 .71 1,071 71,000 1071 -71 71e3"),
    (
        ["71", "5"],
        ["**71**", r"\text{71}", r"71\,\text{km}"],
        r"71/2 2/71 71^2 2^71 \frac{71}{2} \sqrt{71} 3-71",
    ),
    (
        ["71", "5"],
        ["71 - as said"],
        ["- 71", "3 - 71", "3 + 71", "71 \u00d7 2", r"71 \pi", "71 000", "\u221271"],
    ),
    (
        ["5", "8"],
        [r"x = 5", "so:5", "x: 5", "'5'"],
        [r"\sqrt 5", r"2\cdot 5", r"2 \times 5", "±5", "∓ 5", "√5", "5:30", "1:5", "5'000", "1'5"],
    ),
    ([r"\sqrt 5", "8"], [r"\sqrt 5", r"\sqrt5", r"x=\sqrt 5."], [r"\sqrt 55"]),
    (["-5", "8"], ["-5", "\u22125", "is -5.", "x=-5"], ["5", "-55", "3-5", "3 - 5", "-5.5"]),
    (["0.5", "8"], ["0.5", "= 0.5"], "10.5 0.55 -0.5"),
    (
        ["organic", "salt"],
        ["organic", "An organic one.", '"organic"', r"\large organic"],
        "inorganic non-organic in\xadorganic",
    ),
    (["light rain", "x"], ["Light  rain!", "some light rain"], ["twilight rain", "light rainbow"]),
    (["C++", "Java"], ["C++", "in C++."], ["C", "ANSI-C"]),
    (["北京", "x"], ["是北京。", "北京市"], ["南京"]),
    (["50%", "50"], ["50%", r"50\%"], ["500%"]),
]


@pytest.mark.parametrize(("options", "quotes", "others"), WITHIN)
def test_lenient_boxed_reads_options_as_whole_words_and_numbers(options, quotes, others):
    read = GRADERS["lenient_boxed"]
    boxes = quotes, others.split() if isinstance(others, str) else others
    letters = [[read(rf"\boxed{{{text}}}", asked(options)) for text in texts] for texts in boxes]

    assert (set(letters[0]), set(letters[1])) == ({"A"}, {None})


def test_lenient_boxed_takes_the_exact_text_of_an_option_before_its_first_letter():
    options = ["E. coli", "25 °C", "A", "yeast", "mould"]
    read = {
        text: GRADERS["lenient_boxed"](rf"\boxed{{{text}}}", asked(options))
        for text in ("E. coli", "25 °C", "A", "E. mould", "E")
    }

    assert read == {"E. coli": "A", "25 °C": "B", "A": "A", "E. mould": "E", "E": "E"}


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        pytest.param("Answer: B", "B", id="letter"),
        pytest.param("answer : b", "B", id="lower case"),
        pytest.param("ANSWER:\n  B  ", "B", id="on the next line"),
        pytest.param("Answer: Light rain", "F", id="option's text"),
        pytest.param("Answer: FOG", "E", id="option's text in capitals"),
        pytest.param("Answer: A\nAnswer: B", "A", id="the first of two"),
        pytest.param("Answer: hmm\nAnswer: B", None, id="the first of two says nothing"),
        pytest.param("Answer: B.", None, id="letter with a dot"),
        pytest.param("Answer: some fog", None, id="option's text with more"),
        pytest.param("Answer: Z", None, id="not among the options"),
        *(
            pytest.param(f"Answer: {decorated}", "B", id=f"decorated:{decorated}")
            for decorated in (r"\boxed{B}", r"$\boxed{\text{B}}$", "**B**", "`b`", "$B$", "**`B`**")
        ),
        pytest.param("Answer: **Light rain**", "F", id="option in bold"),
        pytest.param("**Answer: B**", None, id="emphasis of the line, as in the reference"),
        pytest.param(r"Answer: A or \boxed{B}", None, id="more than a box"),
        pytest.param(r"Answer: \text{B}", "B", id="letter in text command"),
        pytest.param(r"Answer: \text{\text{ b }}", "B", id="text command in text command"),
        pytest.param(r"Answer: \text{light rain}", "F", id="option in text command"),
        pytest.param(r"Answer: 5 \text{km}", "G", id="text command of the option"),
        pytest.param("Answer: ب", "B", id="Arabic letter"),
        pytest.param("Answer: ড", "C", id="Bengali letter"),
        pytest.param("Answer: Ｂ", "B", id="full-width letter"),  # noqa: RUF001  # meant
        pytest.param("Answer: ب ج", None, id="two Arabic letters"),
        pytest.param("Answer:", None, id="nothing after it"),
        pytest.param("B", None, id="no answer line"),
    ],
)
def test_lenient_answer_colon(text, letter):
    assert found(text, mode="lenient_answer_colon") == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        pytest.param("Answer: B", "B", id="plain"),
        pytest.param("**Answer:** B", "B", id="bold label"),
        pytest.param("**Answer**: **B**", "B", id="both bold"),
        pytest.param("__answer__: _b_", "B", id="underscores, lower case"),
        pytest.param("Answer: (B) south wind", "B", id="leading letter"),
        pytest.param("Answer: 'B'", "B", id="in quotes"),
        pytest.param("Answer: A\nAnswer: B", "B", id="the last of two"),
        pytest.param("Answer: B\nAnswer: unclear", "B", id="the last of two says nothing"),
        pytest.param("Answer: B\nAnswer: A or C", "B", id="the last of two is ambiguous"),
        pytest.param("Answer: it must be B", "B", id="standalone capital"),
        pytest.param("Answer: not A but B", "B", id="last standalone capital"),
        pytest.param("Answer: Z, so B", "B", id="leading letter not among the options"),
        pytest.param("Answer: I'd say B", "I", id="contraction leads, known looseness"),
        pytest.param("Answer: it's B", "B", id="letter in a contraction not among the options"),
        pytest.param("Answer: B, B", "B", id="same letter twice"),
        pytest.param("Answer: B, b", "B", id="same letter in both cases"),
        *(
            pytest.param(f"Answer: A{between}B", None, id=f"ambiguous:{between}")
            for between in ("/", " | ", " & ", ", ", ";", " or ", " and ", " ", ", or ")
        ),
        pytest.param("Answer: a or b", None, id="ambiguous in lower case"),
        pytest.param("Answer: A or b", None, id="ambiguous, second one in lower case"),
        pytest.param("Answer: a/B", None, id="ambiguous, first one in lower case"),
        pytest.param("Answer: B, a", None, id="ambiguous in mixed case and falling order"),
        pytest.param("Answer: B, a city", None, id="ambiguous with an article"),
        pytest.param("Answer: A - B", "A", id="other separator is not ambiguous"),
        pytest.param("Answer: fog", None, id="option's text does not count"),
        pytest.param("Answer: Bring an umbrella", None, id="first letter of a word"),
        pytest.param("Answer: it is b", None, id="small letter that does not lead"),
        pytest.param("Answer: ب", "B", id="Arabic letter"),
        pytest.param("answer: أ", "A", id="Arabic letter, small label"),
        pytest.param("**Answer:** (ড) ...", "C", id="Bengali letter in parentheses"),
        pytest.param("Answer: Ｂ", "B", id="full-width letter"),  # noqa: RUF001  # meant
        pytest.param("Answer: ب or د", None, id="ambiguous in Arabic"),
        pytest.param("Answer: الباب", None, id="letters within an Arabic word"),
        pytest.param("Answer: বি", None, id="Bengali letter with a vowel sign"),
        pytest.param(r"Answer: \text{B}", "B", id="letter in text command"),
        pytest.param("***Answer***: B", "B", id="bold and italic label"),
        pytest.param("Answer\uff1a\uff22です", "B", id="full width, next to a word"),
        pytest.param(r"\boxed{B}", None, id="box without a prefix"),
        pytest.param("no idea", None, id="no answer line"),
    ],
)
def test_lenient_answer_colon_markdown(text, letter):
    assert found_in_markdown(text) == letter


@pytest.mark.parametrize(
    ("prefix", "text", "letter"),
    [
        ("Die Antwort ist", "Die Antwort ist (D).", "D"),
        ("Die Antwort ist", "DIE ANTWORT IST B, weil", "B"),
        ("答えは", "考える。答えは\uff08C\uff09です。", "C"),
        ("答えは", "答えは A だ。いや、答えは B だ。", "B"),
        ("答えは", "答えは A だ。いや、答えは不明だ。", "A"),
        ("答えは", "答えは A/B です。", None),
        ("La re\u0301ponse est", "La réponse est B", "B"),
        ("answer is", "The answer is\nC", "C"),
        ("answer is", "Answer: A\nThe answer is B", "B"),
        ("answer is", "The answer is A\nAnswer: B", "B"),
        ("answer is", r"It is \boxed{H}", "H"),
        ("answer is", r"The answer is A. \boxed{H}", "A"),
        ("a.b", "axb C", None),
        ("", "no idea C", None),
    ],
)
def test_the_words_before_an_answer_are_those_of_the_row(prefix, text, letter):
    task = asked(template_metadata={"output_regex": "NEVER", "answer_prefix": prefix})

    assert GRADERS["lenient_answer_colon_md"](text, task) == letter


QUIZ = ["Lyon", "Paris", "E. coli", "vitamins A and C"]
# One answer a line; `|` is a line break.
LETTER = {
    "B": r"""B
b
(b)
[B]
**B**
***B***
`B`
"B"
“B”
_B_
<B>
B.
B!
B:
B) Paris
B: Paris
B: as f(a) = 1, i.e. it
(B) Paris
(b) Paris
**B) Paris**
**B.** Paris
B:Paris
- B
# B
> **B**
$\text{B}$
\(B\)
\textbf{B}
ب
B。
```|B|```
B|Because it is the capital.
Because.||B
Let me think: A is no.||B
Answer: B
**Answer:** (B) Paris
Final answer: b.|Bye
Answer:||B
The answer is B.
A: Lyon is no.||The correct answer is **B: Paris**.
The answer is A. No, the answer is B
\boxed{B}
\boxed{\textbf{B}} so A
\boxed{B: Paris}
\boxed{B} and \boxed{A
\boxed{42}|Answer: B
A) Lyon|B) Paris||B
B||A: wrong because|C: wrong|D: wrong
B||C: wrong
(B), the city
(B) - the city
B. Paris. It has vitamin C.
B (Paris)
B - Paris
**B** — Paris.
The answer is B, paris
Answer: B (**Paris**)
\boxed{\boxed{B}}
\boxed{\boxed{\text{B}}} so A
\boxed{B}||\boxed{B}
\boxed{A}, no: \boxed{B}
\boxed{A} so $\boxed{B}$ and $\boxed{B}$
<answer>B</answer>
Because.|<answer>|(B)|</answer>
A and C are wrong.||B
C) is out.|B.
A) is out.|C) is out.||B
Q: Which?||B
""",
    "C": "C: E. coli\nC. E. coli|\nC, E. coli\nC - E. coli",
    "D": "D: Kopenhagen\nD. vitamins A and C.\nD. vitamins A and C. They are.",
    None: r"""A good question
A+
A's
¬A
B-side
B Paris
B - Lyon
B (not Paris)
B, Paris and Nice
B, because it is Paris
Paris
E. coli
U.S.
I
Z
\boxed{Z}
\boxed{B
A or B
A and B
A, B
A/B
AB
\boxed{A, B}
\boxed{A or B}|Answer: A
Answer: A or B|A
Answer: Paris|A
Answer: none of them
Answer:
B) Paris or C) Nice
B. Paris or C. Nice
(A) or (B)
A: Lyon|B: Paris|C: E. coli
The answer is A good one
I think B
B||A or B
\boxed{A} or \boxed{B}
\boxed{A}, \boxed{B}
$\boxed{A}$ and $\boxed{B}$
\boxed{A}\boxed{B}
\boxed{A}|\boxed{C}|\boxed{B}
\boxed{\boxed{A}, \boxed{B}}
\boxed{B: A}
A.|B.
A) or B
**A)**, **B**
B, B
Answer:|- A|- B
All of the above:|A.|B.
A: Lyon|B:
So.||A: Lyon|B:| |
A, Lyon|B, Paris
A: Lyon, C: Nice|B:
A|B|C|D
A|Because.|B
A) no|B|C) no
A ... B
A: B
A. D
B, B, A
<answer>A</answer>|<answer>B</answer>
""",
}


@pytest.mark.parametrize("letter", LETTER)
def test_letter_reads_the_one_letter_of_one_place(letter):
    read, task = GRADERS["letter"], asked(QUIZ)
    texts = [line.replace("|", "\n") for line in LETTER[letter].splitlines()]

    assert [(text, read(text, task)) for text in texts if read(text, task) != letter] == []
    assert read("", task) is None


def test_letter_tells_the_text_of_an_option_from_another_letter():
    options = asked(["-5", "a storm", "f(x)", r"5 \text{km}", ""])
    texts = ("A - -5", "B, a storm", "C (f(x))", "D: 5 km", "(D), 5 km", "E -", "E: A", "A - 5")
    letters = [GRADERS["letter"](text, options) for text in texts]

    assert letters == [*"ABCDD", None, None, None]


INVISIBLE = "\xad\u200b\u200e\u200f\u061c\u2060\u2067\u2069\ufeff"


@pytest.mark.parametrize(
    ("mode", "text", "letter"),
    [
        ("letter", "~B~", "B"),
        ("letter", "~Answer: ~B.~", "B"),
        ("letter", r"\boxed{~B~}", "B"),
        ("lenient_answer_colon", "Answer: ~b~", "B"),
        ("lenient_answer_colon", "Answer: Light~ rain~", "F"),
        ("lenient_answer_colon_md", "Answer: ~B~", "B"),
        ("strict_single_letter_boxed", r"\boxed{~B~: foo}", "B"),
        ("lenient_boxed", r"\boxed{~fog~}", "E"),
        ("lenient_boxed", r"\boxed{in~fog}", None),
    ],
)
def test_invisible_characters_do_not_count(mode, text, letter):
    texts = [text.replace("~", character) for character in INVISIBLE]

    assert [GRADERS[mode](text, asked()) for text in texts] == [letter] * len(texts)


def test_letter_takes_a_letter_for_a_label_even_if_another_option_has_that_text():
    blood_groups = asked(["O", "A", "B", "AB"])
    letters = [GRADERS["letter"](text, blood_groups) for text in ("B", "C: B", "(B) A", "AB")]

    assert letters == ["B", "C", "B", None]


def test_letter_reads_options_whose_texts_begin_like_labels():
    labelled = asked(["A) no", "B. yes", "E. coli", "x", "y"])
    texts = ("A) no", "B. yes", "(B) yes", "**E. coli**", "E. other")

    assert [GRADERS["letter"](text, labelled) for text in texts] == ["A", "B", "B", None, "E"]


@given(
    letter=st.sampled_from("ABCD"),
    layers=st.lists(
        st.sampled_from(["**{}**", "`{}`", "({})", "[{}]", '"{}"', r"\text{{{}}}", "${}$"]),
        max_size=4,
    ),
    place=st.sampled_from(["{}", "Well.\n\n{}", "{}\n\nSo.", "Answer: {}", r"\boxed{{{}}}"]),
    end=st.sampled_from(["", ".", ")", ":"]),
)
def test_letter_reads_any_decoration_in_any_place(letter, layers, place, end):
    answer = f"{letter}{end}"
    for layer in layers:
        answer = layer.format(answer)

    assert GRADERS["letter"](place.format(answer), asked(QUIZ)) == letter


# 26 spellings of the letter B behind "ANSWER: ", in a box, or as the whole answer.
SPELLINGS = [
    *("B", "b", "B.", "B)", "B:", "(B)", "[B]", "*B*", "**B**", "***B***", "__B__", "`B`", '"B"'),
    *("“B”", "$B$", r"\(B\)", r"\textbf{B}", r"$\mathrm{B}$", r"\boxed{B}", r"\boxed{\text{B}}"),
    *("**B)**", "B. south wind", "B: south wind", "\uff22"),
]
ASKED = {
    "boxed": [rf"\boxed{{{text}}}" for text in SPELLINGS]
    + [r"$\boxed{B}$", r"**Answer:** **\boxed{B}**"],
    "colon": [f"ANSWER: {text}" for text in SPELLINGS] + ["**ANSWER:** B", "ANSWER:\nB"],
    "letter": [*SPELLINGS, "**Answer:** B", "Answer:\nB"],
}
NUM_READ = {
    "strict_single_letter_boxed": 25,
    "lenient_boxed": 25,
    "lenient_answer_colon": 14,
    "lenient_answer_colon_md": 26,
    "last_answer_colon": 11,
    "letter": 26,
}


@pytest.mark.parametrize("mode", GRADERS)
def test_number_of_spellings_that_a_mode_reads(mode):
    """The README of mcqa has the table, those of benchmarks the number for `last_answer_colon`."""
    texts = next(texts for kind, texts in ASKED.items() if kind in mode)
    letters = [GRADERS[mode](text, asked()) for text in texts]

    assert set(letters) <= {"B", None}
    assert (letters.count("B"), len(texts)) == (NUM_READ[mode], 26)


def test_readmes_of_benchmarks_say_how_many_spellings_are_not_read():
    readmes = [path.read_text() for path in gymcli.envs.DATASETS.glob("*/README.md")]
    readmes = [" ".join(text.split()) for text in readmes if "**Score:** the mode `last_" in text]

    assert len(readmes) == 12
    assert all(f"misses {26 - NUM_READ['last_answer_colon']} of [26 " in text for text in readmes)


@pytest.mark.parametrize(
    ("pattern", "text", "letter"),
    [
        pytest.param(r"pick: ([A-Z])", "pick: A, pick: B", "B", id="last match"),
        pytest.param(r"PICK: ([A-Z])", "pick: b", "B", id="case ignored, upper-cased"),
        pytest.param("[A-Z]$", "it is B", "B", id="no group: whole match"),
        pytest.param(r"(\w) of (\w)", "A of B", "A", id="several groups: the first"),
        pytest.param(r"pick: (\w)", "pick: Z", "Z", id="not among the options, still counts"),
        pytest.param(r"pick: (.+)", "pick:  Light   rain ", "F", id="option's text"),
        pytest.param(r"pick: (.+)", "pick: some fog", None, id="more than option's text"),
        pytest.param(r"pick: (\w)", "pick: 7", None, id="a digit is no letter"),
        pytest.param(r"pick: (\w?)", "pick: ", None, id="empty match"),
        pytest.param(r"الجواب: (.)", "الجواب: ب", "B", id="Arabic letter"),
        pytest.param(r"উত্তর: (.)", "উত্তর: ড", "C", id="Bengali letter"),
        pytest.param(r"答: (.)", "答: Ｄ", "D", id="full-width letter"),  # noqa: RUF001  # meant
        pytest.param(
            r"答: (.)",
            "答: Ｅ",  # noqa: RUF001  # meant
            "E",
            id="full-width letter beyond D",
        ),
        pytest.param(["x: (.)", "y: (.)"], "y: A x: B", "B", id="patterns in order"),
        pytest.param(["x: (.)", "y: (.)"], "y: A x: 5", "A", id="next pattern after nothing"),
        pytest.param(["(", "y: (.)"], "y: A", "A", id="next pattern after an invalid one"),
        pytest.param("(", "y: A", None, id="invalid pattern"),
        pytest.param([], "A", None, id="no pattern"),
    ],
)
def test_output_regex(pattern, text, letter):
    assert found(text, pattern=pattern) == letter


def test_output_regex_comes_before_the_grading_mode():
    assert found(r"pick: A \boxed{B}", pattern=r"pick: (\w)") == "A"
    assert found(r"\boxed{B}", pattern=r"pick: (\w)") == "B"


def test_output_regex_that_takes_too_long_leaves_the_rollout_unscored():
    with pytest.raises(VerifierTimeoutError):
        found("a" * 60 + "!", pattern=r"(a|a|aa)+$")


def test_verify_says_how_it_came_to_the_score():
    right = scored(answered("mcqa", question(), r"\boxed{E}"))
    wrong = scored(answered("mcqa", question(), r"\boxed{A}"))
    nothing = scored(answered("mcqa", question(), "Hm."))

    assert [r.reward for r in (right, wrong, nothing)] == [1.0, 0.0, 0.0]
    assert [r.metrics["no_answer"] for r in (right, wrong, nothing)] == [0.0, 0.0, 1.0]
    assert [r.details["reason"] for r in (right, wrong, nothing)] == [
        "correct",
        "wrong_answer",
        "no_answer",
    ]
    assert [r.details["expected"] for r in (right, wrong, nothing)] == ["E", "E", "E"]
    assert right.details["read_by"] == "strict_single_letter_boxed"


def test_verify_reads_the_gold_letter_in_any_case():
    rollout = answered("mcqa", question(expected_answer=" e "), r"\boxed{E}")

    assert scored(rollout).reward == 1.0


def test_verify_reads_option_letters_in_any_case():
    fields = {"options": [{"a": "fog"}, {"b": "hail"}], "expected_answer": "b"}

    assert scored(answered("mcqa", fields, r"\boxed{B}")).reward == 1.0


def test_verify_never_takes_silence_for_an_option_without_text():
    fields = {
        "options": [{"A": ""}, {"B": "hail"}],
        "expected_answer": "A",
        "grading_mode": "lenient_answer_colon",
        "template_metadata": {"output_regex": ".*"},
    }

    assert scored(answered("mcqa", fields, "")).answer is None


def test_grading_mode_defaults_to_the_strict_box():
    assert found("Answer: E") is None
    assert found(r"\boxed{E}") == "E"


def test_grading_mode_of_the_options_wins_over_the_row():
    rollout = answered("mcqa", question(grading_mode="lenient_boxed"), "Answer: E")

    assert scored(rollout).answer is None
    assert scored(rollout, grading_mode="lenient_answer_colon").answer == "E"


def test_markdown_mode_is_no_value_of_a_row():
    with pytest.raises(ValidationError):
        Question.model_validate(question(grading_mode="lenient_answer_colon_md"))


@pytest.mark.parametrize("mode", GRADERS)
@given(text=st.text(alphabet="ABEab:. \n\\boxed{}text*_/,answer", max_size=60))
def test_every_mode_finds_an_option_or_nothing(mode, text):
    assert GRADERS[mode](text, asked()) in {None, *OPTIONS}


CHOICE = {
    # What the scorer `choice` of inspect_ai 0.3.285 finds in these texts, by running it.
    "B": [
        "ANSWER: B",
        "Answer: b",
        "answer : B.",
        "ANSWER:B",
        "ANSWER: **B**",
        "**ANSWER: B**",
        "ANSWER: $B$",
        "ANSWER: (B)",
        "ANSWER: B) two",
        "ANSWER: B,",
        "So.\n\nANSWER: B",
        "ANSWER: A\nNo, wait.\nANSWER: B",
        "I say ANSWER: A, but\nANSWER: B",
        "ANSWER: B\nThat is the ANSWER: A",
        "The ANSWER: A. Or ANSWER: B!",
        "ANSWER:\nB",
        "ANSWER: B\nDone: A is wrong.",
        "Final answer: B",
        "ANSWER: B étant donné",
        "正解は\nANSWER: B。",
        "ANSWER: B \t",
        "# ANSWER: B",
    ],
    "A": [
        "ANSWER: B\nNo, wait.\nANSWER: A",
    ],
    None: [
        "B",
        "",
        "The answer is B.",
        "ANSWER: B because it is old.",
        "**Answer:** B",
        "ANSWER: A, B",
        "ANSWER: A or B",
        "ANSWER: E",
        "ANSWER: \\boxed{B}",
        "\\boxed{B}",
        "ANSWER: two",
        "ANSWER: $LETTER",
        "ANSWER: `B`",
        "ANSWER: <B>",
        "Réponse : B",
        "ANSWER: \uff22",
    ],
}


def test_last_answer_colon_finds_the_letters_of_its_source(subtests):
    task = asked(["one", "two", "three", "four"])
    for letter, texts in CHOICE.items():
        for text in texts:
            with subtests.test(text):
                assert GRADERS["last_answer_colon"](text, task) == letter


def test_last_answer_colon_takes_linear_time():
    text = f"ANSWER:{' ' * 100_000}!$ a{' ' * 100_000}!\nANSWER: B{' ' * 100_000}\t!"

    assert GRADERS["last_answer_colon"](text, asked()) == "B"


@pytest.mark.parametrize("mode", GRADERS)
def test_every_mode_takes_linear_time(mode):
    task = asked(template_metadata={"answer_prefix": "answer is"})
    parts = ["A", " ", "(", "B ", "or ", "*", "- ", "\\boxed{", "Answer: ", "A) x\n", "answer is "]
    for part in parts:
        start = time.process_time()
        GRADERS[mode](f"B: {part * 30_000}x", task)
        GRADERS[mode](f"Answer: {part * 30_000}x", task)
        assert time.process_time() - start < 2, part  # a quadratic rule takes minutes


def test_parse_task_takes_a_row_with_a_template():
    """NeMo Gym's rows carry fields that no rule reads; `parse_task` accepts and keeps them."""
    task = MultipleChoice.parse_task(
        {
            "options": [{"A": "one"}, {"B": "two"}],
            "expected_answer": "B",
            "uuid": "5a1f",
            "reward_profiles": [{"model_hf_path": "some/model", "pass_rate": 0.5}],
            "template_metadata": {
                "template_id": "t1",
                "template_prompt": "{problem}",
                "output_regex": r"so: ([A-Z])",
                "weight": 0.5,
            },
        }
    )

    assert task.patterns == [r"so: ([A-Z])"]
    assert task.uuid == "5a1f"


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        pytest.param(r"Rocks that cool from melt: \boxed{C}", 1.0, id="right"),
        pytest.param(r"\boxed{\text{C}: Igneous}", 1.0, id="with its label"),
        pytest.param(r"\boxed{A}", 0.0, id="wrong"),
        pytest.param(r"\boxed{Igneous}", 0.0, id="text in place of the letter"),
        pytest.param("C", 0.0, id="no box"),
    ],
)
def test_verify_scores_a_row_in_the_shape_of_the_reference(tmp_path, answer, reward):
    names = {"A": "Limestone", "B": "Slate", "C": "Basalt", "D": "Sandstone"}
    listing = "\n".join(f"{letter}: {name}" for letter, name in names.items())
    prompt = f"Which rock is igneous?\n{listing}\nPut one letter into \\boxed{{}}."
    row = row_of_file(
        tmp_path,
        "mcqa",
        {
            "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
            "options": [{letter: name} for letter, name in names.items()],
            "expected_answer": "C",
            "grading_mode": "strict_single_letter_boxed",
            "uuid": "0b7e4c1a-5d52-4f8e-9a57-2f6f0c3f9d11",
        },
    )
    rollout = scored(played(row, says(answer)))

    assert rollout.messages[0].text == prompt
    assert rollout.reward == reward


def test_oracle_speaks_the_mode_of_the_options(subtests):
    cases = [None, *GRADERS]
    for mode in cases:
        with subtests.test(mode=mode):
            rollout = played(task_row("mcqa", question()), grading_mode=mode)

            assert scored(rollout, grading_mode=mode).reward == 1.0


def test_tasks_that_ask_for_a_phrase_read_it():
    """An answer that follows the prompt is matched by the row's own pattern."""
    num_read = 0
    for line in shipped_tasks("mcqa").read_bytes().splitlines():
        row = msgspec.json.decode(line)
        if "template_metadata" not in row:
            continue
        gold = row["expected_answer"]
        text = next(option[gold] for option in row["options"] if gold in option)
        asks_for_letter = "I pick" in row["prompt"]
        answer = f"Well, I pick {gold}." if asks_for_letter else f"<pick>{text}</pick>"

        rollout = scored(answered("mcqa", row, answer))
        assert (rollout.reward, rollout.details["read_by"]) == (1.0, "output_regex")
        num_read += 1
    assert num_read >= 10


def test_tasks_have_right_gold_answers():
    """The answers are computed again from the text of the prompt."""
    for row in MultipleChoice.generate(Random(5), 90):
        texts = {letter: text for option in row["options"] for letter, text in option.items()}
        quoted = row["prompt"].split('"')
        if "largest" in row["prompt"]:
            right = max(texts.values(), key=int)
        elif "dictionary" in row["prompt"]:
            right = min(texts.values())
        elif "How many times" in row["prompt"]:
            right = str(sum(letter == quoted[1] for letter in quoted[3]))
        else:
            right = dt.date.fromisoformat(row["prompt"].split("?")[0][-10:]).strftime("%A")

        assert texts[row["expected_answer"]] == right
        assert len(set(texts.values())) == len(texts)
        assert "".join(texts) == string.ascii_uppercase[: len(texts)]
        assert 4 <= len(texts) <= 10


def test_tasks_cover_every_mode_of_a_row():
    rows = list(MultipleChoice.generate(Random(1), 60))

    assert {row.get("grading_mode") for row in rows} == {
        None,
        "strict_single_letter_boxed",
        "lenient_boxed",
        "lenient_answer_colon",
    }
