"""One stack and one proxy for all tests of a run: LiteLLM needs ten seconds to start."""

from __future__ import annotations

import pytest

from tests.support.gateway import caller, counted_stack, proxy, rendered


@pytest.fixture(scope="session")
def stack(tmp_path_factory):
    with counted_stack(tmp_path_factory.mktemp("gateway-stack")) as found:
        yield found


@pytest.fixture(scope="session")
def litellm(stack, tmp_path_factory):
    """LiteLLM with what corral renders for the stack's catalog, and one model more: `caller`."""
    with caller() as entry:
        config = rendered(stack)
        config["model_list"].append(entry)
        with proxy(tmp_path_factory.mktemp("litellm"), config) as found:
            yield found
