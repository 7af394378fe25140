"""The grammar of an image's name, and its registry."""

from __future__ import annotations

import pytest

from corral.catalog.image_reference import ImageReference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "registry", "repository"),
    [
        ("python:3.13-slim", "registry-1.docker.io", "library/python"),
        ("docker.io/python:3", "registry-1.docker.io", "library/python"),
        ("docker.io/library/python:3", "registry-1.docker.io", "library/python"),
        ("nvidia/cuda:12", "registry-1.docker.io", "nvidia/cuda"),
        ("ghcr.io/mostlygeek/llama-swap:v252-cuda-b10775-non-root", "ghcr.io", "mostlygeek/llama-swap"),
        ("localhost/a:1", "localhost", "a"),
        ("localhost:5000/a/b/c:1", "localhost:5000", "a/b/c"),
        ("registry:5000/a__b--c.d:1", "registry:5000", "a__b--c.d"),
    ],
)
def test_a_name_has_a_registry_and_a_repository(text, registry, repository):
    for reference in (ImageReference.parse(text), ImageReference.parse(f"{text}@{DIGEST}")):
        assert (reference.registry, reference.repository) == (registry, repository)
        assert reference.tagged == text
        assert reference.at(DIGEST) == f"{text}@{DIGEST}"


@pytest.mark.parametrize("name", ["localhost/a:1", "localhost:5000/a:1", "127.0.0.1:5000/a:1"])
def test_only_loopback_is_used_without_tls(name):
    assert ImageReference.parse(name).is_on_loopback
    assert not ImageReference.parse(f"x.{name}").is_on_loopback
    assert not ImageReference.parse("ghcr.io/localhost:1").is_on_loopback


@pytest.mark.parametrize("text", ["python", "ghcr.io/a/b", "localhost:5000/a", f"python@{DIGEST}"])
def test_no_tag_is_refused_with_the_remedy(text):
    with pytest.raises(ValueError, match=r"has no tag: write the version that you want, e\.g\. .*:v1\."):
        ImageReference.parse(text)


@pytest.mark.parametrize("text", ["python:latest", f"ghcr.io/a/b:latest@{DIGEST}"])
def test_latest_is_refused_with_the_remedy(text):
    with pytest.raises(ValueError, match="names no version: write the one that you want"):
        ImageReference.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":v1",
        "Python:3",
        "ghcr.io/Org/a:1",
        "a b:1",
        "https://ghcr.io/a:1",
        "a:1@sha256:abc",
        f"a:1@{DIGEST.upper()}",
        "a:1@md5:" + "a" * 32,
        "a:-1",
        "a:" + "x" * 129,
        "a//b:1",
        "a/:1",
        "a:1\n",
        "${IMAGE}:1",
    ],
)
def test_what_is_no_image_is_refused(text):
    with pytest.raises(ValueError, match="is not an image: it must be like"):
        ImageReference.parse(text)


@pytest.mark.parametrize("digest", ["", f"@{DIGEST}"])
@pytest.mark.parametrize("login", ["user:hunter2", "https://user:hunter2", "user:@/hunter2"])
def test_a_password_is_refused_and_not_repeated(login, digest):
    with pytest.raises(ValueError, match="is not an image: it must be like") as caught:
        ImageReference.parse(f"{login}@ghcr.io/a:1{digest}")

    assert str(caught.value).startswith("'…@ghcr.io/a:1")
    assert "hunter2" not in str(caught.value)
