"""What `args` and `unsafe` may hold, by the class of each flag, and how it becomes words of a command line."""

import pytest

from corral.catalog import flag_classes, flags
from corral.catalog.flag_classes import ACCEPTED, GROUPS, REFUSED, mismatches
from corral.vram.server_flags import uncounted
from dev import engine_flags

FLAGS = {flag.name: flag for flag in flags.table()}


def right_value(flag):
    """A value that the flag takes."""
    if flag.value is None:
        return True
    return "files/a" if flag.group.text_flag else flag.choices[0] if flag.choices else "1"


def spellings(flag):
    return [*flag.names, *flag.negated, *flag.short]


def test_the_table_is_the_engines_own():
    names = {name for flag in flags.table() for name in flag.names}

    assert len(flags.table()) > 200
    assert {"ctx-size", "cache-type-k", "mmproj", "swa-full", "reasoning-budget"} <= names
    assert {group.of for group in GROUPS} == {*ACCEPTED, *REFUSED} - {"unclassified"}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_taken_by_args_by_unsafe_or_by_neither_according_to_its_class(name):
    flag, group = FLAGS[name], FLAGS[name].group
    value = right_value(flag)

    in_args, in_unsafe = flags.problem_with(name, value), flags.problem_with(name, value, unsafe=True)

    if group.owned or group.never:
        assert in_args == in_unsafe
        assert (group.owned or group.never) in in_args
    elif group.of in ACCEPTED or group.text_flag:
        assert in_args is None
        assert "write it in `args`" in in_unsafe
    elif group.of == "executes":
        assert in_args == in_unsafe
        assert "not in `unsafe` either" in in_args
    else:
        assert in_unsafe is None
        assert f"--{name} is not allowed in `args`: {REFUSED[group.of]} (class {group.of})" in in_args


@pytest.mark.parametrize("name", FLAGS)
def test_no_spelling_of_a_flag_is_allowed_where_its_name_is_not(name):
    flag = FLAGS[name]
    for unsafe in (False, True):
        if flags.problem_with(name, right_value(flag), unsafe=unsafe) is None:
            continue
        for word in spellings(flag):
            for written in (word, f"-{word}", f"--{word}", word.replace("-", "_"), word.upper()):
                assert flags.problem_with(written, right_value(flag), unsafe=unsafe) is not None, written


def test_a_flag_is_written_by_a_long_name_alone():
    refused = {name: flags.problem_with(name, "q8_0") for name in ("ctk", "-ctk", "--cache-type-k", "cache_type_k")}

    assert "use the long name: cache-type-k" in refused["ctk"]
    assert all("cache-type-k" in reason for reason in refused.values())


@pytest.mark.parametrize("group", [group for group in GROUPS if group.owned], ids=lambda group: group.flags[0])
def test_a_flag_that_corral_sets_is_refused_by_every_of_its_names(group):
    for flag in (FLAGS[name] for name in group.flags):
        for known in (*flag.names, *flag.negated):
            assert f"corral sets --{known} itself" in (flags.problem_with(known, "1") or "")


@pytest.mark.parametrize("name", ["gpt-oss-20b-default", "fim-qwen-7b-spec", "hf-repo", "model-url"])
def test_a_flag_that_would_bring_another_model_is_refused(name):
    assert "the lock names" in (flags.problem_with(name, True) or "")


@pytest.mark.parametrize(
    "value", ["/etc/passwd", "../secret", "files/../secret", "files/a/b", "files/.a", "files/", "a"]
)
def test_a_file_outside_the_folder_of_texts_is_refused(value):
    assert "files/NAME" in flags.problem_with("chat-template-file", value)
    assert flags.problem_with("chat-template-file", "files/a") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cache-type-k", "q8_0 --tools all"),
        ("threads", "4 --tools all"),
        ("numa", "--tools"),
        ("device", "-md"),
        ("reverse-prompt", "a\x1b[31m"),
        ("samplers", "top_k\n--tools"),
        ("override-kv", "${env.HOME}"),
        ("chat-template-kwargs", "\ud800"),
        ("grammar", "x" * (flags.LARGEST_TEXT + 1)),
    ],
)
def test_a_value_that_is_not_one_harmless_word_is_refused(name, value):
    assert f"--{name}" in flags.problem_with(name, value)


def test_a_text_may_have_lines_and_a_path_may_be_in_the_store():
    assert flags.problem_with("chat-template", "{% if x %}\n\ty{% endif %}\n") is None
    assert flags.problem_with("control-vector", "${STORE}/adapters/a.gguf", unsafe=True) is None
    assert "${" in flags.problem_with("control-vector", "${STORE}/${PORT}", unsafe=True)
    assert "${" in flags.problem_with("rpc", "${STORE}/a", unsafe=True)


def test_a_flag_of_the_engine_without_a_class_is_an_error():
    assert list(mismatches(FLAGS)) == []
    assert list(mismatches([*FLAGS, "new-flag"])) == [
        "--new-flag of the engine has no class: add it to a group of flag_classes.py."
    ]
    assert list(mismatches(FLAGS.keys() - {"temp"})) == [
        "flag_classes.py classifies --temp, which the engine does not have."
    ]


def test_a_flag_that_stands_in_two_groups_is_an_error(monkeypatch):
    monkeypatch.setattr(flag_classes, "GROUPS", (*GROUPS, flag_classes.Group("memory", ("tools",))))

    assert list(mismatches(FLAGS)) == ["flag_classes.py classifies --tools 2 times."]


@pytest.mark.parametrize("unsafe", [False, True])
def test_a_flag_without_a_class_is_refused_everywhere(monkeypatch, unsafe):
    left = {name: group for name, group in flag_classes.GROUP_OF.items() if name != "temp"}
    monkeypatch.setattr(flag_classes, "GROUP_OF", left)

    assert "what the flag does is not known here (class unclassified)" in flags.problem_with("temp", 1, unsafe=unsafe)
    assert uncounted(["llama-server", "--temp", "1"]) == "--temp is not counted: what it does is not known here"


def test_the_check_of_the_engines_flags_fails_at_a_new_one(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["engine_flags.py"])
    assert engine_flags.main() == 0

    known = engine_flags.engine_flags()
    monkeypatch.setattr(engine_flags, "engine_flags", lambda: [*known, known[0] | {"names": ["new-flag"]}])

    assert engine_flags.main() == 1
    messages = capsys.readouterr().err
    assert '+    {"names": ["new-flag"]' in messages
    assert "--new-flag of the engine has no class" in messages


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"cache-type-k": "q8_0"}, ["--cache-type-k", "q8_0"]),
        ({"swa-full": True}, ["--swa-full"]),
        ({"warmup": False}, ["--no-warmup"]),
        ({"kv-offload": False}, ["--no-kv-offload"]),
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
