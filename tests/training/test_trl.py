"""Tests of the hooks for TRL: the rows it gets, and that its trainer takes them."""

import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest

import gymcli
from gymcli.errors import RunError, UsageError
from gymcli.training import trl
from tests.training.engine import TRAINED, Adding, Engine, Ranked

TRAINER = SimpleNamespace(state=SimpleNamespace(global_step=3), temperature=1.0)

REASON = "TRL needs torch; make train installs both"


@pytest.fixture
def play():
    """Return a function that plays prompts; close its thread at the end."""
    opened = []

    def play(prompts, **options):
        opened.append(trl.rollout_func(Adding, TRAINED, **{"concurrency": 1, **options}))
        return opened[-1](prompts, TRAINER), opened[-1].counts

    yield play
    for one in opened:
        one.close()


def test_rows_hold_what_the_engine_said_in_the_order_of_the_prompts(play):
    engine = Engine()
    rows, counts = play(["b", "b", "a"], policy=engine)
    assert rows["gym_reward"] == [1.0, 3.0, 5.0]
    for number, row in enumerate(zip(*rows.values(), strict=True)):
        prompt_ids, completion_ids, logprobs, env_mask, _ = row
        first, second = engine.calls[2 * number : 2 * number + 2]
        said = second.prompt[len(first.prompt + first.sampled) :]
        assert prompt_ids == first.prompt
        assert completion_ids == first.sampled + said + second.sampled
        assert env_mask == [1] * len(first.sampled) + [0] * len(said) + [1] * len(second.sampled)
        assert logprobs == first.logprobs + [0.0] * len(said) + second.logprobs
    assert counts == {"rows": 3}
    assert trl.reward(["b", "b", "a"], ["", "", ""], rows["gym_reward"]) == [1.0, 3.0, 5.0]


def test_what_cannot_be_trained_is_masked_and_counted(play):
    rows, counts = play(["a", "a"], policy=Engine(fails=[3]))
    assert rows["gym_reward"] == [1.0, None]
    assert [rows[name][1] for name in ("prompt_ids", "completion_ids", "env_mask")] == [[0]] * 3
    assert counts == {"rows": 2, "unscored": 1}
    engine = Engine(rewrites=True)
    rows, counts = play(["a"], policy=engine)
    assert rows["gym_reward"] == [None]
    assert rows["prompt_ids"] == [engine.calls[1].prompt]
    assert rows["completion_ids"] == [engine.calls[1].sampled]
    assert set(rows["env_mask"][0]) == {0}
    assert counts == {"rows": 1, "forked": 1}
    assert trl.reward(["a"], [""], [None]) == [None]


def test_a_resumed_training_does_not_repeat_its_seeds():
    rollouts = trl.rollout_func(Adding, TRAINED, policy=Engine())
    numbers = []
    for step in (0, 1, 700):
        trainer = SimpleNamespace(state=SimpleNamespace(global_step=step), temperature=1.0)
        rollouts(["a", "a"], trainer)
        numbers.append(rollouts.sampler.next_attempt)
    rollouts.close()
    resumed = trl.rollout_func(Adding, TRAINED, policy=Engine())
    resumed(["a", "a"], trainer)
    resumed.close()
    assert (numbers, resumed.sampler.next_attempt) == ([2, 4, 6], 7_000_002)


class _Silent(Engine):
    async def complete(self, messages, **options):
        await super().complete(messages, **options)
        return gymcli.Message(role="assistant", content="Done.")


def test_what_no_batch_can_be_trained_with_is_an_error(play):
    with pytest.raises(RunError, match="reports no usable token ids"):
        play(["a"], policy=_Silent())
    with pytest.raises(UsageError, match="no task has the id 'd'"):
        play(["d"], policy=Engine())
    with pytest.raises(UsageError, match=r"temperature is 1 and that of the requests is 0\.5"):
        play(["a"], policy=Engine(), params={"temperature": 0.5})


def test_a_closed_rollout_function_opens_again():
    rollouts = trl.rollout_func(Adding, TRAINED, policy=Engine())
    for _ in range(2):
        assert rollouts(["a"], TRAINER)["gym_reward"] != [None]
        rollouts.close()


def test_an_environment_of_trl_plays_and_scores():
    kind = trl.environment(Adding, TRAINED)
    environment = kind()
    assert (
        inspect.getdoc(environment.add) == "Add a number to the total.\n\nArgs:\n    number: number"
    )
    assert str(inspect.signature(environment.add)) == "(*, number: int) -> str"
    environment.reset(task_id="b")  # and left without asking for its reward
    assert environment.reset(task_id="a", prompt=[]) is None
    assert environment.add(number=2) == "2"
    assert "do not fit its schema" in environment.add(number="three")
    assert environment.add(number=3) == "5"
    assert environment.get_reward() == 5.0
    with pytest.raises(RunError, match="the episode is over"):
        environment.add(number=1)
    assert kind().get_reward() is None
    with pytest.raises(UsageError, match="scores all attempts of a task together"):
        trl.environment(Ranked, TRAINED)
    with pytest.raises(UsageError, match="endpoint=: leave it out, since TRL generates"):
        trl.environment(Adding, TRAINED, endpoint=None)


@pytest.mark.slow
def test_a_prompt_of_the_dataset_is_the_id_of_its_task():
    pytest.importorskip("datasets", reason="TRL needs it, and gymcli does not")
    other = {"id": "a", "env": "arithmetic", "prompt": "7?", "answer": 7}
    rows = trl.dataset([*TRAINED, other], env=Adding)
    assert [row["prompt"] for row in rows] == ["engine/a", "b", "c", "arithmetic/a"]
    [row] = trl.dataset(other, messages=True)
    prompt = [{"role": "user", "content": "7?"}]
    assert row == {"prompt": prompt, "task_id": "a", "environment": "arithmetic"}


def trainer_of(folder, **options):
    """Return a trainer of a tiny model whose ids are characters."""
    import tokenizers
    import torch
    import transformers
    import trl as real_trl

    tokens = [*map(chr, range(128)), "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({token: number for number, token in enumerate(tokens)}, [])
    )
    made.decoder = tokenizers.decoders.Fuse()  # without a decoder, it puts spaces between tokens
    made.add_special_tokens(tokens[128:130])
    made.add_tokens(tokens[130:])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="\0", eos_token="<|im_end|>"
    )
    template = Path(real_trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
    tokenizer.chat_template = template.read_text()
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    torch.manual_seed(0)
    return real_trl.GRPOTrainer(
        model=transformers.Qwen2ForCausalLM(config),
        processing_class=tokenizer,
        args=real_trl.GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=4,
            num_generations=2,
            max_steps=1,
            learning_rate=0.01,
            shuffle_dataset=False,
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            report_to="none",
            logging_steps=1,
        ),
        **options,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_trainer_takes_the_rows(tmp_path, monkeypatch):
    pytest.importorskip("trl", reason=REASON)
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    engine = Engine(fails=[3])
    rollouts = trl.rollout_func(Adding, TRAINED, policy=engine, concurrency=1)
    trainer = trainer_of(
        tmp_path,
        train_dataset=trl.dataset(TRAINED, env=Adding),
        reward_funcs=trl.reward,
        rollout_func=rollouts,
    )
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    trainer.train()
    rollouts.close()
    [log] = [one for one in trainer.state.log_history if "reward" in one]
    # Of two groups, the first has a failed attempt, which changes no mean: rewards 1, 4 and 6.
    assert log["rewards/reward/mean"] == pytest.approx(11 / 3)
    sampled = [len(one.sampled) for one in engine.calls]
    assert log["completions/mean_length"] == sum(sampled) / 4  # the tool's result is masked
    assert rollouts.counts == {"rows": 4, "unscored": 1}
    pairs = zip(before, trainer.model.parameters(), strict=True)
    assert not all(one.equal(other) for one, other in pairs)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_trainer_plays_in_an_environment(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason=REASON)
    utils = pytest.importorskip("transformers.utils", reason=REASON)
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    kind = trl.environment(Adding, TRAINED)
    trainer = trainer_of(
        tmp_path,
        train_dataset=trl.dataset(TRAINED, env=Adding, messages=True),
        environment_factory=kind,
    )
    function = utils.get_json_schema(kind().add)["function"]
    assert function["parameters"]["properties"] == {
        "number": {"type": "integer", "description": "number"}
    }
    turns = ['<tool_call>\n{"name": "add", "arguments": {"number": 4}}\n</tool_call>', "Done."]

    def generate(input_ids, **options):
        text = f"{turns.pop(0)}<|im_end|>"
        ids = trainer.processing_class(text)["input_ids"]
        return torch.cat([input_ids, torch.tensor([ids] * len(input_ids))], dim=-1)

    monkeypatch.setattr(trainer.model, "generate", generate)
    trainer.train()
    [log] = [one for one in trainer.state.log_history if "reward" in one]
    assert (log["rewards/Adding/mean"], log["tools/failure_frequency"]) == (4.0, 0.0)
    assert log["tools/call_frequency"] == 1.0
