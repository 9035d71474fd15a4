"""Lines that are exported as they are stay so, but for secrets."""

from gymcli.secrets import scrubber_of
from tests.data.exporting import export
from tests.store.indexed_runs import failed, lines, scored, write_run

SECRET = "sk-12345678901234567890"


def test_jsonl_gives_the_lines_that_are_selected(tmp_path):
    rollouts = [scored("a", number, number / 2, said="é ☃") for number in range(3)]
    run = write_run(tmp_path / "run", rollouts=rollouts, failures=[failed("b")])
    exported = export("jsonl", run, where="reward > 0 or status == 'failed'")
    assert exported.data == lines(*rollouts[1:])
    assert exported.left_out == {"not scored": 1}


def test_exports_hold_no_secret(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[scored(said=f"It is {SECRET}."), scored("b")])
    scrubber = scrubber_of((SECRET,), {})
    for to in ("jsonl", "sft", "csv", "nemo-gym"):
        exported = export(to, run, scrubber=scrubber)
        assert SECRET.encode() not in exported.data
        assert b"It is [redacted]." in exported.data
        assert exported.num_redacted == 1
