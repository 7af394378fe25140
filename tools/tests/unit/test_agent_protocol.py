"""Other hubs: every form that HTTP allows, and some that it does not, brings the same file."""

import socket
import time
from email.utils import formatdate

import pytest

from corral.agent import hub_client
from tests.support import faulty_hub as faults
from tests.support.faulty_hub import FaultyHub, RepoContent
from tests.support.fetching import MIB, REPO, shop

TOKEN = "hf_secret"


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path, size=3 * MIB) as made:
        yield made


def data_path(one):
    return f"/cdn/{one.hub.repositories.commit(REPO, 'main').files['a.gguf'].sha256}"


def fetched_whole(one, **how):
    one.fetch(**how)
    return one.published.read_bytes() == one.content and one.leftovers() == []


FORMS = {
    "names-in-lower-case": faults.LowerCase(on=""),
    "bodies-in-chunks": faults.Chunked(),
    "no-content-length": faults.Lengthless(),
    "size-not-in-the-range": faults.RangeForm(form="bytes {start}-{end}/*"),
    "no-size-in-the-range": faults.RangeForm(form="bytes {start}-{end}"),
    "unit-in-capitals": faults.RangeForm(form="Bytes {start}-{end}/{size}"),
    "no-range-in-the-answer": faults.Change(times=None, without=("Content-Range",)),
    "weak-etag": faults.Change(times=None, fields={"ETag": 'W/"1234"'}),
    "etag-without-quotes": faults.Change(times=None, fields={"ETag": "1234-5"}),
    "no-etag": faults.Change(times=None, without=("ETag", "Accept-Ranges")),
    "no-linked-size-and-etag": faults.Change(
        on=faults.RESOLVE, times=None, without=("X-Linked-Etag", "X-Linked-Size", "X-Repo-Commit")
    ),
    "encoding-identity": faults.Change(times=None, fields={"Content-Encoding": "identity"}),
    "connection-closed-each-time": faults.Change(times=None, fields={"Connection": "close"}),
    **{
        f"redirect-{status}": faults.Change(on=faults.RESOLVE, times=None, status=status)
        for status in (301, 303, 307, 308)
    },
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_form_of_the_protocol_brings_the_same_file(one, form):
    one.hub.faults = [form]
    assert fetched_whole(one)
    assert one.hub.data_sent <= 1.1 * len(one.content) or form is FORMS["no-content-length"]


def test_every_request_is_a_get_so_that_a_hub_may_refuse_head(one):
    one.fetch()
    assert {entry.method for entry in one.hub.log} == {"GET"}


def test_a_relative_redirect_stays_on_the_hub(one):
    one.hub.faults = [faults.Header(on=faults.RESOLVE, name="Location", value=f"{data_path(one)}?a=b", times=None)]
    assert fetched_whole(one)
    assert {entry.host for entry in one.hub.log} == {"127.0.0.1"}


def test_a_redirect_without_a_scheme_leads_to_the_other_host(one):
    port = one.hub.endpoint.rpartition(":")[2]
    elsewhere = f"//localhost:{port}{data_path(one)}"
    one.hub.faults = [faults.Header(on=faults.RESOLVE, name="Location", value=elsewhere, times=None)]
    assert fetched_whole(one, token=TOKEN)
    assert {entry.host for entry in one.hub.log if entry.is_data} == {"localhost"}


def test_several_redirects_are_followed_once_for_all_ranges(one):
    port = one.hub.endpoint.rpartition(":")[2]
    one.hub.faults = [
        faults.Header(on=faults.RESOLVE, name="Location", value="../../renamed", times=None),
        faults.Change(on="renamed", times=None, status=307, fields={"Location": f"http://localhost:{port}/far/away"}),
        faults.Change(on="/far/away", times=None, status=302, fields={"Location": data_path(one)}),
    ]
    assert fetched_whole(one)
    assert sum(entry.path == "/far/away" for entry in one.hub.log) == 1
    assert sum(entry.is_data for entry in one.hub.log) > 1


def test_the_query_of_a_signed_address_arrives_as_it_was_given(tmp_path):
    signature = "A/b+c==&X-Expires=%2B3600&name=a b ü"
    received = set()

    class Strict(FaultyHub):
        def signed_address(self, file):
            return super().signed_address(file) + f"&Sig={signature}".encode().decode("latin-1")

        def serve(self, request, wire):
            if faults.DATA in request.path:
                received.add((*request.query["Sig"], *request.query["X-Expires"], *request.query["name"]))
            super().serve(request, wire)

    with shop(tmp_path) as plain, Strict({REPO: RepoContent({"a.gguf": plain.content})}) as strict:
        plain.hub = strict
        assert fetched_whole(plain)
    assert received == {("A/b c==", "+3600", "a b ü")}  # a plus is a blank in a query, an escaped one is a plus


def test_the_token_is_sent_nowhere_else_over_several_redirects_and_not_back_either(one):
    with FaultyHub({}) as other:
        one.hub.faults = [
            faults.Header(on=faults.RESOLVE, name="Location", value=f"{other.endpoint}/first", times=None),
        ]
        other.faults = [
            faults.Change(on="/first", times=None, status=302, fields={"Location": "/second"}),
            faults.Change(
                on="/second", times=None, status=302, fields={"Location": f"{one.hub.endpoint}{data_path(one)}"}
            ),
        ]
        assert fetched_whole(one, token=TOKEN)
        assert [entry.headers.get("authorization") for entry in other.log] == [None, None]
    sent = {(entry.is_data, entry.headers.get("authorization")) for entry in one.hub.log}
    assert sent == {(False, f"Bearer {TOKEN}"), (True, None)}


def test_the_token_stays_with_the_hub_over_its_own_redirects(tmp_path):
    with shop(tmp_path, token=TOKEN) as one:
        renamed = "/org/name/resolve/main/a.gguf?renamed"
        one.hub.faults = [faults.Change(on=faults.RESOLVE, status=307, fields={"Location": renamed})]
        assert fetched_whole(one, token=TOKEN)
        sent = {(entry.host, entry.headers.get("authorization")) for entry in one.hub.log}
        assert sent == {("127.0.0.1", f"Bearer {TOKEN}"), ("localhost", None)}


def _loopback_hosts():
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return ["127.0.0.1"]
    return ["127.0.0.1", "::1"]


@pytest.mark.parametrize("host", _loopback_hosts())
def test_a_hub_at_any_loopback_address_is_allowed(one, host):
    with faults.Door(one.hub, host) as door:
        door.open()
        assert fetched_whole(one, hub=hub_client.Hub(door.endpoint))


def test_retry_after_is_a_number_or_a_date():
    assert hub_client._retry_after("7") == 7
    assert 5 < hub_client._retry_after(formatdate(time.time() + 7, usegmt=True)) <= 7


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "soon",
        "0",
        "-1",
        "1.5",
        "²",
        "٣",
        "1e9",
        "nan",
        "inf",
        "9" * 5000,
        formatdate(0, usegmt=True),
        "Mon, 99 Abc 0000 99:99:99 GMT",
        "Mon, 01 Jan 0001 00:00:00 GMT",
        "Mon, 01 Jan 2999 00:00:00 +99999999",
    ],
)
def test_a_retry_after_that_asks_for_no_time_is_as_good_as_none(value):
    assert hub_client._retry_after(value) is None
