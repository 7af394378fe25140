"""`corral lock` against hubs and registries that answer with anything: each answer is refused, in words, in bounds."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import time
from pathlib import Path

import pytest
import yaml

from corral import paths
from corral.agent.hub_policy import Budgets
from corral.agent.lock_file import LockedFile
from corral.catalog.image_reference import ImageReference
from corral.catalog.intent import Model
from corral.cli.main import main
from corral.hub import registry
from corral.hub.registry import digest_at_registry
from corral.hub.resolve import resolve
from corral.hub.resolved import Resolved
from tests.support.hostile import Result, assert_refused, run_limited
from tests.support.hostile_hub import (
    COMMIT,
    IMAGE,
    MIB,
    PATH,
    SHA256,
    HostileHub,
    bomb,
    digest_of,
    endless,
    entry,
    http,
    info,
    lfs,
    manifest,
    metadata,
    redirect,
)

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"
PORTAL = b"<html><body>Please sign in to the network \x1b[2J\xe2\x80\xae</body></html>"
PASSWORD = "hunter2"
HF_TOKEN = "hf_secret"
FETCH = "python:3.13-slim@sha256:" + "2" * 64
DEEP = 100_000
LONG = "9" * 5000
NO_LFS = http([entry(lfs=None)])
ESCAPES = "\x1b]0;owned\x07\u202e\x00\n"

HEAD_OF_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"10000\r\n" + b" " * 65536 + b"\r\n"

ANY_JSON = {
    "a portal's page": http(PORTAL, Content_Type="text/html"),
    "a portal's page as JSON": http(PORTAL),
    "nothing": http(b""),
    "half": http(b'{"sha": "', Content_Length="9"),
    "null": http(None),
    "a string": http("ok"),
    "a number": http(5),
    "NaN": http(b"NaN"),
    "not UTF-8": http(b'{"sha": "\xff"}'),
    "UTF-16": http('{"id": 1}'.encode("utf-16")),
    "brackets without end": http(b"[" * DEEP),
    "objects in objects": http(b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "an integer with 5000 digits": http(f'{{"size": {LONG}}}'.encode()),
    "a surrogate alone": http(b'{"sha": "\\ud800", "path": "\\udfff"}'),
    "status 204": http(b"", "204 No Content"),
    "status 206": http(b"{}", "206 Partial Content"),
    "status 299": http(b"{}", "299 Fine"),
    "status 304": http(b"", "304 Not Modified"),
    "status 999": http(b"", "999 Devil"),
    "400 with a list": http([1], "400 Bad Request"),
    "401 with a list": http([1], "401 Unauthorized"),
    "403 with errors that are none": http({"errors": [1]}, "403 Forbidden", X_Error_Message="\x85no"),
    "404 with an error in pieces": http({"error": {"a": [1]}}, "404 Not Found"),
    "429 for 5000 digits": http(b"", "429 Slow", Retry_After=LONG, Ratelimit=f'"api";r=0;t={LONG}'),
    "500 with a portal's page": http(PORTAL, "500 Oops", Content_Type="text/html"),
    "a gated repository with escapes": http(
        b"", "403 Forbidden", X_Error_Code="GatedRepo", X_Error_Message=ESCAPES.encode()[:9] + b"\xe2\x80\xae"
    ),
    "gzip": http(bomb(31, 1), Content_Encoding="gzip"),
    "deflate": http(bomb(15, 1), Content_Encoding="deflate"),
    "br": http(b"{}", Content_Encoding="br"),
    "zstd": http(b"{}", Content_Encoding="zstd"),
    "gzip twice": http(b"{}", Content_Encoding="gzip, gzip"),
    "an unknown encoding": http(b"{}", Content_Encoding="\x85\xe2\x80\xae"),
    "a length that is too long": http(b"{}", Content_Length="500"),
    "a length of 5000 digits": http(b"{}", Content_Length=LONG),
    "a negative length": http(b"{}", Content_Length="-1"),
    "a length in words": http(b"{}", Content_Length="two"),
    "more than is read, by its length": http(b" " * 9, Content_Length=str(1 << 40)),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "HTTP of the future": b"HTTP/7.5 200 OK\r\n\r\n{}",
    "a status in words": b"HTTP/1.1 fine \x1b[2J\r\n\r\n{}",
    "a field without a colon": b"HTTP/1.1 200 OK\r\nContent-Length\r\n\r\n",
    "chunks of a negative size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
    "chunks in words": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a connection that ends": b"",
    "a redirect to itself": lambda request: redirect(request.path),
    "a redirect to no address": redirect("http://[::1/x"),
    "a redirect to a port that is none": redirect("http://127.0.0.1:99999/"),
    "a redirect to a port in words": redirect("http://127.0.0.1:http/"),
    "a redirect to a file": redirect("file:///etc/passwd"),
    "a redirect to another origin": redirect("{foreign}/x"),
    "a redirect with a password": redirect("http://user:{password}@127.0.0.1:1/"),
    "a redirect with escapes": redirect(b"http://\x1b[2J\xe2\x80\xae\x85/"),
    "a redirect to nowhere": redirect(""),
}

INFO = {
    "a list": http([info()]),
    "no id": http(info(id=...)),
    "an id that is a number": http(info(id=5)),
    "no commit": http(info(sha=...)),
    "a commit that is null": http(info(sha=None)),
    "a commit that is a number": http(info(sha=int("4" * 40))),
    "a commit in capitals": http(info(sha=COMMIT.upper())),
    "a commit of 39 digits": http(info(sha=COMMIT[:39])),
    "a commit and a line": http(info(sha=COMMIT + "\n")),
    "a commit of other digits": http(info(sha="٣" * 40)),
    "a branch as the commit": http(info(sha="main")),
    "tags that are a text": http(info(tags="gguf")),
    "tags that are an object": http(info(tags={"a": 1})),
    "tags that are null": http(info(tags=[None])),
    "a card that is a list": http(info(cardData=[1])),
    "a card that is a text": http(info(cardData="license: mit")),
    "a licence that is a number": http(info(cardData={"license": 5})),
    "a licence that is an object": http(info(cardData={"license": {"name": "mit"}})),
    "a licence with escapes": http(info(cardData={"license": f"mit{ESCAPES}"})),
    "a licence by tag with escapes": http(info(cardData=..., tags=[f"license:{ESCAPES}"])),
    "a licence of 5000 letters": http(info(cardData={"license": "m" * 5000})),
}

PATHS = {
    "outside": f"../../../../tmp/{PATH}",
    "outside from within": f"a/../../{PATH}",
    "absolute": f"/tmp/{PATH}",
    "a NUL": f"a\0/{PATH}",
    "a line": f"a\n/{PATH}",
    "an escape": f"\x1b[2J/{PATH}",
    "a control character of eight bits": f"\x9b2J/{PATH}",
    "right to left": f"\u202e/{PATH}",
    "an isolate": f"\u2066{PATH}",
    "a width of zero": f"\u200b{PATH}",
    "a separator of lines": f"a\u2028/{PATH}",
    "an empty part": f"a//{PATH}",
    "a dot": f"./{PATH}",
    "dots inside": f"a/./{PATH}",
    "backslashes": f"..\\..\\{PATH}",
    "5000 letters": f"{'a' * 5000}/{PATH}",
    "a part of 300 letters": f"{'a' * 300}-{PATH}",
    "a part of 300 bytes": f"{'ü' * 150}-{PATH}",
    "no text": 5,
    "null": None,
    "missing": ...,
}

TREE = {
    "an object": http({"0": entry()}),
    "a list of null": http([None]),
    "a list of lists": http([[]]),
    "a list of texts": http([PATH]),
    "no type": http([entry(type=...)]),
    "an unknown type": http([entry(type="submodule")]),
    **{f"a path with {what}": http([entry(path=path)]) for what, path in PATHS.items()},
    "the same path twice": http([entry(), entry(size=6)]),
    "a size below 0": http([entry(size=-1)]),
    "a size that is 0": http(lfs(size=0)),
    "a size that is a fraction": http([entry(size=5.5)]),
    "a size that is a float": http([entry(size=5.0)]),
    "a size that is true": http([entry(size=True)]),
    "a size that is a text": http([entry(size="5")]),
    "a size that is null": http([entry(size=None)]),
    "a size of 2**63": http([entry(size=1 << 63)]),
    "a size of 5000 digits": http(f'[{{"type": "file", "path": "a.gguf", "oid": "a", "size": {LONG}}}]'.encode()),
    "a size that is infinite": http(b'[{"type": "file", "path": "a.gguf", "oid": "a", "size": 1e999}]'),
    "a size that is NaN": http(b'[{"type": "file", "path": "a.gguf", "oid": "a", "size": NaN}]'),
    "LFS data that are a text": http([entry(lfs=SHA256)]),
    "LFS data that are a list": http([entry(lfs=[SHA256])]),
    "LFS data without a hash": http(lfs(oid=...)),
    "LFS data without a size": http(lfs(size=...)),
    "a hash in capitals": http(lfs(oid="A" * 64)),
    "a hash of 63 digits": http(lfs(oid="5" * 63)),
    "a hash that is a number": http(lfs(oid=int(SHA256))),
    "a hash and a line": http(lfs(oid=SHA256 + "\n")),
    "an LFS size below 0": http(lfs(size=-5)),
    "an LFS size that is a float": http(lfs(size=5.0)),
    "an LFS size that is true": http(lfs(size=True)),
    "an LFS size of 2**63": http(lfs(size=1 << 63)),
    "60,000 models": http([entry(path=f"{number}-{PATH}", lfs=...) for number in range(60_000)]),
    "a next page at another origin": http([], Link='<{foreign}/tree/2>; rel="next"'),
    "a next page at another port": http([], Link='<http://127.0.0.1:1/tree/2>; rel="next"'),
    "a next page over plain HTTP": http([], Link='<http://hub.example/tree/2>; rel="next"'),
    "a next page in a file": http([], Link='<file:///tree/2>; rel="next"'),
    "a next page at no address": http([], Link='<http://[::1/tree/2>; rel="next"'),
    "a next page with a password": http([], Link='<http://user:{password}@{hub}/tree/2>; rel="next"'),
    "a next page with escapes": http([], Link=b'<http://\x85\xe2\x80\xae/tree/2>; rel="next"'),
    "a next page that is this one": lambda request: http([], Link=f'<{request.path}>; rel="next"'),
}

HEAD = {
    "no hash": metadata(X_Linked_Etag=""),
    "a hash in capitals": metadata(X_Linked_Etag='"' + "A" * 64 + '"'),
    "a hash of 63 digits": metadata(X_Linked_Etag='"' + "5" * 63 + '"'),
    "a hash with escapes": metadata(X_Linked_Etag=b"\x85\xe2\x80\xae"),
    "a size below 0": metadata(X_Linked_Size="-1"),
    "a size of 2**51": metadata(X_Linked_Size=str(1 << 51)),
    "a size in words": metadata(X_Linked_Size="five"),
    "a size in other digits": metadata(X_Linked_Size="²".encode()),
    "a size of 5000 digits": metadata(X_Linked_Size=LONG),
    "a redirect to itself": lambda request: redirect(request.path),
    "a redirect to another origin, without metadata": redirect("{foreign}/x"),
    "a redirect to no address": redirect("http://[::1/x"),
    "a portal's page": http(PORTAL, Content_Type="text/html"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "status 500": http(b"", "500 Oops"),
}

HARMLESS_INFO = {
    **{
        f"{field} that is {value!r}": http(info(**{field: value}))
        for field in (
            "siblings",
            "lastModified",
            "createdAt",
            "evalResults",
            "safetensors",
            "transformersInfo",
            "gated",
        )
        for value in (None, 5, "yesterday", [None], {"a": 1})
    },
    "a mapping of providers that is none": http(info(inferenceProviderMapping="x")),
    "no tags": http(info(tags=None)),
    "tags with escapes": http(info(tags=[ESCAPES])),
    "no card but a tag": http(info(cardData=None)),
    "several licences in the card, one in the tags": http(info(cardData={"license": ["mit", "apache-2.0"]})),
    "a card with escapes": http(info(cardData={"license": "mit", "language": ESCAPES})),
    "a commit twice": http(json.dumps(info()).replace('"sha"', '"sha": "main", "sha"').encode()),
    "a warning for the terminal": http(info(), X_HF_Warning=b"a; \x85\xe2\x80\xae"),
    "a cookie": http(info(), Set_Cookie="token=hf_secret; Path=/"),
    "chunks": b"".join(
        [HEAD_OF_CHUNKS, b"%x\r\n" % len(json.dumps(info())), json.dumps(info()).encode(), b"\r\n0\r\n\r\n"]
    ),
    "a body up to the end": http(info(), Content_Length=""),
    "a redirect within the origin": lambda request: http(info()) if request.query else redirect(f"{request.path}?a=1"),
}

HARMLESS_TREE = {
    "other files with escapes": [entry(), entry(path=f"{ESCAPES}/README.md"), entry(path="../../README.md")],
    "folders": [{"type": "directory", "path": "../x.gguf", "oid": "0"}, entry()],
    "commits that are none": [entry(lastCommit={"date": "yesterday"}, securityFileStatus=5, xetHash=[5])],
}

CHALLENGE = 'Bearer realm="http://{hub}/token",service="here"'
MUST = http(b"", "401 Unauthorized", WWW_Authenticate=CHALLENGE)

TOKEN = {
    "a list": http(["token"]),
    "none": http({}),
    "a number": http({"token": 5}),
    "an object": http({"token": {"token": "a"}}),
    "two lines": http({"token": "a\r\nX: y"}),
    "escapes": http({"token": "\x1b[2J\u202e"}),
    "a megabyte": http({"token": "a" * MIB}),
    "status 403": http(PORTAL, "403 Forbidden"),
}

MANIFEST = {
    "a portal's page": http(PORTAL, Content_Type="text/html"),
    "a type with escapes": manifest(Content_Type=b"text/\x85\xe2\x80\xae"),
    "a digest with escapes": manifest(Docker_Content_Digest=b"sha256:\x85\xe2\x80\xae"),
    "another digest": manifest(Docker_Content_Digest="sha256:" + "0" * 64),
    "gzip": manifest(bomb(31, 1), Content_Encoding="gzip"),
    "more than a manifest": manifest(b" " * (5 * MIB)),
    "half of it": manifest(Content_Length="5000"),
    "status 204": http(b"", "204 No Content"),
    "status 304": http(b"", "304 Not Modified"),
    "status 429": http(PORTAL, "429 Slow", Retry_After=LONG),
    "status 500": http(PORTAL, "500 \x1b[2J"),
    "no HTTP": b"\x00\x01\x02",
    "a redirect to itself": lambda request: redirect(request.path),
    "a redirect to a file": redirect("file:///etc/passwd"),
    "a redirect to no address": redirect("http://[::1/x"),
    "a redirect away from this machine": redirect("http://registry.example/x"),
    "a challenge at no address": http(b"", "401 No", WWW_Authenticate='Bearer realm="http://[::1/x"'),
    "a challenge at a port that is none": http(
        b"", "401 No", WWW_Authenticate='Bearer realm="http://127.0.0.1:99999/"'
    ),
    "a challenge in a file": http(b"", "401 No", WWW_Authenticate='Bearer realm="file:///etc/passwd"'),
    "a challenge over plain HTTP": http(b"", "401 No", WWW_Authenticate='Bearer realm="http://auth.example/"'),
    "a challenge with escapes": http(b"", "401 No", WWW_Authenticate=b'Bearer realm="http://\x85\xe2\x80\xae/"'),
    "a challenge with a password": http(
        b"", "401 No", WWW_Authenticate='Bearer realm="http://user:{password}@{hub}/token"'
    ),
    "a challenge again and again": MUST,
    "a challenge of 60,000 quotes": http(b"", "401 No", WWW_Authenticate='Bearer realm="' * 4500),
}

NESTS = b"[[" * 20 + b"]]" * 20 + b","

WITHOUT_END = {
    "info: gzip of a gigabyte": lambda: http(bomb(31), Content_Encoding="gzip"),
    "tree: deflate of a gigabyte": lambda: http(bomb(15), Content_Encoding="deflate"),
    "token: gzip of a gigabyte": lambda: http(bomb(31), Content_Encoding="gzip"),
    "manifest: gzip of a gigabyte": lambda: manifest(bomb(31), Content_Encoding="gzip"),
    "tree: chunks": lambda: endless(HEAD_OF_CHUNKS, CHUNK),
    "info: an extension of a chunk": lambda: endless(HEAD_OF_CHUNKS + b"5;", b"x" * 65536),
    "info: a trailer": lambda: endless(HEAD_OF_CHUNKS + b"0\r\n", b"X-More: 1\r\n" * 5000),
    "tree: a body": lambda: endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536),
    "manifest: a body": lambda: endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536),
    "info: the body of an error": lambda: endless(b"HTTP/1.1 404 No\r\n\r\n", b" " * 65536),
    "info: a field": lambda: endless(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536),
    "head: fields": lambda: endless(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n" * 5000),
    "token: a status line": lambda: endless(b"HTTP/1.1 200 ", b"x" * 65536),
    "info: interim responses": lambda: endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "tree: 7 MiB of nested lists": lambda: http(b"[" + NESTS * (7 * MIB // len(NESTS)) + b"1]"),
    "info: 7 MiB of nested lists": lambda: http(b'{"x": [' + NESTS * (7 * MIB // len(NESTS)) + b"1]}"),
    "tree: 7 MiB of null": lambda: http(b"[" + b"null," * (7 * MIB // 5) + b"null]"),
    "tree: 7 MiB of one name": lambda: http([entry(path="x" * 7 * MIB)]),
    "tree: 7 MiB of tiny models": lambda: http([TINY | {"path": f"{number}.gguf"} for number in range(49_000)]),
    "tree: pages": lambda: next_page,
    "manifest: a challenge of letters": lambda: http(b"", "401 No", WWW_Authenticate="Bearer " + "a" * 60_000),
    "tree: links of brackets": lambda: http([], Link="<>;" * 20_000),
}
TINY = {"type": "file", "size": 5, "oid": ""}


def next_page(request):
    """The next page of the next page, and so on, each with another model."""
    number = len(request.query.get("n", []))
    link = f'<{request.path}?{"n=1&" * (number + 1)}>; rel="next"'
    return http([entry(path=f"{number}-{PATH}")], Link=link)


MODEL = "source: {repo: org/model-GGUF, quant: Q4_K_M}\ncard: laptop\ncontext: 512\nmodalities: [text]\n"
READ = Model.model_validate(yaml.safe_load(MODEL))
SOUND = Resolved("org/model-GGUF", COMMIT, "mit", (LockedFile(PATH, "model", 5, SHA256),))
IN_HEALTH = {
    "info": http(info()),
    "tree": http([entry()]),
    "head": metadata(),
    "manifest": MUST,
    "token": http({"token": "let-me-pull"}),
}


@pytest.fixture(scope="module")
def hub():
    with HostileHub() as running:
        yield running


@pytest.fixture(scope="module")
def foreign():
    """Another origin."""
    with HostileHub() as running:
        yield running


@pytest.fixture
def catalog(tmp_path, hub, foreign, monkeypatch):
    """Give the hub its replies, and make a catalog that needs the hub, or else the registry, for its lock."""

    def made(registry=False, endpoint=None, **replies):
        for server in (hub, foreign):
            server.log.clear()
            server.replies = {kind: placed(reply, hub, foreign) for kind, reply in {**IN_HEALTH, **replies}.items()}
        monkeypatch.setenv("HF_ENDPOINT", endpoint or hub.endpoint)
        monkeypatch.setenv("HF_TOKEN", HF_TOKEN)
        if registry:
            shutil.copytree(DEMO, tmp_path, dirs_exist_ok=True)
            (tmp_path / "images.yaml").write_text(f"llama-swap: {hub.address}/{IMAGE}\nfetch: {FETCH}\n")
        else:
            shutil.copytree(DEMO / "cards", tmp_path / "cards")
            (tmp_path / "models").mkdir()
            (tmp_path / "models" / "m.yaml").write_text(MODEL)
        return tmp_path

    return made


@pytest.fixture
def refused(catalog, hub, foreign, capsys):
    """`corral lock` ends as it must, and has printed, sent and written nothing that it must not."""

    def check(registry=False, limited=False, endpoint=None, **replies):
        directory = catalog(registry, endpoint, **replies)
        before = {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}
        words = ["lock", "--catalog", str(directory)]
        if limited:
            result = run_limited([sys.executable, "-m", "corral.cli.main", *words], memory_mib=1024, cpu_seconds=20)
        else:
            result = Result(main(words), *capsys.readouterr())

        assert_refused(result)
        assert result.code in (2, 3), result.stderr
        assert "\n  → " in result.stderr, result.stderr
        for secret in (HF_TOKEN, PASSWORD):
            assert secret not in result.stdout + result.stderr
        assert (foreign.tokens <= {None}) if registry else (foreign.log == [])
        assert [entry for entry in hub.log if entry.method == "GET" and "/resolve/" in entry.path] == []
        assert {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()} == before
        return result

    return check


def placed(reply, hub, foreign):
    if not isinstance(reply, bytes):
        return reply
    for name, value in {"hub": hub.address, "foreign": foreign.endpoint, "password": PASSWORD}.items():
        reply = reply.replace(f"{{{name}}}".encode(), value.encode())
    return reply


def test_in_health_hub_and_registry_are_read(catalog, hub):
    """Else a refusal below could have another reason."""
    catalog(tree=NO_LFS)
    challenge = hub.replies["manifest"]
    hub.replies["manifest"] = lambda request: manifest() if "authorization" in request.headers else challenge

    assert resolve(READ, Path()) == SOUND
    assert digest_at_registry(ImageReference.parse(f"{hub.address}/{IMAGE}")) == digest_of()
    assert [entry.headers.get("authorization") for entry in hub.log if entry.path.startswith(("/v2/", "/token"))] == [
        None,
        None,
        "Bearer let-me-pull",
    ]


@pytest.mark.parametrize("reply", HARMLESS_INFO.values(), ids=HARMLESS_INFO)
def test_what_is_not_used_of_a_report_does_not_matter(catalog, hub, reply):
    catalog(info=reply)

    assert resolve(READ, Path()) == SOUND
    assert [entry for entry in hub.log if "cookie" in entry.headers] == []


@pytest.mark.parametrize("entries", HARMLESS_TREE.values(), ids=HARMLESS_TREE)
def test_what_is_not_used_of_a_listing_does_not_matter(catalog, entries):
    catalog(tree=http(entries))

    assert resolve(READ, Path()) == SOUND


@pytest.mark.parametrize("location", ["{foreign}/x", "https://huggingface.co/x"])
def test_the_metadata_of_a_redirect_are_read_and_it_is_not_followed(catalog, foreign, location):
    """The library would follow one to its own hub from any other."""
    catalog(tree=NO_LFS, head=redirect(location, X_Linked_Etag=SHA256, X_Linked_Size="5"))

    assert resolve(READ, Path()) == SOUND
    assert foreign.log == []


def test_the_hub_gets_the_token(catalog, hub):
    catalog()
    resolve(READ, Path())

    assert hub.tokens == {f"Bearer {HF_TOKEN}"}


@pytest.mark.parametrize("reply", (ANY_JSON | INFO).values(), ids=ANY_JSON | INFO)
def test_what_is_no_report_of_a_repository_is_refused(refused, reply):
    refused(info=reply)


@pytest.mark.parametrize("reply", (ANY_JSON | TREE).values(), ids=ANY_JSON | TREE)
def test_what_is_no_listing_of_files_is_refused(refused, reply):
    refused(tree=reply)


@pytest.mark.parametrize("reply", HEAD.values(), ids=HEAD)
def test_what_is_no_metadata_of_a_file_is_refused(refused, reply):
    refused(tree=NO_LFS, head=reply)


@pytest.mark.parametrize("reply", (ANY_JSON | TOKEN).values(), ids=ANY_JSON | TOKEN)
def test_what_is_no_token_of_a_registry_is_refused(refused, reply):
    refused(registry=True, token=reply)


@pytest.mark.parametrize("reply", MANIFEST.values(), ids=MANIFEST)
def test_what_is_no_manifest_is_refused(refused, reply):
    refused(registry=True, manifest=reply)


@pytest.mark.parametrize("kind", ["info", "tree", "head", "manifest", "token"])
@pytest.mark.parametrize(
    "first", [b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", HEAD_OF_CHUNKS + b"100\r\n", b"HTTP"]
)
def test_what_arrives_byte_by_byte_is_given_up(refused, monkeypatch, first, kind):
    """In two seconds instead of some minutes: the rule is the same."""
    brief = Budgets(listing_seconds=1)
    monkeypatch.setattr(Budgets, "from_environment", lambda _: brief)
    monkeypatch.setattr(registry, "_BUDGETS", brief)
    replies = {"tree": NO_LFS} if kind == "head" else {}

    refused(registry=kind in ("manifest", "token"), **replies, **{kind: one_by_one(first)})


@pytest.mark.parametrize("kind", ["info", "tree", "manifest", "token"])
def test_a_body_that_arrives_below_the_least_rate_is_given_up(refused, monkeypatch, kind):
    brief = Budgets(window_seconds=0.5)
    monkeypatch.setattr(Budgets, "from_environment", lambda _: brief)
    monkeypatch.setattr(registry, "_BUDGETS", brief)

    result = refused(registry=kind in ("manifest", "token"), **{kind: one_by_one(HEAD_OF_CHUNKS + b"fff\r\n")})

    assert "does not send at least 64 KiB/s over 0.5 s" in result.stderr


def one_by_one(first):
    yield first
    while True:
        time.sleep(0.02)
        yield b" "


@pytest.mark.parametrize("what", WITHOUT_END)
def test_what_has_no_end_is_refused_within_a_gigabyte_and_twenty_seconds(refused, what):
    kind = what.partition(":")[0]
    replies = {"tree": NO_LFS} if kind == "head" else {}
    refused(registry=kind in ("manifest", "token"), limited=True, **replies, **{kind: WITHOUT_END[what]()})


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://hub.example:{port}",
        "http://hub.example:{port}/\x1b[2J\u202e",
        "http://user:{password}@127.0.0.1:{port}",
        "http://user:{password}@[::1:{port}",
        "user:{password}@127.0.0.1:{port}",
        "http://127.0.0.1:{port}/?token={password}",
        "http://127.0.0.1:99999/{password}@",
        "ftp://127.0.0.1:{port}",
    ],
)
def test_an_address_that_may_not_have_the_token_gets_no_request(refused, hub, monkeypatch, endpoint):
    port = hub.address.partition(":")[2]
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]
    )

    refused(endpoint=endpoint.format(port=port, password=PASSWORD))

    assert hub.log == []
