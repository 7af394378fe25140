"""The generated images are real PNGs of the colour they claim."""

from __future__ import annotations

import struct

import pytest

from corral.smoke import images
from tests.support.stub_endpoint import colour_of


@pytest.mark.parametrize("colour", sorted(images.RGB))
def test_an_image_decodes_to_its_colour(colour):
    assert colour_of(images.solid_png(colour)) == colour


def test_an_image_has_the_size_that_was_asked_for():
    assert struct.unpack_from(">II", images.solid_png("red", 28), 16) == (28, 28)


def test_an_unknown_colour_is_an_error():
    with pytest.raises(KeyError):
        images.solid_png("mauve")


def test_an_image_travels_inside_the_request():
    assert images.data_url(b"\x89PNG") == "data:image/png;base64,iVBORw=="
