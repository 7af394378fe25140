"""Sets of cases: what is allowed in one, and that everything else is named with its file, its line and the rule."""

from __future__ import annotations

import os

import pytest

from corral.errors import EvalSetInvalid, Refused
from corral.evaluation import cases
from corral.smoke.images import solid_png
from tests.support import eval_sets
from tests.support.eval_sets import NUMBER, schema

AGE = schema(age=NUMBER)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "set"


def problems(folder, *found, **common):
    """What is wrong with a set of *found* cases, one a line."""
    eval_sets.write(folder, {f"c{at}": one for at, one in enumerate(found, 1)}, **({"schema": AGE} | common))
    with pytest.raises(EvalSetInvalid) as error:
        cases.load(folder)
    assert error.value.next_step
    return [str(problem).removeprefix(f"{folder}/") for problem in error.value.problems]


def test_a_set_has_its_cases_in_order_with_what_they_share(folder):
    images = folder / "images"
    images.mkdir(parents=True)
    (images / "red.png").write_bytes(solid_png("red", 16))
    (images / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0 and more")
    own = schema(colour={"enum": ["red", "blue"]}, at=schema(x={"type": "number"}))
    found = cases.load(
        eval_sets.write(
            folder,
            {
                "b": {"prompt": "Which?", "schema": own, "expect": {"colour": "red"}, "between": {"at.x": [0.5, 2]}},
                "a": {"images": ["images/photo.jpg", "images/red.png"], "expect": {"age": 34}},
            },
            system="You are short.",
            schema=AGE,
            answer_tokens=64,
            verdict={"right": 0.5, "p50_seconds": 2},
        )
    )
    first, second = found.cases
    assert (found.name, found.system, found.answer_tokens, found.top) == ("set", "You are short.", 64, None)
    assert (found.rules.parsed, found.rules.right, found.rules.p50_seconds, found.rules.p95_seconds) == (
        1,
        0.5,
        2,
        None,
    )
    assert (first.id, first.schema, first.fields) == ("a", AGE, ("age",))
    assert [(image.name, image.kind) for image in first.images] == [
        ("images/photo.jpg", "jpeg"),
        ("images/red.png", "png"),
    ]
    assert (second.prompt, second.schema, second.fields) == ("Which?", own, ("colour", "at.x"))
    assert second.between == {"at.x": (0.5, 2.0)}


def test_the_digest_of_a_set_follows_every_byte_and_every_name(folder):
    (folder / "cases").mkdir(parents=True)
    (folder / "a.png").write_bytes(solid_png("red", 16))
    one = {"images": ["a.png"]}
    digests = [cases.load(eval_sets.write(folder, {"c1": one}, schema=AGE)).sha256]
    digests.append(cases.load(eval_sets.write(folder, {"c1": one | {"prompt": "Other."}}, schema=AGE)).sha256)
    digests.append(cases.load(eval_sets.write(folder, {"c1": one}, schema=AGE, answer_tokens=9)).sha256)
    (folder / "a.png").write_bytes(solid_png("blue", 16))
    digests.append(cases.load(eval_sets.write(folder, {"c1": one}, schema=AGE)).sha256)
    (folder / "cases" / "c1.yaml").rename(folder / "cases" / "c2.yaml")
    digests.append(cases.load(folder).sha256)
    assert len(set(digests)) == 5


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ({"expects": {}}, "cases/c1.yaml:1: expects: unknown key expects (did you mean expect?)"),
        ({"prompt": ""}, "prompt: must not be empty."),
        ({"prompt": 3}, "prompt: must be text, not 3"),
        ({"expect": {"aeg": 3}}, "expect.aeg: the schema has no field aeg (did you mean age?); it has: age."),
        ({"expect": {"age": [3]}}, "age must be text, a number, true, false or null"),
        ({"expect": {"age.years": 3}}, "the schema has no field age.years"),
        ({"between": {"age": 3}}, "age must be two numbers, [least, most]."),
        ({"between": {"age": [3, 2]}}, "age must be two numbers"),
        ({"between": {"age": [True, 2]}}, "age must be two numbers"),
        ({"expect": {"age": 3}, "between": {"age": [3, 4]}}, "it is under expect, too: keep one."),
        ({"schema": schema(colour={"enum": ["red"]}), "expect": {"colour": "rde"}}, "has not 'rde' among 'red'."),
        ({"schema": {"type": "array"}}, "must have type: object"),
        ({"schema": {"type": "object", "properties": {}}}, "must have type: object, and properties"),
        (
            {"schema": {"type": "object", "properties": [1]}, "expect": {"age": 3}},
            "schema.properties: [1] is not of type",
        ),
        ({"schema": schema(age={"type": "intger"})}, "schema.properties.age.type: 'intger' is not valid"),
        ({"schema": schema(age={"$ref": "https://example.com/x"})}, "age.$ref: unknown keyword $ref; allowed: "),
        ({"schema": schema(age={"minumum": 3})}, "unknown keyword minumum (did you mean minimum?)"),
        ({"schema": schema(age={"anyOf": [{"not": {}}]})}, "age.anyOf.0.not: unknown keyword not"),
        ({"schema": schema(age={"items": {"if": {}}})}, "age.items.if: unknown keyword if"),
        ({"schema": schema(age={"pattern": "("})}, "age.pattern: it is no regular expression"),
        ({"schema": schema(**{"a.b": NUMBER})}, "a field's name has no dot"),
        ({"images": ["none.png"]}, "images.0: none.png cannot be read: No such file or directory"),
        ({"images": ["."]}, "images.0: . cannot be read"),
        ({"images": ["/etc/hostname"]}, "/etc/hostname is not in the set's folder"),
        ({"images": ["../set/set.yaml"]}, "../set/set.yaml is not in the set's folder"),
        ({"images": ["set.yaml"]}, "set.yaml is neither PNG nor JPEG"),
        ({"images": ["set.yaml"] * 33}, "images: must have at most 32 entries."),
    ],
)
def test_what_a_case_may_not_have_is_named_with_the_rule(folder, case, line):
    (found,) = problems(folder, case)
    assert line in found


K = {"type": "integer", "minimum": 0, "maximum": 9}
TEXT = {"type": "string", "maxLength": 4}


@pytest.mark.parametrize(
    ("field", "case"),
    [
        *((K, {"expect": {"k": value}}) for value in ("3", 34, None, True, 3.5, -1)),
        *((TEXT, {"expect": {"k": value}}) for value in (3, None, "longer", False)),
        ({"const": 1}, {"expect": {"k": True}}),
        ({"enum": [1, 2]}, {"expect": {"k": True}}),
        ({"enum": [1, None]}, {"expect": {"k": "None"}}),
        ({"anyOf": [K, TEXT]}, {"expect": {"k": 10}}),
        (schema(x=K), {"expect": {"k": "{}"}}),
        (schema(x=K), {"expect": {"k.x": 10}}),
        ({"type": "array", "items": K}, {"expect": {"k.0": 10}}),
        (False, {"expect": {"k": 1}}),
        *((K, {"between": {"k": limits}}) for limits in ([20, 30], [-5, -1], [3.2, 3.8], [9.5, 12])),
        *((one, {"between": {"k": [1, 2]}}) for one in (TEXT, {"type": "array"}, {"const": 3}, {"enum": ["1", 3]})),
        (False, {"between": {"k": [1, 2]}}),
        ({"type": "number", "exclusiveMaximum": 1}, {"between": {"k": [1, 2]}}),
        ({"type": "number", "exclusiveMinimum": 2}, {"between": {"k": [1, 2]}}),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, {"between": {"k": [0, 5]}}),
    ],
)
def test_what_no_answer_by_the_schema_can_have_is_a_problem_of_the_set(folder, field, case):
    (found,) = problems(folder, case, schema={"type": "object", "properties": {"k": field}})
    ((key, fields),) = case.items()
    assert f"{key}.{next(iter(fields))}: " in found
    assert "schema has" in found


@pytest.mark.parametrize(
    ("field", "case"),
    [
        *((K, {"expect": {"k": value}}) for value in (0, 9, 3.0)),
        *(({}, {"expect": {"k": value}}) for value in (0, None, "x", True)),
        (True, {"expect": {"k": None}}),
        ({"type": ["string", "null"]}, {"expect": {"k": None}}),
        ({"anyOf": [K, {"type": "null"}]}, {"expect": {"k": None}}),
        ({"type": "object"}, {"expect": {"k": "{}"}}),
        ({"type": "array", "items": K}, {"expect": {"k": "[]"}}),
        ({"type": "array", "prefixItems": [K]}, {"expect": {"k.0": 10}}),
        *((K, {"between": {"k": limits}}) for limits in ([9, 30], [-5, 0], [2.5, 3.5], [4, 4])),
        *((one, {"between": {"k": [1, 2]}}) for one in ({}, True, {"anyOf": [TEXT, K]}, {"enum": ["1", 2]})),
        ({"type": "number", "exclusiveMaximum": 1.5}, {"between": {"k": [1, 2]}}),
        ({"type": ["integer", "null"], "exclusiveMinimum": 1}, {"between": {"k": [1, 2]}}),
    ],
)
def test_what_an_answer_by_the_schema_may_have_can_be_expected(folder, field, case):
    made = eval_sets.write(folder, {"c1": case}, schema={"type": "object", "properties": {"k": field}})
    assert cases.load(made).cases[0].fields


@pytest.mark.parametrize(
    ("common", "line"),
    [
        ({"systems": "x"}, "set.yaml:1: systems: unknown key systems (did you mean system?)"),
        ({"schema": None}, "schema: there is none, and set.yaml has none for all cases."),
        ({"answer_tokens": 0}, "answer_tokens: must be at least 1"),
        ({"verdict": {"parsed": 2}}, "verdict.parsed: must be at most 1"),
        ({"verdict": {"p50_seconds": 0}}, "verdict.p50_seconds: must be more than 0"),
        ({"verdict": {"p99_seconds": 1}}, "unknown key p99_seconds"),
        ({"verdict": {"right": 0.9}}, "verdict.right: no case expects a field."),
        ({"score": {"field": "grade"}}, "the score of set.yaml: the schema has no field grade"),
        ({"score": {"field": "age", "top": 2}}, "the top 2 of 2 cases are above no other one."),
        ({"score": {"field": "age", "best": ["c1", "c2"]}}, "the top 2 of 2 cases are above no other one."),
        ({"score": {"field": "age", "best": ["c3"]}}, "score.best.0: c3 is no case of this set."),
        ({"score": {"field": "age", "top": 1, "best": ["c1"]}}, "the cases of best say how many: leave out top."),
    ],
)
def test_what_a_set_may_not_have_is_named_with_the_rule(folder, common, line):
    found = problems(folder, {}, {}, **common)
    assert any(line in one for one in found), found


def test_a_case_that_is_named_twice_among_the_best_is_a_problem(folder):
    found = problems(folder, {}, {}, {}, score={"field": "age", "best": ["c1", "c1"]})
    assert found == ["set.yaml:1: score.best.1: c1 stands twice."]


def test_links_that_lead_out_of_the_set_are_refused_and_quote_nothing(folder, tmp_path):
    outside = tmp_path / "secret.yaml"
    outside.write_text("password: hunter2\n")
    (tmp_path / "picture.png").write_bytes(solid_png("red", 16))
    folder.mkdir()
    (folder / "inside.png").symlink_to(tmp_path / "picture.png")
    (folder / "cases").mkdir()
    (folder / "cases" / "c2.yaml").symlink_to(outside)
    found = problems(folder, {})
    assert found == ["cases/c2.yaml:1: is a link that leads out of the set: copy its target into it."]
    (folder / "cases" / "c2.yaml").unlink()
    (found,) = problems(folder, {"images": ["inside.png"]})
    assert "inside.png is not in the set's folder, or a link that leads out" in found


def test_links_within_the_set_are_followed(folder):
    folder.mkdir()
    (folder / "red.png").write_bytes(solid_png("red", 16))
    (folder / "first.png").symlink_to("red.png")
    found = cases.load(eval_sets.write(folder, {"c1": {"images": ["first.png"]}}, schema=AGE))
    assert found.cases[0].images[0].content == solid_png("red", 16)


def test_what_is_no_regular_file_is_not_read(folder):
    folder.mkdir()
    os.mkfifo(folder / "pipe.png")
    (found,) = problems(folder, {"images": ["pipe.png"]})
    assert "pipe.png cannot be read: It is no regular file" in found


def test_images_that_are_too_large_are_refused_one_by_one_together_and_in_all(folder, monkeypatch):
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.png").write_bytes(solid_png("red", 16) + bytes(1000))
    one = [{"images": ["a.png"]}]
    monkeypatch.setattr(cases, "MOST_IMAGE_BYTES", 500)
    assert (
        "a.png cannot be read: It has more than 500 bytes; an image is a file of at most" in problems(folder, *one)[0]
    )
    monkeypatch.setattr(cases, "MOST_IMAGE_BYTES", 2000)
    monkeypatch.setattr(cases, "MOST_CASE_BYTES", 1500)
    assert "images: have more than 0 MiB together" in problems(folder, {"images": ["a.png", "b.png"]})[0]
    monkeypatch.setattr(cases, "MOST_SET_BYTES", 2500)
    found = problems(folder, {"images": ["a.png"]}, {"images": ["b.png"]}, {"images": ["c.png"]})
    assert ["all images of a set have at most" in line for line in found] == [True]
    monkeypatch.setattr(cases, "MOST_SET_BYTES", 1500)
    same = {f"c{at}": {"images": ["a.png"]} for at in range(1, 4)}  # counts once
    assert len(cases.load(eval_sets.write(folder, same, schema=AGE)).cases) == 3


@pytest.mark.parametrize("name", ["C1.yaml", "notes.txt", "c1.yml", f"{'a' * 64}.yaml"])
def test_another_file_among_the_cases_is_a_problem_and_one_of_an_editor_is_not(folder, name):
    eval_sets.write(folder, {"c1": {}}, schema=AGE)
    (folder / "cases" / ".c1.yaml.swp").write_bytes(b"\0")
    assert len(cases.load(folder).cases) == 1
    (folder / "cases" / name).write_text("prompt: x\n")
    with pytest.raises(EvalSetInvalid, match=r"must be ID.yaml"):
        cases.load(folder)


def test_no_case_and_too_many_are_refused(folder, monkeypatch):
    eval_sets.write(folder, {}, schema=AGE)
    with pytest.raises(EvalSetInvalid, match="it has 0"):
        cases.load(folder)
    eval_sets.write(folder, {"c1": {}, "c2": {}}, schema=AGE)
    monkeypatch.setattr(cases, "MOST_CASES", 1)
    with pytest.raises(EvalSetInvalid, match="at most 1; it has 2"):
        cases.load(folder)


def test_a_folder_without_set_yaml_is_no_set(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(Refused, match=r"is no set of cases: it has no file set.yaml"):
            cases.load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompt: a\nprompt: b\n", "the key stands twice"),
        ("prompt: &a x\nimages: [*a]\n", "anchors and aliases are not allowed"),
        ("- a\n", "must be a mapping"),
        ("prompt: !!python/name:os.system x\n", "tag"),
        ("x" * (65 << 10), "has more than"),
        ("[" * 100, "not valid YAML|nested deeper"),
        ("\xff", "not UTF-8"),
    ],
)
def test_yaml_is_read_as_strictly_as_a_catalog(folder, text, message):
    eval_sets.write(folder, {"c1": {}}, schema=AGE)
    (folder / "cases" / "c1.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(EvalSetInvalid, match=message) as error:
        cases.load(folder)
    assert "corral validate" not in error.value.next_step


def test_all_problems_of_a_set_are_found_in_one_pass(folder):
    found = problems(folder, {"expect": {"x": 1}}, {"images": ["a.png"]}, {"between": {"age": []}}, answer_tokens=9999)
    assert [line.split(":")[0] for line in found] == ["cases/c3.yaml", "set.yaml"]
    found = problems(folder, {"expect": {"x": 1}}, {"images": ["a.png"]}, {})
    assert [line.split(":")[0] for line in found] == ["cases/c1.yaml", "cases/c2.yaml"]
