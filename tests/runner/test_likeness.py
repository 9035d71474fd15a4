"""How runs were made, and what of it has to be alike."""

import msgspec

from gymcli.metrics import EnvironmentFacts
from gymcli.runner.likeness import Making, drift_of, settings, unknown
from gymcli.runner.made_lines import MadeLine, ScoredBy
from gymcli.store.manifest import EnvironmentRecord, Manifest


def made(**more):
    """Give a line of ours."""
    said = {"env_version": "1", "verifier": ScoredBy("1", "s"), "model": "m", **more}
    for name in ("sampling", "env_options"):
        if name in said:
            said[name] = msgspec.Raw(said[name])
    return MadeLine(schema_version=1, task_id="x", reward=1.0, **said)


def making(*lines, manifest=None, name="run"):
    """Give how a run of such lines was made."""
    found = Making(name, manifest)
    found.see("e", lines)
    return found


def drift(a, b, facts=({}, {})):
    return [str(one) for one in drift_of(a, b, ["e"], facts)]


def test_runs_that_were_made_alike_have_no_drift():
    assert drift(making(made()), making(made(model="other", sampling=b'{"seed": 1}'))) == []


def test_a_run_with_verifiers_of_two_versions_is_not_one_with_the_last():
    """As after it was gone on with once the environment had changed."""
    two = making(made(), made(verifier=ScoredBy("1", "t")))
    assert drift(two, making(made())) == ["e: verifier source s, t in A, s in B"]


def test_the_order_of_options_does_not_matter():
    a, b = (making(made(env_options=text)) for text in (b'{"a": 1, "b": 2}', b'{"b":2,"a":1}'))
    assert drift(a, b) == []


def test_what_one_line_does_not_say_is_not_known_of_the_run():
    mixed = making(made(), made(env_version="", verifier=ScoredBy()), name="mixed")
    assert drift(mixed, making(made(env_version="2"))) == []
    assert list(unknown(mixed, ["e"])) == [
        "mixed does not say of e: version, options, verifier version, verifier source, group size"
    ]
    assert list(unknown(making(made()), ["e"])) == []


def test_a_threshold_that_follows_from_the_best_reward_is_named_once():
    one, two = EnvironmentFacts(max_reward=1.0), EnvironmentFacts(max_reward=2.0)
    low = EnvironmentFacts(max_reward=2.0, pass_threshold=0.5)
    a = making(made())
    assert drift(a, a, ({"e": one}, {"e": two})) == ["e: best reward 1.0 in A, 2.0 in B"]
    assert len(drift(a, a, ({"e": one}, {"e": low}))) == 2
    assert drift(a, a, ({"e": two}, {"e": low})) == ["e: threshold of success 2.0 in A, 0.5 in B"]
    assert drift(a, a, ({"e": one}, {})) == []


def test_prompting_is_compared_where_both_manifests_know_it():
    known, other = (Manifest(identity={"prompt": text, "seed": 0}) for text in ("p", "q"))
    a, b = making(made(), manifest=known), making(made(), manifest=other)
    assert drift(a, b) == ["prompt template p in A, q in B"]
    assert drift(a, making(made())) == []


def test_a_judge_that_one_run_lacks_is_drift_where_both_played_the_same_environments():
    def judged(identity, *environments):
        records = {name: EnvironmentRecord() for name in environments}
        identity = {"seed": 0, **identity}
        return making(made(), manifest=Manifest(identity=identity, environments=records))

    a = judged({"roles": {"judge": {"model": "j"}}}, "e")
    assert drift(a, judged({}, "e")) == ['role judge {"model":"j"} in A, none in B']
    assert drift(judged({}, "e"), a) == ['role judge none in A, {"model":"j"} in B']
    assert drift(a, judged({}, "e", "f")) == [], "it may be that of another environment"


def test_settings_of_a_bare_file_are_not_known():
    endpoint = Manifest(options={"endpoint": {"base_url": "http://a/v1"}})
    a, b = making(made(), manifest=endpoint), making(made())
    assert [one.name for one in settings(a, b)] == ["model"]


def test_settings_show_the_model_and_what_differs():
    a = making(
        made(),
        manifest=Manifest(
            model="recorded",
            identity={"model": "m", "seed": 0, "prompt": "p", "params": {}},
            options={"endpoint": {"base_url": "http://a/v1"}},
        ),
    )
    b = making(made(model=""), manifest=Manifest(model="n", identity={"model": "n", "seed": 1}))
    shown = [(one.name, one.a, one.b) for one in settings(a, b)]
    assert shown == [
        ("model", "m", "n"),
        ("endpoint", "http://a/v1", "none"),
        ("seed", "0", "1"),
    ]


def test_samplings_that_rows_set_themselves_are_several():
    a = making(*(made(sampling=b'{"max_tokens": %d}' % n) for n in range(20)))
    assert settings(a, making(made()))[1].a == "several"


def test_options_that_are_nested_too_deeply_are_shown_as_they_are():
    deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    assert drift(making(made(env_options=deep)), making(made(env_options=deep))) == []
