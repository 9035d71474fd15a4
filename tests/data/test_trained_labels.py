"""TRL trains on what docs/export.md says: the labels that its trainers make, decoded."""

import pytest

from gymcli.types import Message
from tests.builders import scored, with_tools, write_rows, write_run
from tests.data.exporting import export
from tests.data.token_runs import tokens, write_token_run

trl = pytest.importorskip("trl", reason="the labels are those of TRL, which is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of TRL's own

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.name }}{% endfor %}<end>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""Like most of the Hub's, without the marks that `assistant_only_loss` needs."""

MARKED = (
    "{% for message in messages %}<{{ message.role }}>{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }}{% for call in message.tool_calls or [] %}"
    "{{ call.function.name }}{% endfor %}<end>{% endgeneration %}{% else %}"
    "{{ message.content }}<end>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

TOOLS = "<tool>cold<end><tool>warm<end>"
LEFT, RIGHT = "weatherweather<end>", "In Rom.<end>"
PROMPT = "<system>Be brief.<end><assistant>Hello<end><user>Where is it warm?<end>"


def tokenizer(template):
    """Return a tokenizer of single bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={x: n for n, x in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>")
    found.chat_template = template
    return found


def model(words):
    """Return a model with a few random weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), **sizes, **heads))


def trained(rows, folder, *, kind="SFT", template=TEMPLATE, **settings):
    """Return, for each sequence of the first batch, the pieces of text that the loss covers."""
    import datasets

    datasets.disable_progress_bars()
    path = folder / "rows.jsonl"
    write_rows(path, rows)
    words = tokenizer(template)
    # As docs/export.md says: the columns of messages and tools are JSON.
    kinds = {bool: "bool", int: "int64", float: "float64", str: "string"}
    ids, messages = datasets.List(datasets.Value("int64")), datasets.List(datasets.Json())
    columns = {
        name: datasets.Value(kinds[type(value)])
        if not isinstance(value, list)
        else (messages if isinstance(value[0], dict) else ids)
        for name, value in rows[0].items()
    }
    features = datasets.Features(columns)
    data = datasets.load_dataset("json", data_files=str(path), split="train", features=features)
    given = {"output_dir": str(folder), "report_to": [], "use_cpu": True, "bf16": False}
    config = getattr(trl, f"{kind}Config")(**given, max_length=None, **settings)
    more = {} if kind == "SFT" else {"ref_model": model(words)}
    trainer = getattr(trl, f"{kind}Trainer")(
        model(words), args=config, train_dataset=data, processing_class=words, **more
    )
    batch = next(iter(trainer.get_train_dataloader()))
    masks = batch["labels"] != -100 if kind == "SFT" else batch["completion_mask"] == 1
    found = []
    for sequence, mask in zip(batch["input_ids"].tolist(), masks.tolist(), strict=True):
        pieces = [[]]
        for token, is_trained in zip(sequence, mask, strict=True):
            if is_trained:
                pieces[-1].append(token)
            elif pieces[-1]:
                pieces.append([])
        found.append([words.decode(piece) for piece in pieces if piece])
    return sorted(found)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    bad = with_tools(attempt=1, reward=0.0)
    bad.messages = [*bad.messages[:3], Message(role="assistant", content="No.")]
    return write_run(tmp_path_factory.mktemp("run"), rollouts=[with_tools(), bad])


def test_sft_trains_on_what_its_form_says(run, tmp_path):
    rows = {
        loss: export("sft", run, form=loss, where="passed").rows
        for loss in ("conversation", "completion", "assistant")
    }
    everything = f"{PROMPT}<assistant>{LEFT}{TOOLS}<assistant>{RIGHT}"
    assert trained(rows["conversation"], tmp_path) == [[everything]]
    after_the_prompt = f"{LEFT}{TOOLS}<assistant>{RIGHT}"
    assert trained(rows["completion"], tmp_path) == [[after_the_prompt]]
    assert trained(rows["assistant"], tmp_path) == [[RIGHT], [LEFT]]
    marked = {"template": MARKED, "assistant_only_loss": True}
    # Including the prompt's message of the assistant, which the policy did not write.
    assert trained(rows["conversation"], tmp_path, **marked) == [["Hello<end>", LEFT, RIGHT]]
    assert trained(rows["completion"], tmp_path, **marked) == [[LEFT, RIGHT]]
    with pytest.raises(ValueError, match="generation"):
        trained(rows["completion"], tmp_path, assistant_only_loss=True)


@pytest.mark.parametrize("kind", ["DPO", "KTO"])
def test_preferences_train_on_all_after_the_prompt(run, tmp_path, kind):
    rows = export(kind.lower(), run).rows
    found = trained(rows, tmp_path, kind=kind, per_device_train_batch_size=2)
    assert found == [["No.<end>"], [f"{LEFT}{TOOLS}<assistant>{RIGHT}"]]


def test_tokens_train_on_what_was_sampled(tmp_path):
    words = tokenizer(TEMPLATE)
    first, said, tool = (words.encode(text) for text in ("<user>Hi", "He", "<tool>ok"))
    answers = [tokens(first, said), tokens([*first, *said, *tool], said)]
    run = write_token_run(tmp_path / "run", [(scored(), answers)])
    [row] = export("tokens", run).rows
    row = {"input_ids": row["input_ids"], "assistant_masks": row["loss_mask"]}
    assert trained([row], tmp_path) == [["He", "He"]]
