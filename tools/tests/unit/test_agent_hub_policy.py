"""What corral accepts from a hub: its addresses, the token, the rate, and the text that it sends."""

import pytest

from corral.agent import hub_policy
from corral.agent.hub_policy import Budgets, HubPolicy, Origin, ThroughputMeter, printable, shown
from corral.errors import CannotRun, Refused

TOKEN = "hf_secret"
HUB = HubPolicy("https://hub.example", token=TOKEN, plain_http_hosts=frozenset({"mirror.example"}))


def over(*locations, hub=HUB):
    """The address that several redirects lead to."""
    address = hub.first("/org/name/resolve/main/a.gguf")
    for location in locations:
        address = hub.next(address, location)
    return address


@pytest.mark.parametrize(
    "locations",
    [
        ["https://data.example/x"],
        ["//data.example/x"],
        ["https://hub.example:8443/x"],
        ["https://sub.hub.example/x"],
        ["https://hub.example./x"],
        ["http://mirror.example/x"],
        ["https://data.example/x", "https://hub.example/x"],
        ["/renamed", "https://data.example/x", "/y", "https://hub.example/x", "/z"],
    ],
)
def test_the_token_is_for_the_hubs_origin_until_another_one_was_on_the_way(locations):
    assert HUB.authorization(over(*locations)) == {}
    assert HUB.authorization(over("/renamed", "https://hub.example:443/x")) == {"Authorization": f"Bearer {TOKEN}"}


def test_the_token_does_not_follow_from_https_to_plain_http_of_the_same_host():
    hub = HubPolicy("https://mirror.example", token=TOKEN, plain_http_hosts=frozenset({"mirror.example"}))
    assert hub.authorization(over("http://mirror.example/x", hub=hub)) == {}


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://mirror.example",
        "https://huggingface.co.mirror.example",
        "https://sub.huggingface.co",
        "https://huggingface.co:8443",
        "http://huggingface.co",
        "http://127.0.0.1:8080",
    ],
)
def test_the_token_of_a_login_is_for_huggingface_co_and_another_hub_gets_one_that_is_named(endpoint, tmp_path):
    def authorization(**more):
        environment = {"HF_HOME": str(tmp_path), "CORRAL_ALLOW_HTTP": "huggingface.co", **more}
        hub = HubPolicy.from_environment(environment)
        return hub.authorization(hub.first("/api"))

    (tmp_path / "token").write_text("hf_login\n")
    (tmp_path / "named").write_text("hf_named\n")

    assert authorization() == {"Authorization": "Bearer hf_login"}
    assert authorization(HF_ENDPOINT="https://HuggingFace.co:443/") == {"Authorization": "Bearer hf_login"}
    assert authorization(HF_ENDPOINT=endpoint) == {}
    assert authorization(HF_ENDPOINT=endpoint, HF_TOKEN=TOKEN) == {"Authorization": f"Bearer {TOKEN}"}
    named = authorization(HF_ENDPOINT=endpoint, HF_TOKEN_PATH=str(tmp_path / "named"))
    assert named == {"Authorization": "Bearer hf_named"}


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://data.example/x",
        "javascript:alert(1)",
        "http://[::1/x",
        "https://[fe80::1%25eth0]/x",
        "https://data.example:99999/x",
        "https://data.example:0/x",
        "https://data.example:²/x",
        "https://da\x1bta.example/x",
        "https://a..example/x",
        f"https://{'a' * 64}.example/x",
        f"https://{'a.' * 130}example/x",
        "https://d\xe4ta.example/x",
    ],
)
def test_a_redirect_to_no_address_of_a_file_is_named_and_not_followed(location):
    with pytest.raises(
        CannotRun, match=r"https://hub\.example/org/name/.* redirects to .*no address of a file"
    ) as caught:
        over(location)
    assert caught.value.message.isprintable()


def test_a_redirect_with_a_password_is_refused_without_printing_it():
    with pytest.raises(CannotRun, match="redirects to an address with a user name") as caught:
        over("https://user:hunter2@data.example/x")
    assert "hunter2" not in str(vars(caught.value))


def test_a_hub_elsewhere_must_not_redirect_to_loopback():
    assert over("http://localhost:81/x", hub=HubPolicy("http://127.0.0.1:80")).origin.port == 81
    for location in ("http://127.0.0.1:8080/unload", "http://localhost/", "http://[::1]/"):
        with pytest.raises(Refused, match="is plain HTTP"):
            over(location)


def test_characters_that_an_address_must_not_hold_are_escaped_in_it():
    assert over("/a b\r\n\xfc?x=%2B#top").url == "https://hub.example/a%20b%0D%0A%FC?x=%2B"


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://user:hunter2@hub.example",
        "http://user:hunter2@127.0.0.1:8080",
        "https://hunter2@hub.example/path",
        "ftp://user:hunter2@hub.example",
        "https://user:hun/ter2@hub.example",
        "https://user:hun?ter2@hub.example",
        "user:hunter2@hub.example",
    ],
)
def test_a_password_in_the_address_of_the_hub_is_refused_and_never_printed(endpoint):
    with pytest.raises(Refused, match=r"HF_ENDPOINT holds a user name|is not the address of a hub") as caught:
        HubPolicy.from_environment({"HF_ENDPOINT": endpoint})
    assert "hun" not in str(vars(caught.value))


@pytest.mark.parametrize(
    "endpoint",
    ["https://hub.example/?a=b", "https://hub.example/#a", "https://hub.example/ü", "https://hub.example/a b"],
)
def test_an_endpoint_that_cannot_be_sent_is_refused(endpoint):
    with pytest.raises(Refused, match="is not the address of a hub"):
        HubPolicy.from_environment({"HF_ENDPOINT": endpoint})


def test_an_address_is_shown_without_what_may_be_secret():
    assert shown("https://user:pw@hub.example:8443/a/b?Signature=x#y") == "https://hub.example:8443/a/b"
    assert shown("https://[::1]/a\x1b[2J") == "https://[::1]/a\\x1b[2J"
    assert shown("models.example?x=y") == "models.example"
    assert shown("http://[::1/x?a=b") == "http://[::1/x"
    assert shown("user:pw@host") == "…"


def test_text_from_elsewhere_is_one_line_without_controls():
    assert printable("tïtle 模型") == "tïtle 模型"
    assert printable("a\x1b[31m\r\n\t\x00\x9b\u202e\u2066\ufeff\u2028\ue000\udc80") == (
        r"a\x1b[31m\r\n\t\x00\x9b\u202e\u2066\ufeff\u2028\ue000\udc80"
    )
    assert printable("x" * 1000) == "x" * 300 + "…"


def meter(least_rate, window=60):
    """A meter, and its clock to set forward."""
    now = [1000.0]
    return ThroughputMeter(least_rate, window, lambda: now[0]), now


def seconds_survived(rate, *, least_rate=1000, most=10_000):
    one, now = meter(least_rate)
    for second in range(most):
        if one.left <= 0:
            return second
        now[0] += 1
        one.received(rate)
    return most


def test_a_transfer_below_the_least_rate_ends_and_one_at_it_does_not():
    assert seconds_survived(0) == 60
    assert seconds_survived(1) == 61
    assert seconds_survived(500) == 120
    assert seconds_survived(1000) == 10_000


def test_a_burst_buys_no_more_than_the_window():
    one, now = meter(1000)
    now[0] += 30
    one.received(10**9)
    assert one.left == 60


def test_time_that_the_hub_was_not_waited_for_does_not_count():
    one, now = meter(1000)
    now[0] += 500
    one.exclude(490)
    assert one.left == 50
    one.exclude(490)
    assert one.left == 60


def test_time_that_the_hub_asked_for_does_not_count_and_bytes_in_it_do():
    one, now = meter(1000)
    now[0] += 50
    one.pause(30)
    one.pause(10)  # another connection, at the same time
    now[0] += 20
    one.received(20_000)
    assert one.left == 30
    now[0] += 15
    assert one.left == 25


def test_without_a_least_rate_one_byte_in_the_window_is_enough():
    assert seconds_survived(1, least_rate=0) == 10_000
    assert seconds_survived(0, least_rate=0) == 60


def test_the_least_rate_comes_from_the_environment():
    assert Budgets.from_environment({}).least_rate == 64 * 1024
    assert Budgets.from_environment({hub_policy.LEAST_RATE: " 0.5 "}).least_rate == 512
    assert HubPolicy.from_environment({hub_policy.LEAST_RATE: "0"}).budgets.least_rate == 0
    for text in ("fast", "-1", "nan", "inf", "\x1b[2J"):
        with pytest.raises(Refused, match=hub_policy.LEAST_RATE) as caught:
            Budgets.from_environment({hub_policy.LEAST_RATE: text})
        assert caught.value.message.isprintable()


def test_an_address_of_six_parts_is_written_in_brackets():
    assert str(Origin("http", "::1", 8080)) == "[::1]:8080"
    assert str(Origin("https", "::1", 443)) == "[::1]"
