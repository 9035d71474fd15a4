"""Maps and scores of benchmarks, against what the packages that they come from returned.

The values are those of inspect_evals 0.26.0 with inspect_ai 0.3.285 and datasets 5.2.0.
"""

import pytest

import gymcli.envs
from gymcli.envs.mcqa import GRADERS, Question
from tests.envs.episodes import answered, scored_here

LETTERS = "DCDCDDCCACDDCDABDCDAAADC"
WINOGRANDE_EXAMPLES = [17943, 11104, 22085, 38651, 10973]

CHOICE = {
    "options": [{"A": "one"}, {"B": "two"}],
    "expected_answer": "B",
    "grading_mode": "last_answer_colon",
}
YES = {"passage": "It is.", "question": "is it", "answer": True}
BBH = [
    {"_config": name, "question": "Well?", "target": target}
    for name, target in (
        ("causal_judgement", "Yes"),
        ("object_counting", "24"),
        ("word_sorting", "ab bc cd"),
        ("dyck_languages", "] >"),
    )
]
BBH_EXAMPLES = [
    {"_config": "few_shot_prompts", "dataset_name": row["_config"], "answer_only_prompt": "Do so."}
    for row in BBH
]


def tasks(name, rows, file="map"):
    path = gymcli.envs.DATASETS / name / f"{file}.py"
    return list(gymcli.envs.load_file(f"{file}_of_{name}", path).tasks(iter(rows)))


def test_rows_without_an_answer_are_no_tasks():
    """Such as those of a test split that was published without labels."""
    question = {"choices": {"text": [*"abcdef"], "label": [*"ABCDEF"]}, "answerKey": "A", "id": "1"}
    endings = {"ctx": "", "endings": [*"abcd"], "activity_label": "", "source_id": ""}
    pro = {"question_id": 1, "question": "?", "options": [*"abcdefghijk"], "category": ""}
    rows = [
        ("gsm8k", "map", {"question": "?", "answer": "It is 3."}),
        ("hellaswag", "map", {**endings, "label": ""}),
        ("hellaswag", "map", {**endings, "label": -1}),
        ("arc-challenge", "map_arc", {**question, "question": "?"}),
        ("mmlu-pro", "map_0_shot", {**pro, "answer": "A"}),
    ]
    for name, file, row in rows:
        path = gymcli.envs.DATASETS / name / f"{file}.py"
        function = gymcli.envs.load_file(f"{file}_of_{name}", path).task
        with pytest.raises(ValueError, match=r"####|not in list|zip\(\)"):
            function(row)


def test_options_have_the_order_of_the_source():
    columns = ["Correct Answer", *(f"Incorrect Answer {number}" for number in (1, 2, 3))]
    row = dict(zip(columns, "r123", strict=True))
    gpqa = [
        row | {"Record ID": number, "Question": "?", "High-level domain": "", "Subdomain": ""}
        for number in range(24)
    ]
    targets = {"choices": ["r", "1", "2", "3"], "labels": [1, 0, 0, 0]}
    truthfulqa = [{"question": number, "mc1_targets": targets} for number in range(24)]
    for name, rows in (("gpqa-diamond", gpqa), ("truthfulqa", truthfulqa)):
        made = tasks(name, rows)
        assert "".join(task["expected_answer"] for task in made) == LETTERS
        orders = [
            "".join(text for option in task["options"] for text in option.values()) for task in made
        ]
        assert orders[:6] == ["213r", "32r1", "132r", "12r3", "123r", "132r"]
    # The source of TruthfulQA orders the questions first.
    assert [task["question"] for task in made[:6]] == [16, 15, 18, 19, 9, 7]


def test_options_have_the_ten_orders_of_simple_evals():
    columns = ["Correct Answer", *(f"Incorrect Answer {number}" for number in (1, 2, 3))]
    row = dict(zip(columns, "r123", strict=True)) | {"Question": "?"}
    row |= {"High-level domain": "", "Subdomain": ""}
    made = tasks("gpqa-diamond", [row | {"Record ID": n} for n in "ab"], "map_simple_evals")
    assert [task["id"] for task in made[:4]] == ["a-1", "b-1", "a-2", "b-2"]
    assert len(made) == 20
    orders = [
        "".join(text for option in task["options"] for text in option.values()) for task in made
    ]
    # `permutation` of gpqa_eval.py there: [3, 1, 0, 2], [3, 1, 2, 0], [2, 3, 0, 1], ...
    assert orders[:5] == ["31r2", "312r", "23r1", "2r31", "13r2"]
    assert "".join(task["expected_answer"] for task in made[:5]) == "CDCBC"


def test_examples_of_mmlu_pro_end_as_their_prompt_asks():
    row = {"question_id": 1, "question": " ?\n", "options": ["x", "y"], "category": "law"}
    solved = "A: Let's think step by step. It is y. The answer is (B)."
    example, task = tasks(
        "mmlu-pro",
        [
            row | {"answer": "B", "cot_content": solved},
            row | {"question_id": 2, "answer": "A", "cot_content": ""},
        ],
        "map_5_shot",
    )
    assert example["answer"] == "It is y. The best answer is B."
    assert (example["question"], example["choices"]) == ("?", "A. x\nB. y")
    assert "answer" not in task
    for text, reward in (
        ("It is A, no: the best answer is B. The best answer is A.", 1.0),
        ("The best answer is **(A)**.", 1.0),
        ("The best answer is B.", 0.0),
        ("I think it is A.", 0.0),
    ):
        assert scored_here(answered("mcqa", task, text)).reward == reward, text


def test_questions_that_repeat_in_mmlu_and_mmmlu_are_tasks_of_their_own():
    row = {"question": "?", "choices": [*"1234"], "answer": 2, "subject": "anatomy"}
    made = tasks("mmlu", [row, row | {"subject": "virology"}, row])
    assert [task["id"] for task in made] == ["anatomy-1", "virology-1", "anatomy-2"]
    row = {"_config": "FR_FR", "Question": "?", **dict.fromkeys("ABCD", "1"), "Answer": "A"}
    row["Subject"] = "anatomy"
    made = tasks("mmmlu", [row, row | {"Answer": "B"}, row | {"_config": "IT_IT"}])
    assert [task["id"] for task in made] == ["FR_FR-1", "FR_FR-2", "IT_IT-1"]


def test_the_examples_of_winogrande_are_those_of_the_source():
    rows = [
        {"_file": f"{split}-0.parquet", "sentence": f"{number} _", "answer": "1"}
        | {"option1": "a", "option2": "b"}
        for split, num in (("train", 40_398), ("validation", 1))
        for number in range(num)
    ]
    [task] = tasks("winogrande", rows)
    found = [line.split()[1] for line in task["examples"].splitlines() if "Sentence" in line]
    assert list(map(int, found)) == WINOGRANDE_EXAMPLES


# Texts that the scorer of the source takes for right, and for wrong answers.
YES_OR_NO = ["Yes", "yes", "YES", "Yes.", "**Yes**", "_Yes_", "  Yes!!\n", "'Yes'", "- Yes"]
NO_YES_OR_NO = ["Yes, it is", "The answer is Yes", "No", "no.", "**No**", "Yes No", "Yes\nNo", ""]
NO_YES_OR_NO += ["y", "A", r"\boxed{Yes}", "Yes: the passage", "1. Yes", "True", "know"]
NO_YES_OR_NO += ["Answer: Yes"]
WORD = ["ANSWER: Yes", "ANSWER: yes", "answer: YES.", "Let me think.\nANSWER: Yes"]
WORD += ["ANSWER: Yes\nbecause", "ANSWER: Yes!", "ANSWER: No\nWait.\nANSWER: Yes", "ANSWER:\nYes"]
WORD += ["ANSWER :Yes", "ANSWER: Yes.\n\n"]
NO_WORD = ["ANSWER: No", "ANSWER: Yes because", "ANSWER: **Yes**", "**ANSWER: Yes**", "ANSWER: Y"]
NO_WORD += ["**ANSWER:** Yes", "ANSWER: 'Yes'", "ANSWER: Yes\nANSWER: No", "Yes", "", "ANSWER:"]
NO_WORD += ["ANSWER: yes\nANSWER: dunno", "The answer is Yes.", "ANSWER: $Yes$", r"\boxed{Yes}"]
NO_WORD += ["ANSWER: yesterday"]
NUMBER = ["ANSWER: 24", "So 24\nANSWER: 24.", "answer: 24", "ANSWER: 25\nANSWER: 24"]
NUMBER += ["Final answer: 24", "**ANSWER: 24**", "ANSWER: **24**", "**ANSWER:** 24", "ANSWER: `24`"]
NUMBER += ["ANSWER: $24$", 'ANSWER: "24".', "**ANSWER**: **24**."]
NO_NUMBER = ["ANSWER: 24.0", "ANSWER: 24 apples", "ANSWER: 25", "ANSWER: 24\nANSWER: 25", ""]
NO_NUMBER += ["ANSWER: twenty-four", r"\boxed{25}"]
WORDS = ["ANSWER: ab bc cd", "ANSWER: ab bc cd.", "ANSWER:\nab bc cd", "ANSWER: **ab bc cd**"]
NO_WORDS = ["ANSWER: ab, bc, cd", "ANSWER: ab cd bc", "ANSWER: ab  bc cd", "ANSWER: ab\nbc\ncd"]
BRACKETS = ["ANSWER: ] >", "ANSWER: ] >.", "**ANSWER: ] >**"]
NO_BRACKETS = ["] >", ""]

# The source would take these for right; the README of bbh says so.
NOT_LIKE_THE_SOURCE = {
    "object_counting": ["24", "ANSWER: 124", "ANSWER: -24"],
    "word_sorting": ["ab bc cd", "ANSWER: Ab Bc Cd", "ANSWER: aa ab bc cd"],
    "dyck_languages": ["ANSWER: } )", "ANSWER: ]>"],
}


def test_answers_are_right_where_the_source_finds_them_right():
    [yes] = tasks("boolq", [YES])
    word, number, words, brackets = made = tasks("bbh", [*BBH_EXAMPLES, *BBH])
    cases = [
        (CHOICE, [" ANSWER: A\nANSWER: B)"], ["ANSWER: A\nANSWER: B)"]),
        (yes, YES_OR_NO, NO_YES_OR_NO),
        (word, WORD, NO_WORD),
        (number, NUMBER, NO_NUMBER),
        (words, WORDS, NO_WORDS),
        (brackets, BRACKETS, NO_BRACKETS),
    ]
    for task in made:
        cases.append((task, [], NOT_LIKE_THE_SOURCE.get(task["subset"], [])))
    unexpected = [
        (task.get("subset"), text, reward)
        for task, *both in cases
        for expected, texts in zip((1.0, 0.0), both, strict=True)
        for text in texts
        if (reward := scored_here(answered(task.get("env", "mcqa"), task, text)).reward) != expected
    ]
    assert unexpected == []


# The letters that mmlu_eval.py of openai/simple-evals at ee3b031 finds, by running it.
SIMPLE_EVALS = {
    "B": ["ANSWER: B", "**ANSWER: B**", "**ANSWER:** B", "ANSWER: **B**", "**Answer: B**"],
    "C": ["**Final Answer:** **C**", r"ANSWER: \(C\)", r"ANSWER: $\mathbf{C}$"],
    "D": ["Answer: D - none", r"\textbf{ANSWER: D}", "Answer : D"],
    None: [r"\boxed{B}", "The answer is B.", "The final answer is: B", "ANSWER: It falls"],
}
SIMPLE_EVALS["B"] += ["Answer: B", "**Answer:** B", "ANSWER: B)", "ANSWER: B) It falls"]
SIMPLE_EVALS["B"] += ["ANSWER: B. It falls", "ANSWER: B: It falls", "ANSWER: $B$", "'ANSWER: B'"]
SIMPLE_EVALS["B"] += [
    r"ANSWER: \boxed{B}",
    r"$\boxed{ANSWER: B}$",
    "Final answer: B",
    "`ANSWER: B`",
]
SIMPLE_EVALS["B"] += ["### ANSWER: B", "ANSWER: B because it falls", r"ANSWER: $\text{B}$"]
SIMPLE_EVALS["B"] += ["> ANSWER: B", "- **ANSWER: B**", "$ANSWER: B$", "ANSWER:B", "ANSWER : B"]
SIMPLE_EVALS["B"] += [r"\[ \boxed{\text{ANSWER: B}} \]", "Answer: B\nSo the answer: B."]
SIMPLE_EVALS["B"] += ["ANSWER: ب", "ANSWER: ব", "ANSWER: \uff22です"]
SIMPLE_EVALS["C"] += ["__ANSWER: C__", "_ANSWER: C_", "ANSWER: C.\n", "ANSWER: C</s>"]
SIMPLE_EVALS["C"] += ["<b>ANSWER: C</b>"]
SIMPLE_EVALS[None] += ["ANSWER: E"]
# It finds another letter in these, or none; the README of mmlu says so.
NOT_LIKE_SIMPLE_EVALS = {
    "B": [
        "ANSWER: (B)",
        "ANSWER: `B`",
        "ANSWER: [B]",
        'ANSWER: "B"',
        "ANSWER: $LETTER B",
        "ANSWER: b",
    ],
    "C": ["Answer: The correct option is C", "ANSWER: Option C"],
    None: ["ANSWER: A or B", "ANSWER: Both", "ANSWER: C, D", "ANSWER: \uff23C", "الإجابة: ب"],
}
NOT_LIKE_SIMPLE_EVALS["B"] += ["Answer:\nB", "Answer:\n\n**B**", "ANSWER: উত্তর ব"]
NOT_LIKE_SIMPLE_EVALS["B"] += ["Answer: A\nWait, no.\nAnswer: B"]
NOT_LIKE_SIMPLE_EVALS[None] += ["Respuesta: B", "答案\uff1aB"]


def test_the_letters_of_mmlu_are_those_of_simple_evals():
    read = GRADERS["lenient_answer_colon_md"]
    options = {"A": "It rises", "B": "It falls", "C": "Both A and B", "D": "None of the above"}
    task = Question.model_validate({"options": [options], "expected_answer": "A"})
    found = [
        (text, letter, read(text, task))
        for cases in (SIMPLE_EVALS, NOT_LIKE_SIMPLE_EVALS)
        for letter, texts in cases.items()
        for text in texts
    ]
    assert [case for case in found if case[1] != case[2]] == []
    assert (len(found), sum(map(len, SIMPLE_EVALS.values()))) == (65, 46)
