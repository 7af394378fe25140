"""Which methods and paths lead to llama-swap, and that a path has one reading."""

import pytest

from corral.door.paths import ROUTES, Access, check_method, check_target, find_route
from corral.door.refusals import Refusal

NORMAL = [
    "/",
    "/health",
    "/v1/messages?beta=true",
    "/upstream/qwen3-8b/v1/chat/completions",
    "/upstream/qwen3-8b/",
    "/upstream/a..b/props",
    "/logs/stream/qwen3-8b?no-history",
    "/api/metrics/activity?limit=999",
    "/logs/stream/x?a=%2F..%2F",
]
OTHER = [
    "//health",
    "/v1//models",
    "/v1/./models",
    "/v1/../upstream/m/",
    "/v1/models/..",
    "/v1/models/.",
    "/%75pstream/m/",
    "/v1/models%2f..",
    "/v1%00/models",
    "/v1\\models",
    "/v1/models;a=b",
    "/v1/models#x",
    "/v1/\x7fmodels",
    "/v1/mod\xe9ls",
    "v1/models",
    "*",
    "http://127.0.0.1/v1/models",
    "127.0.0.1:80",
    "",
    "/v1/models?a=b#c",
    "/v1/models?a=\\",
    '/v1/models?"',
]


@pytest.mark.parametrize("target", NORMAL)
def test_a_path_in_normal_form_is_accepted(target):
    check_target(target)


@pytest.mark.parametrize("target", OTHER)
def test_a_path_that_two_readers_may_read_differently_is_refused(target):
    with pytest.raises(Refusal) as refused:
        check_target(target)

    assert (refused.value.status, refused.value.code) == (400, "malformed-request")


ACCESS = {
    "/v1/chat/completions": Access.CLIENT,
    "/v1/models": Access.CLIENT,
    "/metrics": Access.CLIENT,
    "/health": Access.EVERYBODY,
    "/running": Access.MONITOR,
    "/api/metrics/activity": Access.MONITOR,
    "/api/metrics/activity/x": Access.OPERATOR,
    "/engine-metrics/m": Access.MONITOR,
    "/engine-metrics": None,
    "/engine-probe/m": Access.MONITOR,
    "/engine-yield/m": Access.STEWARD,
    "/engine-yield": None,
    "/pause": Access.OPERATOR,
    "/model-changes": Access.MONITOR,
    "/model-changes/m": None,
    "/unload": Access.OPERATOR,
    "/logs": Access.OPERATOR,
    "/logs/stream/m": Access.OPERATOR,
    "/api/models/unload/m": Access.OPERATOR,
    "/upstream/m/tools": Access.OPERATOR,
    "/ui/index.html": Access.OPERATOR,
    "/healthy": None,
    "/v1/models/": None,
    "/upstream": None,
    "/v1/audio/speech": None,
    "/v/chat/completions": None,
    "/props": None,
    "/": None,
}


@pytest.mark.parametrize(("path", "access"), ACCESS.items())
def test_a_path_has_one_line_of_the_table_or_none(path, access):
    found = find_route(path)

    assert (found.access if found else None) is access
    others = [route for route in ROUTES if route.matches(path) and route is not found]
    assert not others or (found.path == path and all(one.path.endswith("/*") for one in others))


@pytest.mark.parametrize(
    ("role", "permitted"),
    [
        ("client", {Access.EVERYBODY, Access.CLIENT}),
        ("monitor", {Access.EVERYBODY, Access.CLIENT, Access.MONITOR}),
        ("steward", {Access.EVERYBODY, Access.CLIENT, Access.MONITOR, Access.STEWARD}),
        ("operator", set(Access)),
    ],
)
def test_a_role_may_use_what_is_for_it_and_no_more(role, permitted):
    assert {one for one in Access if one.permits(role)} == permitted


def test_nothing_that_a_monitor_may_do_beyond_a_client_changes_anything():
    routes = [route for route in ROUTES if route.access is Access.MONITOR]
    assert {route.path for route in routes if route.methods != ("GET",)} == {"/engine-probe/*"}
    assert len(routes) == 5
    assert [route.path for route in ROUTES if route.access is Access.STEWARD] == ["/engine-yield/*"]


def test_only_inference_and_what_an_operator_uses_take_a_body():
    posted = {route.path for route in ROUTES if "POST" in route.methods}
    inference = {route.path for route in ROUTES if route.is_inference}

    assert posted - inference == {"/api/*", "/upstream/*", "/engine-probe/*", "/engine-yield/*", "/pause"}
    assert {"/v1/messages", "/v1/responses", "/infill", "/v1/embeddings"} < inference
    assert all(route.access is Access.CLIENT for route in ROUTES if route.is_inference)


def test_another_method_of_a_path_is_refused_with_those_that_it_has():
    with pytest.raises(Refusal) as refused:
        check_method(find_route("/upstream/m/"), "DELETE")

    assert refused.value.status == 405
    assert b"\r\nAllow: GET, POST\r\n" in refused.value.answer()
    with pytest.raises(Refusal) as refused:
        check_method(None, "GET")
    assert refused.value.status == 404
