"""The digest of a tag at a registry on loopback."""

from __future__ import annotations

import socket

import pytest

from corral.catalog.image_reference import ImageReference
from corral.errors import CannotRun, Refused
from corral.hub.registry import digest_at_registry, labels_at_registry
from tests.support.registry import INDEX, LIST, registry_on_loopback

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@pytest.fixture
def registry():
    with registry_on_loopback() as running:
        yield running


def image(registry, name="org/server", tag="v1"):
    return ImageReference.parse(f"{registry.address}/{name}:{tag}")


@pytest.mark.parametrize("kind", [INDEX, LIST, MANIFEST])
def test_an_index_a_list_and_a_manifest_have_their_digest(registry, kind):
    digest = registry.put("org/server", "v1", kind=kind)

    assert digest_at_registry(image(registry)) == digest


def test_a_registry_that_requires_a_token_first_gets_one_for_this_repository(registry):
    registry.needs_token = True
    digest = registry.put("org/server", "v1")

    assert digest_at_registry(image(registry)) == digest
    assert [path.partition("?")[0] for path in registry.requests] == [
        "/v2/org/server/manifests/v1",
        "/token",
        "/v2/org/server/manifests/v1",
    ]


def test_a_token_by_its_other_name_is_taken(registry):
    registry.needs_token = True
    registry.faults["token"] = {"access_token": "let-me-pull-org/server"}
    digest = registry.put("org/server", "v1")

    assert digest_at_registry(image(registry)) == digest


def test_a_registry_that_states_no_digest_is_taken_at_its_bytes(registry):
    registry.faults["no_digest"] = True
    digest = registry.put("org/server", "v1")

    assert digest_at_registry(image(registry)) == digest


@pytest.mark.parametrize("stated", ["sha256:" + "0" * 64, "sha512:" + "0" * 128, "nonsense"])
def test_a_digest_that_is_not_of_the_bytes_is_refused(registry, stated):
    registry.faults["digest"] = stated
    registry.put("org/server", "v1")

    with pytest.raises(CannotRun, match=r"has the digest .*, and sends sha256:"):
        digest_at_registry(image(registry))


def test_a_tag_that_is_not_there_is_named(registry):
    with pytest.raises(Refused, match=r"has no image org/server:v1\.") as caught:
        digest_at_registry(image(registry))

    assert "images.yaml" in caught.value.next_step


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_explained_as_private_or_absent_with_the_digest_as_the_remedy(registry, status):
    registry.faults["status"] = status

    with pytest.raises(Refused, match=rf"refuses org/server:v1 \(HTTP {status}\).*private") as caught:
        digest_at_registry(image(registry))

    assert "@sha256:…" in caught.value.next_step


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_a_refused_image(registry, status):
    registry.needs_token = True
    registry.faults["token_status"] = status

    with pytest.raises(Refused, match=rf"refuses org/server:v1 \(HTTP {status}\)"):
        digest_at_registry(image(registry))


@pytest.mark.parametrize("token", [{}, [], {"token": 1}, {"token": "a\r\nb: c"}], ids=str)
def test_an_answer_without_a_token_is_none(registry, token):
    registry.needs_token = True
    registry.faults["token"] = token

    with pytest.raises(CannotRun, match="answers without a token"):
        digest_at_registry(image(registry))


@pytest.mark.parametrize("challenge", ['Basic realm="x"', "Bearer", 'Bearer realm="/token"'])
def test_a_registry_that_requires_a_password_gets_no_second_request(registry, challenge):
    registry.needs_token = True
    registry.faults["challenge"] = challenge

    with pytest.raises(Refused, match="has no password for it"):
        digest_at_registry(image(registry))

    assert len(registry.requests) == 1


@pytest.mark.parametrize(
    ("status", "message"), [(429, "limits the rate"), (500, "answers HTTP 500"), (503, "HTTP 503")]
)
def test_trouble_at_the_registry_is_no_fault_of_the_catalog(registry, status, message):
    registry.faults["status"] = status

    with pytest.raises(CannotRun, match=message):
        digest_at_registry(image(registry))


@pytest.mark.parametrize("kind", ["text/html", "application/vnd.docker.distribution.manifest.v1+prettyjws"])
def test_what_is_no_manifest_has_no_digest(registry, kind):
    registry.put("org/server", "v1")
    registry.faults["type"] = kind

    with pytest.raises(Refused, match="no manifest of an image"):
        digest_at_registry(image(registry))


def test_more_than_a_manifest_is_not_read(registry):
    registry.manifests["org/server:v1"] = (INDEX, b" " * (5 << 20))

    with pytest.raises(CannotRun, match="more than 4 MiB"):
        digest_at_registry(image(registry))


def test_a_registry_that_is_away_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotRun, match=f"The registry {address} does not answer"):
            digest_at_registry(ImageReference.parse(f"{address}/a:v1"))


def test_a_registry_that_is_not_on_this_machine_is_asked_over_tls(monkeypatch):
    """A name that resolves to loopback, where nothing speaks TLS: the handshake fails, without a plain request."""
    monkeypatch.setattr(socket, "getaddrinfo", _to_loopback)
    with registry_on_loopback() as registry:
        registry.put("org/server", "v1")
        port = registry.address.partition(":")[2]
        with pytest.raises(CannotRun, match="does not answer"):
            digest_at_registry(ImageReference.parse(f"registry.example:{port}/org/server:v1"))

        assert registry.requests == []


def _to_loopback(_host, port, *_args, **_options):
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]


# -- the builds of llama.cpp beside a missing one -------------------------------------------------------------


def test_a_missing_build_is_refused_with_the_nearest_ones_below_and_above(registry):
    for build in (9100, 10700, 10770, 10790, 11549):
        registry.put("ggml-org/llama.cpp", f"server-cuda-b{build}")
        registry.put("ggml-org/llama.cpp", f"server-b{build + 3}")
    registry.put("ggml-org/llama.cpp", "server-cuda-b10776-debug")

    with pytest.raises(
        Refused, match=r"the nearest builds there are server-cuda-b10770 and server-cuda-b10790"
    ) as caught:
        digest_at_registry(image(registry, "ggml-org/llama.cpp", "server-cuda-b10775"))

    assert caught.value.next_step == f"Write {registry.address}/ggml-org/llama.cpp:server-cuda-b10770 into images.yaml"


def test_the_nearest_build_may_be_on_one_side_alone(registry):
    registry.put("org/server", "v252-cuda-b10775-non-root")

    with pytest.raises(Refused, match=r"the nearest builds there are v252-cuda-b10775-non-root\.") as caught:
        digest_at_registry(image(registry, "org/server", "v252-cuda-b10780-non-root"))

    assert caught.value.next_step.endswith("v252-cuda-b10775-non-root into images.yaml")


@pytest.mark.parametrize(
    "faults", [{"tags_status": 403}, {"tags": b"{}"}, {"tags": b'{"tags": null}'}, {"tags": b'{"tags": ["b1", 7]}'}]
)
def test_where_no_tags_are_listed_the_missing_build_is_named_alone(registry, faults):
    registry.put("org/server", "server-cuda-b10770")
    registry.faults |= faults

    with pytest.raises(Refused, match=r"has no image org/server:server-cuda-b10775\."):
        digest_at_registry(image(registry, "org/server", "server-cuda-b10775"))


# -- labels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("platforms", [["arm64", "amd64"], None])
@pytest.mark.parametrize("needs_token", [True, False])
def test_the_labels_of_an_image_are_those_of_its_own_platform(registry, platforms, needs_token):
    registry.needs_token = needs_token
    labels = {"org.opencontainers.image.version": "b11063"}
    digest = registry.put_labelled("org/server", "v1", labels, platforms=platforms)

    assert labels_at_registry(at_digest(registry, digest)) == labels


def at_digest(registry, digest, name="org/server"):
    return ImageReference.parse(f"{registry.address}/{name}:v1@{digest}")


def test_an_image_without_labels_has_none(registry):
    assert labels_at_registry(at_digest(registry, registry.put_labelled("org/server", "v1", None))) == {}


def test_a_configuration_that_is_not_of_its_digest_is_refused(registry):
    digest = registry.put_labelled("org/server", "v1", {})
    registry.faults["blob"] = b'{"config": {"Labels": {"org.opencontainers.image.version": "b1"}}}'

    with pytest.raises(CannotRun, match=r"sends sha256:\w+ for sha256:"):
        labels_at_registry(at_digest(registry, digest))


def test_an_image_for_other_platforms_alone_is_refused(registry):
    digest = registry.put_labelled("org/server", "v1", {}, platforms=["arm64"])

    with pytest.raises(Refused, match=r"org/server:v1 has no part for linux/amd64\."):
        labels_at_registry(at_digest(registry, digest))
