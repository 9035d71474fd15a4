"""The environment qa_f1: the two evaluation scripts, how answers are read, and the tasks."""

import re
from random import Random

import pytest
from pydantic import ValidationError

from gymcli.envs.qa_f1 import QaF1, ReadingQuestion, drop_overlap
from tests.envs.episodes import answered, played, scored, task_row

# Answer, gold answers, exact match and F1: made by running allennlp-models 2.10.1,
# allennlp_models/rc/tools/squad.py and drop.py, on random answers. 4,000 of 4,000 such cases agree.
SQUAD = [
    ("U.S. of of US 7", [], 0, 0),
    ("5", ["US +7", "5", ""], 1, 1),
    ("five The a Alps 12%", ["٣", "five naïve 1_000", "4 5"], 0, 0.3333),
    ("3 3-2 five", ["3 five 3-2", "9 $5 3-2", "a"], 0, 1),
    ("3-2 1903 naïve", ["north-west", "", "3-2 naïve"], 0, 0.8),
    ("U.S. 12%,", ["12%", "river 1_000"], 0, 0.6667),
    ("3 10th 007 ٣", ["3 10th 007 ٣ 8"], 0, 0.8889),
    ("an May $5 É", ["8 us", "naïve", "an May $5 É 7"], 0, 0.8571),
    ("3 the .", ["3 the five . 1_000", "9", "12.0 five"], 0, 0.5),
    ("½ five", ["us 1903 ½ 12% 12"], 0, 0.2857),
    ("12% ... 1e3 4 3-2", ["12% ... ٣ 4 3-2", "and"], 0, 0.75),
    ("U.S. 3 us -7 10th five", ["3 us -7 10th five"], 0, 0.9091),
    ("É 7 nan a $5", ["12% $5 7"], 0, 0.5714),
    ("٣ north-west ½ US 8", ["4.5 north-west ½ US 8"], 0, 0.8),
    ("nan naïve 12 10th ½", ["21-yard 1200 nan", "", "."], 0, 0.25),
    ("7 1903 1,200 É \t", ["1200", "1200 a"], 0, 0.4),
    ("nan ½ Anne's $5 and 9 and", ["nan ½ Anne's and and", "a"], 0, 0.8333),
    ("... é É", [], 0, 0),
    ("nan", ["nan", "nan", "an"], 1, 1),
    ("and and nan", ["and nan"], 0, 0.8),
    ("nan 5", ["of five 4.5", "us 8", "a US 5 1,200 21-yard"], 0, 0.3333),
    ("us 1,200", ["1,200"], 0, 0.6667),
]
DROP = [
    (["7"], [["Alps north-west"]], 0, 0),
    (["US and"], [["US and"]], 1, 1),
    (["five 4.5,", "4.50", ""], [["4.50", "4.5", ""]], 0, 0.67),
    ([""], [["1,200 U.S."], ["an", "4.5 U.S.", "5"], ["1903"]], 0, 0.33),
    (["12"], [["12", "8"]], 0, 0.5),
    (["and +7 Anne's", "-7", ""], [["+7 Anne's", "-7", ""]], 0, 0.93),
    (["-7", "é,", "of", "", "Annes"], [["-7 3", "é", "of", ""]], 0, 0.73),
    (["4 3 .", "U.S."], [["3 .", "U.S."]], 0, 0.83),
    (["8 nan Annes"], [["8 Annes"]], 0, 0.8),
    (["3 . Anne's 3 us"], [["3 3 . Anne's us"]], 0, 1),
    (["$5 of -7 us \t"], [["of ..."]], 0, 0.4),
    (["007 3 a 9"], [["$5 007 3 a 9"]], 0, 0.86),
    (["É ½", "É 1e3"], [["É ½", "1200 1e3"]], 0, 0.75),
    (["é", "٣ 3", "$5 - 12.0"], [["é", "٣ 3 an", "- 12.0"], ["é"]], 0, 0.89),
    (["naïve 1903 8 and 12"], [["river and The"]], 0, 0.29),
    (["and 3-2 1_000 É", "a \t ٣"], [["3-2 É", "a \t ٣"]], 0, 0.88),
    (["U.S."], [["9 1200", "north-west É U.S.", "an 1,200"]], 0, 0.13),
    (["É 1_000 us", ". $5"], [["1_000 us", ". $5"]], 0, 0.9),
    (["é,", "inf north-west"], [["é", "north-west", "nan"]], 0, 0.6),
    ([""], [["\n of", "The 8", "a", "Annes 4.50 12 21-yard 7"]], 0, 0.25),
    (["12 21-yard 7 8 a inf"], [["12 21-yard 7 a inf"]], 0, 0.91),
    (["", "", "the 3", "é"], [["٣", "", "3", "é"]], 1, 0.75),
    (["É", "3", "nan É"], [["4.5 nan É", "3 é", "É"], ["nan é"]], 0, 0.82),
    ([". five", "river 4", "\t Anne's"], [[". five", "4"]], 0, 0.56),
    (["inf inf 8 five", "Alps"], [["inf unanswerable inf 8 five"]], 0, 0.43),
    (["4", "... \t", "É", "1e3 8"], [["4 12%", "... \t", "É May"]], 0, 0.58),
    (["007 north-west and the the"], [["4", "5", "8", "007"]], 0, 0.1),
    (["of", "an 12.0 - 3-2 river"], [["of", "1903 of The 4 3-2"]], 0, 0.72),
    ([""], [["3-2 Annes", "+7 inf", "10th a", "an 9", "", ""]], 0, 0.17),
    ([".", "é 9 of U.S.", ""], [["é 9 4.50 of U.S.", "", ""]], 0, 0.96),
    (["and", "8", "an 8"], [["4.5 8", "and 4.50"]], 0, 0.22),
    (["- naïve,"], [["naïve -"]], 1, 1),
    (["\t Alps", "\t"], [["\t Alps", "\t", "٣ ½"]], 0, 0.67),
]

LINE = {"rule": "drop", "extraction_mode": "answer_line"}


def question(answers, **fields):
    return {"answers": answers, **fields}


def score(answers, text, **fields):
    return scored(answered("qa_f1", question(answers, **fields), text))


def test_squad_agrees_with_the_official_script():
    for answer, golds, exact_match, f1 in SQUAD:
        # To the script, the empty text says that there is no answer.
        rollout = score(golds, answer or "unanswerable")

        assert rollout.components["exact_match"] == exact_match, (answer, golds)
        assert rollout.reward == rollout.components["f1"] == pytest.approx(f1, abs=1e-4), answer


def test_drop_agrees_with_the_official_script():
    for answer, golds, exact_match, f1 in DROP:
        overlaps = [drop_overlap(answer, gold) for gold in golds if gold[0].strip()]

        assert max(one.exact_match for one in overlaps) == exact_match, (answer, golds)
        assert max(one.f1 for one in overlaps) == f1, (answer, golds)


@pytest.mark.parametrize(
    ("answers", "text", "reward", "fields"),
    [
        pytest.param([], "Unanswerable.", 1.0, {}, id="no answer"),
        pytest.param([], "It is unanswerable", 0.0, {}, id="no answer, in a sentence"),
        pytest.param([], "None.", 1.0, {"no_answer_text": "none"}, id="no answer, another text"),
        pytest.param([], "", 0.0, {}, id="silence says nothing"),
        pytest.param(["Kiel"], "unanswerable", 0.0, {}, id="there is an answer"),
        pytest.param(["an unanswerable one"], "unanswerable", 2 / 3, {}, id="as a word"),
        pytest.param(["-"], "unanswerable", 1.0, {}, id="gold without a word"),
        pytest.param(["Kiel"], "Answer: Kiel", 2 / 3, {}, id="all of the text is the answer"),
        pytest.param(["9"], "Answer: 10\nAnswer: 9", 0.0, LINE, id="the first line counts"),
        pytest.param(["9"], "ANSWER :\n 9.00 \nBye", 1.0, LINE, id="on the next line"),
        pytest.param(["9"], "$9", 1.0, LINE, id="without a line, the text"),
        pytest.param(["9"], "So.\n**Answer:** 9", 1.0, LINE, id="bold label"),
        pytest.param(["9"], "So.\n**Answer**: **9**", 1.0, LINE, id="bold label and answer"),
        pytest.param(["9"], "So.\n**Answer:**\n\n9", 1.0, LINE, id="bold label, next line"),
        pytest.param(["9"], "It is 9.\nAnswer:", 0.0, LINE, id="nothing after the label"),
        pytest.param([["a lark", "9 owls"]], "Answer: 9 owls; lark;", 1.0, LINE, id="spans"),
        pytest.param([["lark", "owl"]], "Answer: lark, owl", 0.33, LINE, id="one span"),
        pytest.param([[" "], ["lark"]], "Answer: ;", 0.0, LINE, id="nothing but a semicolon"),
    ],
)
def test_answers_are_read_from_texts(answers, text, reward, fields):
    assert score(answers, text, **fields).reward == pytest.approx(reward)


def test_a_record_explains_its_score():
    rollout = score(["12 May 1903", "May 1903"], " in May 1903 \n")

    assert (rollout.answer, rollout.reward) == ("in May 1903", pytest.approx(0.8))
    assert rollout.components == {"f1": rollout.reward, "exact_match": 0.0}
    # The gold answer with the highest F1 is named.
    assert rollout.details == {"reason": "partly_correct", "expected": "May 1903"}
    assert score(["x"], "x").details == {"reason": "correct", "expected": "x"}
    assert score(["x"], "y").details == {"reason": "wrong_answer", "expected": "x"}
    assert score(["x"], " ").details == {"reason": "no_answer", "expected": "x"}
    assert score([], "y").details == {"reason": "wrong_answer", "expected": "unanswerable"}
    assert score(["x"], " ").metrics == {"no_answer": 1.0}
    assert len(score(["x"], "y" * 5000).answer) == 1000


def test_oracle_passes_over_answers_that_cannot_be_read_back():
    fields = question([["a; b"], ["lark", "owl"]], **LINE)

    assert played(task_row("qa_f1", fields)).last_text == "Answer: lark; owl"


@pytest.mark.parametrize(
    "fields",
    [question([], rule="drop"), question([[" "]], rule="drop"), question([["lark"]])],
)
def test_rows_that_no_answer_fits_are_refused(fields):
    with pytest.raises(ValidationError):
        ReadingQuestion.model_validate(fields)


def test_tasks_have_right_answers():
    """Numbers and names are computed again from the text of the prompt."""
    num_solved = 0
    for row in QaF1.generate(Random(1), 120):
        text, asked, _ = row["prompt"].split("\n\n")
        ships = {}
        for sentence in re.split(r"(?<=\.) ", text):
            [name] = re.findall(r"[Tt]he ([A-Z]\w+)", sentence)
            passengers, year = (re.search(p, sentence)[0] for p in (r"\d{3}(?= pass)", r"\d{4}"))
            ships[name] = (int(passengers), int(year))
        if found := re.search(r"could the (\w+) carry than the (\w+)", asked):
            expected = [str(ships[found[1]][0] - ships[found[2]][0])]
        elif found := re.search(r"launched before (\d+)", asked):
            expected = sorted(name for name, (_, year) in ships.items() if year < int(found[1]))
        elif found := re.search(r"could carry (\d+)", asked):
            expected = [name for name, (number, _) in ships.items() if number == int(found[1])]
        else:
            continue
        gold = row["answers"][0]
        assert (sorted(gold) if isinstance(gold, list) else [gold]) == expected, row["id"]
        num_solved += 1
    assert num_solved > 30
