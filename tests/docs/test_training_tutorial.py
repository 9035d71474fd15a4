"""The training tutorial: its server, and the code that its page shows."""

import asyncio
import importlib.util

import pytest

from gymcli import Endpoint, Environment, Score, Task
from gymcli.training import Sampler
from tests.docs.pages import CHECKOUT, blocks, page
from tests.docs.test_tutorials import lines_alone

FOLDER = CHECKOUT / "docs" / "tutorials"


class AsksAgain(Environment[Task]):
    """Asks a second time, whatever the answer."""

    async def reply(self, rollout):
        return "Are you sure?" if len(rollout.messages) == 2 else None

    @classmethod
    async def verify(cls, rollout, context):
        return Score(1.0)


def test_code_of_the_page_is_that_of_the_tutorial():
    source = "".join(lines_alone(path.read_text("utf-8")) for path in FOLDER.glob("*.py"))
    shown = [lines_alone(block[1]) for block in blocks("python", page("tutorials/training.md"))]

    assert shown
    for code in shown:
        assert code in source


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_served_log_probabilities_are_those_of_the_weights():
    """Random weights sample ids that no tokeniser would, so wrong ids would be noticed."""
    torch = pytest.importorskip("torch", reason="the tutorial needs torch; make train installs it")
    spec = importlib.util.spec_from_file_location("tiny_model", FOLDER / "tiny_model.py")
    tiny_model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny_model)
    prompts = [f"What is {number} + {number}?" for number in range(20)]
    conversations = [[{"role": "user", "content": prompt}] for prompt in prompts]
    tokenizer = tiny_model.make_tokenizer(conversations)
    model = tiny_model.make_model(tokenizer)

    async def play(endpoint):
        async with Sampler(AsksAgain, endpoint=endpoint, params={"max_tokens": 12}) as sampler:
            groups = (sampler.group({"prompt": prompt}, attempts=4) for prompt in prompts)
            return [one for group in await asyncio.gather(*groups) for one in group]

    with tiny_model.ModelServer(model, tokenizer) as server:
        sampled = asyncio.run(play(Endpoint(base_url=server.base_url, model="tiny")))

    assert len(sampled) == 80
    num_changed = 0
    for one in sampled:
        [sequence] = one.sequences
        with torch.no_grad():
            logits = model(torch.tensor([sequence.input_ids])).logits[0]
        computed = logits.log_softmax(-1)
        for place, is_sampled in enumerate(sequence.loss_mask):
            if is_sampled:
                expected = float(computed[place - 1, sequence.input_ids[place]])
                assert sequence.logprobs[place] == pytest.approx(expected, abs=1e-4)
        num_changed += tokenizer.encode(tokenizer.decode(sequence.input_ids)) != sequence.input_ids
    assert num_changed > 20
