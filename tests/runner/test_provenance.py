"""How runs were made, and what of it has to be alike."""

import msgspec

from gymcli.metrics.scored_lines import EnvironmentFacts, FailureLine
from gymcli.runner.measure import ComparedLine, read_compared_lines
from gymcli.runner.paired_runs import RunProvenance, drift_of, settings, unknown
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.store.rollout_files import RolloutReading
from gymcli.types import Verifier
from tests.runner.compared import line, nemo, write_lines


def made(**more):
    """Give a line of ours."""
    said = {"env_version": "1", "verifier": Verifier("1", "s"), "model": "m", **more}
    for name in ("sampling", "env_options"):
        if name in said:
            said[name] = msgspec.Raw(said[name])
    return ComparedLine(schema_version=1, task_id="x", reward=1.0, **said)


def provenance(*lines, manifest=None, name="run"):
    """Give how a run of such lines was made."""
    found = RunProvenance(name, manifest)
    found.add("e", lines)
    return found


def drift(a, b, facts=({}, {})):
    return [str(one) for one in drift_of(a, b, ["e"], facts)]


def test_runs_that_were_made_alike_have_no_drift():
    assert drift(provenance(made()), provenance(made(model="other", sampling=b'{"seed": 1}'))) == []


def test_a_run_with_verifiers_of_two_versions_is_not_one_with_the_last():
    """As after it was gone on with once the environment had changed."""
    two = provenance(made(), made(verifier=Verifier("1", "t")))
    assert drift(two, provenance(made())) == ["e: verifier source s, t in A, s in B"]


def test_the_order_of_options_does_not_matter():
    a, b = (provenance(made(env_options=text)) for text in (b'{"a": 1, "b": 2}', b'{"b":2,"a":1}'))
    assert drift(a, b) == []


def test_what_one_line_does_not_say_is_not_known_of_the_run():
    mixed = provenance(made(), made(env_version="", verifier=Verifier()), name="mixed")
    assert drift(mixed, provenance(made(env_version="2"))) == []
    assert list(unknown(mixed, ["e"])) == [
        "mixed does not record for e: version, options, verifier version, verifier source, "
        "group size"
    ]
    assert list(unknown(provenance(made()), ["e"])) == []


def test_a_threshold_that_follows_from_the_best_reward_is_named_once():
    one, two = EnvironmentFacts(max_reward=1.0), EnvironmentFacts(max_reward=2.0)
    low = EnvironmentFacts(max_reward=2.0, pass_threshold=0.5)
    a = provenance(made())
    assert drift(a, a, ({"e": one}, {"e": two})) == ["e: best reward 1.0 in A, 2.0 in B"]
    assert len(drift(a, a, ({"e": one}, {"e": low}))) == 2
    assert drift(a, a, ({"e": two}, {"e": low})) == ["e: threshold of success 2.0 in A, 0.5 in B"]
    assert drift(a, a, ({"e": one}, {})) == []


def test_prompting_is_compared_where_both_manifests_know_it():
    known, other = (Manifest(identity={"prompt": text, "seed": 0}) for text in ("p", "q"))
    a, b = provenance(made(), manifest=known), provenance(made(), manifest=other)
    assert drift(a, b) == ["prompt template p in A, q in B"]
    assert drift(a, provenance(made())) == []


def test_a_judge_that_one_run_lacks_is_drift_where_both_played_the_same_environments():
    def judged(identity, *environments):
        records = {name: EnvironmentRecord() for name in environments}
        identity = {"seed": 0, **identity}
        return provenance(made(), manifest=Manifest(identity=identity, environments=records))

    a = judged({"roles": {"judge": {"model": "j"}}}, "e")
    assert drift(a, judged({}, "e")) == ['role judge {"model":"j"} in A, none in B']
    assert drift(judged({}, "e"), a) == ['role judge none in A, {"model":"j"} in B']
    assert drift(a, judged({}, "e", "f")) == [], "it may be that of another environment"


def test_settings_of_a_bare_file_are_not_known():
    endpoint = Manifest(options={"endpoint": {"base_url": "http://a/v1"}})
    a, b = provenance(made(), manifest=endpoint), provenance(made())
    assert [one.name for one in settings(a, b)] == ["model"]


def test_settings_show_the_model_and_what_differs():
    a = provenance(
        made(),
        manifest=Manifest(
            model="recorded",
            identity={"model": "m", "seed": 0, "prompt": "p", "params": {}},
            options={"endpoint": {"base_url": "http://a/v1"}},
        ),
    )
    b = provenance(made(model=""), manifest=Manifest(model="n", identity={"model": "n", "seed": 1}))
    shown = [(one.name, one.a, one.b) for one in settings(a, b)]
    assert shown == [
        ("model", "m", "n"),
        ("endpoint", "http://a/v1", "none"),
        ("seed", "0", "1"),
    ]


def test_samplings_that_rows_set_themselves_are_several():
    a = provenance(*(made(sampling=b'{"max_tokens": %d}' % n) for n in range(20)))
    assert settings(a, provenance(made()))[1].a == "several"


def test_options_that_are_nested_too_deeply_are_shown_as_they_are():
    deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    assert drift(provenance(made(env_options=deep)), provenance(made(env_options=deep))) == []


def lines_of(path):
    """Read all; what is undecoded is copied, since it is there until the next lines only."""
    found = []
    for lines in read_compared_lines(path, RolloutReading(str(path))):
        found += [(one, getattr(one, "prompt_hash", None)) for one in lines]
    return found


def test_lines_of_ours_say_how_they_were_made(tmp_path):
    path = write_lines(tmp_path / "r.jsonl", [line("x", seed=5, group_size=2)])
    ((made, _),) = lines_of(path)
    assert isinstance(made, ComparedLine)
    assert (made.seed, made.group_size, made.task_hash) == (5, 2, "00000000000000aa")
    assert made.verifier == Verifier("1", "s1")


def test_the_prompt_is_what_stands_before_the_answer(tmp_path):
    prompt = {"role": "user", "content": "Hi."}
    said = [{"role": "assistant", "content": text} for text in ("Hello.", "Yes?")]
    lines = [
        line("x", messages=[prompt, said[0]]),
        line("y", messages=[prompt, said[1]]),
        line("z", messages=[said[0], said[1]]),
        line("v", messages=[prompt, said[0]], tools=[{"type": "function"}]),
        line("w", messages=[prompt, said[0]], role_usage={"user": {"model": "u"}}),
        line("u", messages=[prompt, said[0]], role_usage={"judge": {"model": "j"}}),
    ]
    x, y, z, v, w, u = (number for _, number in lines_of(write_lines(tmp_path / "r.jsonl", lines)))
    assert x == y == u
    assert len({x, z, v, 0}) == 4
    assert w == 0, "a model had a hand in it"


def test_the_prompt_of_a_rollout_of_nemo_gym_is_that_of_the_same_of_ours(tmp_path):
    ours = line("x", messages=[{"role": "user", "content": "Hi."}])
    theirs = nemo("x", prompt="Hi.")
    (_, one), (made, other) = lines_of(write_lines(tmp_path / "r.jsonl", [ours, theirs]))
    assert one == other
    assert (made.task_hash, made.env_version, made.verifier) == ("", "", Verifier())
    assert (made.model, made.reward) == ("theirs", 1.0)


def test_a_rollout_whose_verifier_failed_is_a_failure(tmp_path):
    path = write_lines(tmp_path / "r.jsonl", [nemo("x", 0.0, _ng_failure_class="Timeout")])
    ((found, _),) = lines_of(path)
    assert isinstance(found, FailureLine)
    assert found.error.error_class == "Timeout"


def test_many_lines_come_in_several_lists(tmp_path):
    """Each is there until the next one, however long the lines are."""
    lines = [line(f"t{n}", fields={"text": "x" * 30_000}) for n in range(100)]
    path = write_lines(tmp_path / "r.jsonl", lines)
    sizes, ids = [], []
    for part in read_compared_lines(path, RolloutReading(str(path))):
        sizes.append(len(part))
        ids += [one.task_id for one in part]
        assert all(len(msgspec.json.decode(one.task)["text"]) == 30_000 for one in part)
    assert ids == [f"t{n}" for n in range(100)]
    assert len(sizes) > 1
