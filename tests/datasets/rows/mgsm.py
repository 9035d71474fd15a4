"""Rows of MGSM's files, made by hand: a question with quotes and commas, and its answer."""

QUESTIONS = {
    "bn": 'রহিমের {}টি ডিম আছে, সে "{}"টি বিক্রি করে।',
    "de": 'Anna sagt: "Ich habe {} Äpfel", und kauft {} dazu.',
    "en": '"Eggs" cost ${} each, and she sells {}.',
    "es": "¿Cuántos días tardan {} obreros, si antes eran {}?",
    "fr": "L'élève lit {} pages, puis « {} » autres.",
    "ja": "りんごが{}個、みかんが{}個あります。",
    "ru": "Маша купила {} яблок и {} груш.",
    "sw": "Juma ana mayai {}, anauza {}.",
    "te": "రాముకు {} గుడ్లు, {} పండ్లు ఉన్నాయి.",
    "th": "มีไข่ {} ฟอง ขายไป {} ฟอง",
    "zh": "小明有{}个鸡蛋、卖了{}个。",
}


def rows(rng, num):
    found = {f"mgsm_{language}.tsv": [] for language in QUESTIONS}
    for place in range(num):
        language = list(QUESTIONS)[place % len(QUESTIONS)]
        question = QUESTIONS[language].format(place + 3, rng.randint(10, 99))
        answer = "1,450" if place == 2 else str(rng.randint(0, 500))
        found[f"mgsm_{language}.tsv"].append({"question": question, "answer": answer})
    return found
