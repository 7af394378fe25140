"""Conditions on the variables of a tenant's pods: what holds, what is broken, and what cannot be known."""

from __future__ import annotations

import re

import pytest

from corral.exporter.expectations import PATTERN, broken


@pytest.mark.parametrize(
    ("condition", "holds", "breaks"),
    [
        (">0", ["1", "600", "0.5"], ["0", "-1", "", "off", "1e9", "inf", "٣"]),
        (">=600", ["600", "601"], ["599"]),
        ("<1", ["0", "0.99", "-5"], ["1"]),
        ("<=10", ["10", "9"], ["11"]),
        (">-1.5", ["-1", "0"], ["-1.5"]),
        ("=kSameAsRequested", ["kSameAsRequested"], ["kNextPowerOfTwo", ""]),
        ("==", ["="], ["=="]),
        ("=", [""], ["0"]),
    ],
)
def test_a_condition_holds_or_is_broken_by_a_value(condition, holds, breaks):
    assert re.fullmatch(PATTERN, condition)
    assert [value for value in holds if broken({"A": condition}, {"A": {value}})] == []
    assert [value for value in breaks if not broken({"A": condition}, {"A": {value}})] == []


@pytest.mark.parametrize("condition", ["", "0", "> 0", ">x", "!=1", ">1e9", "~a", ">--1"])
def test_another_form_is_no_condition(condition):
    assert not re.fullmatch(PATTERN, condition)


def test_every_container_must_keep_to_it():
    assert broken({"A": ">0"}, {"A": {"600", "0"}}) == ("A is '0', and must be >0",)


def test_a_variable_that_is_not_set_breaks_its_condition():
    assert broken({"B": ">0", "A": "=x"}, {"B": {"1"}}) == ("A is not set, and must be =x",)


def test_a_value_from_elsewhere_is_not_known_and_so_no_proof():
    assert broken({"A": ">0"}, {"A": {None, "600"}}) == ("A is not known from the pod, and must be >0",)
    assert broken({"A": ">0"}, {"A": {None, "0"}}) == ("A is '0', and must be >0",)
