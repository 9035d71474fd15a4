"""Rows with the columns of MMMLU, in two of its languages."""

QUESTIONS = {"AR_XY": "ما قيمة {}؟", "ZH_CN": "{} 的值是多少"}
OPTIONS = {"AR_XY": "الخيار {}", "ZH_CN": "“选项”{}"}


def rows(rng, num):
    tables = {name: [] for name in QUESTIONS}
    for number in range(num - 1):
        name = list(tables)[number % len(tables)]
        tables[name].append(row(rng, name, number))
    # One formula is the same row in both languages: two tasks.
    formula = row(rng, "ZH_CN", 99) | {
        "Question": "$2^{10}$",
        "A": "1024",
        "B": "",
        "C": "2",
        "D": "0",
    }
    tables["AR_XY"][-1] = formula
    # As in the source, two English questions became one, with different answers.
    tables["AR_XY"][2] = tables["AR_XY"][1] | {"Answer": "D"}
    tables["AR_XY"][1]["Answer"] = "A"
    return tables | {"ZH_CN": [*tables["ZH_CN"], formula]}


def row(rng, language, number):
    return {
        "Question": QUESTIONS[language].format(number),
        **{letter: OPTIONS[language].format(rng.random()) for letter in "ABCD"},
        "Answer": rng.choice("ABCD"),
        "Subject": "abstract_algebra",
    }
