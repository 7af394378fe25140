"""What `args` may hold, and how it becomes words of a command line."""

import pytest

from corral.catalog import flags


def test_the_table_is_the_engines_own():
    names = {name for flag in flags.table() for name in flag.names}

    assert len(flags.table()) > 200
    assert {"ctx-size", "cache-type-k", "mmproj", "swa-full", "reasoning-budget"} <= names


@pytest.mark.parametrize("name", sorted(flags.OWNED | flags.FORBIDDEN))
def test_every_flag_with_a_verdict_exists_in_the_engine(name):
    assert name in {known for flag in flags.table() for known in flag.names}


@pytest.mark.parametrize("name", sorted(flags.OWNED))
def test_a_flag_that_corral_sets_is_refused_by_every_of_its_names(name):
    [flag] = [flag for flag in flags.table() if name in flag.names]

    for known in (*flag.names, *flag.negated):
        assert f"corral sets --{known} itself" in (flags.problem_with(known, "1") or "")


@pytest.mark.parametrize("name", ["gpt-oss-20b-default", "fim-qwen-7b-spec", "hf-repo", "model-url"])
def test_a_flag_that_would_bring_another_model_is_refused(name):
    assert "the lock names" in (flags.problem_with(name, True) or "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"cache-type-k": "q8_0"}, ["--cache-type-k", "q8_0"]),
        ({"swa-full": True}, ["--swa-full"]),
        ({"warmup": False}, ["--no-warmup"]),
        ({"webui": False}, ["--no-webui"]),
        ({"seed": -1}, ["--seed", "-1"]),
        ({"temp": 0.5, "rope-scale": 4.0}, ["--rope-scale", "4", "--temp", "0.5"]),
        ({"cpu-strict": 1}, ["--cpu-strict", "1"]),
    ],
)
def test_args_become_words_in_the_order_of_their_names(args, words):
    assert [flags.problem_with(name, value) for name, value in args.items()] == [None] * len(args)
    assert flags.words(args) == words


@pytest.mark.parametrize("value", [None, ["q8_0"], {"a": 1}, True, ""])
def test_a_value_that_is_not_one_word_is_refused(value):
    assert flags.problem_with("cache-type-k", value) is not None
