"""The digest in Terraform's own bytes; the comparison with the real Terraform is in tests/stack."""

from corral.catalog.digest import intent_sha256, terraform_json


def test_keys_are_sorted_and_nothing_is_spaced():
    assert (
        terraform_json({"b": [1, True, None], "a": {"z": "x", "y": []}}) == '{"a":{"y":[],"z":"x"},"b":[1,true,null]}'
    )


def test_what_go_escapes_is_escaped():
    assert terraform_json("<a&b>\u2028é") == '"\\u003ca\\u0026b\\u003e\\u2028é"'


def test_numbers_are_written_in_the_shortest_plain_form():
    assert terraform_json([0.5, 1.0, 1e-05, 120000.0]) == "[0.5,1,0.00001,120000]"


def test_the_order_of_keys_does_not_change_the_digest():
    assert intent_sha256({"a": 1, "b": 2}) == intent_sha256({"b": 2, "a": 1})


def test_a_changed_value_changes_the_digest():
    assert intent_sha256({"a": 1}) != intent_sha256({"a": "1"})
