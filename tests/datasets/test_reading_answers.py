"""How qa_f1 and inspect-evals score answers to SQuAD and DROP."""

import pytest

from tests.envs.episodes import answered, scored_here

# Made by running `f1` and `exact` of inspect_ai 0.3.285, as inspect-evals 0.26.0 does; the F1 of
# qa_f1 is that of the official scripts.

# Gold answers, answer, F1 and exact match in both, else those of inspect-evals and then ours.
SQUAD = [
    (["May 1903", "in May 1903"], "May 1903", (1.0, 1)),
    (["May 1903", "in May 1903"], "in May 1903.", (1.0, 1)),
    (["May 1903", "in May 1903"], "1903", (0.67, 0)),
    (["May 1903", "in May 1903"], "The mill closed in May 1903.", (0.75, 0)),
    (["May 1903", "in May 1903"], "may, 1903", (1.0, 1)),
    (["May 1903", "in May 1903"], "unanswerable", (0.0, 0)),
    (["May 1903", "in May 1903"], "Unanswerable", (0.0, 0)),
    (["May 1903", "in May 1903"], "", (0.0, 0)),
    (["May 1903", "in May 1903"], "1904", (0.0, 0)),
    (["May 1903", "in May 1903"], "May 1903 May", (0.8, 0)),
    (["May 1903", "in May 1903"], "1903 May", (1.0, 0)),
    (["May 1903", "in May 1903"], '"May 1903"', (1.0, 1)),
    ([], "unanswerable", (1.0, 1)),
    ([], "Unanswerable.", (1.0, 1)),
    ([], "It is unanswerable.", (0.5, 0), (0.0, 0)),
    ([], "The question is unanswerable", (0.5, 0), (0.0, 0)),
    ([], "", (0.0, 0)),
    ([], "May 1903", (0.0, 0)),
    ([], "No answer", (0.0, 0)),
    ([], "'unanswerable'", (1.0, 1)),
    (["the Norman-French kings"], "Norman French kings", (1.0, 1), (0.4, 0)),
    (["the Norman-French kings"], "Norman-French kings", (1.0, 1)),
    (["10.5 million"], "10.5 million", (1.0, 1)),
    (["10.5 million"], "$10.5 million", (1.0, 1)),
    (["1,200"], "1200", (1.0, 1)),
    (["12"], "12.0", (1.0, 1), (0.0, 0)),
    (["3.0"], "3", (1.0, 1), (0.0, 0)),
    (["US$5"], "US $5", (0.0, 0)),
    (["A"], "A", (0.0, 0), (1.0, 1)),
    (["Anne's"], "Annes", (1.0, 1)),
    (["twenty-one"], "twenty one", (1.0, 1), (0.0, 0)),
    (["Straße"], "strasse", (1.0, 1), (0.0, 0)),
    (["São Paulo"], "Sao Paulo", (0.5, 0)),
]

# Gold spans, answer, and the F1 in both, else that of inspect-evals and then ours.
DROP = [
    (["12"], "Answer: 12", 1),
    (["12"], "Answer: 12.0", 1),
    (["12"], "Answer: 12 yards", 0.67),
    (["12"], "Answer: twelve", 0),
    (["12"], "Answer: 13", 0),
    (["12"], "Answer: **12**", 1),
    (["12"], "**Answer:** 12", 1),
    (["12"], "So.\n**Answer:**\n12", 0, 1),
    (["12"], "So it is.\n**Answer**: 12", 0.33, 1),
    (["12"], "So 9 + 3 = 12.\nAnswer:", 0),
    (["12"], "Answer: 12.", 1),
    (["12"], "Answer: $12", 1),
    (["12"], "So 9 + 3 = 12.", 0.4),
    (["12"], "", 0),
    (["4.5"], "Answer: 4.50", 1),
    (["1200"], "Answer: 1,200", 1),
    (["Panthers"], "Answer: Panthers", 1),
    (["Panthers"], "Answer: the Carolina Panthers", 0.67),
    (["Panthers"], "Answer: Eagles", 0),
    (["12-yard run"], "Answer: 12 yard run", 1),
    (["12-yard run"], "Answer: run", 0.5, 0),
    (["12-yard run"], "Answer: 13-yard run", 0.67, 0),
    (["Eagles", "Panthers"], "Answer: Eagles; Panthers", 0, 1),
    (["Eagles", "Panthers"], "Answer: Panthers; Eagles", 0, 1),
    (["Eagles", "Panthers"], "Answer: Eagles, Panthers", 0, 0.33),
    (["Eagles", "Panthers"], "Answer: Eagles and Panthers", 0, 0.25),
    (["Eagles", "Panthers"], "Answer: Eagles", 0, 0.5),
    (["Eagles", "Panthers"], "Answer: Eagles; Panthers; Bears", 0, 0.67),
    (["Eagles", "Panthers"], "Answer: Eagles,Panthers", 1, 0),
    (["New York Jets", "Bears"], "Answer: New York Jets; Bears", 0.57, 1),
    (["New York Jets", "Bears"], "Answer: New York Jets, Bears", 0.57, 0.43),
    (["May 1903"], "Answer: May 1903", 1),
    (["4 May 1903"], "Answer: 4 May 1903", 1),
    (["4 May 1903"], "Answer: May 4, 1903", 1),
    (["4 May 1903"], "Answer: 1903", 0.5),
    (["4 May 1903"], "Answer: 1903-05-04", 0.67),
    (["12"], "Answer: 11\nAnswer: 12", 0),
    (["12"], "The answer: 12", 1),
]


def test_squad_differs_from_inspect_evals_where_the_readme_says():
    for golds, answer, *scores in SQUAD:
        found = scored_here(answered("qa_f1", {"answers": golds}, answer))
        f1, exact_match = scores[-1]
        assert found.reward == pytest.approx(f1, abs=0.005), (golds, answer)
        assert found.components["exact_match"] == exact_match, (golds, answer)


def test_drop_differs_from_inspect_evals_where_the_readme_says():
    for spans, answer, *scores in DROP:
        task = {"answers": [spans], "rule": "drop", "extraction_mode": "answer_line"}
        found = scored_here(answered("qa_f1", task, answer))
        assert found.reward == pytest.approx(scores[-1], abs=0.006), (spans, answer)
