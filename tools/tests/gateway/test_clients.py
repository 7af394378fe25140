"""The snippets of docs/clients.md, each run as it stands there, with LiteLLM's address and key.

Open WebUI and Home Assistant are not run: their settings are read from the page, and the requests that they send are
sent with them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from corral import paths
from corral.documents import client_snippets
from tests.support.engine_process import Stream, get, post, question
from tests.support.gateway import KEY, tools_folder

GO = paths.REPOSITORY / "tools" / "dev" / "gateway" / "go"
SNIPPETS = ("curl", "openai", "stream", "node", "go", "langchain")


@pytest.fixture(scope="module")
def snippets(litellm):
    """Each snippet by its name."""
    found = client_snippets(litellm.endpoint, "text", "text")
    return dict(zip((*SNIPPETS, "programs"), (text for _, text in found), strict=True))


def command(name, text, folder):
    """What runs the snippet *text*, after its file was written to *folder*; None where the program is not here."""
    match name:
        case "curl":
            return ["bash", "-c", text] if shutil.which("curl") else None
        case "openai" | "stream":
            return [sys.executable, "-c", text]
        case "langchain":
            return [str(tools_folder() / "venv" / "bin" / "python"), "-c", text]
        case "node":
            (folder / "snippet.mjs").write_text(text + "\n")
            (folder / "node_modules").symlink_to(tools_folder() / "node_modules")
            return ["node", "snippet.mjs"] if shutil.which("node") and shutil.which("npm") else None
        case _:
            for file in ("go.mod", "go.sum"):
                shutil.copyfile(GO / file, folder / file)
            (folder / "main.go").write_text(text + "\n")
            return ["go", "run", "."] if shutil.which("go") else None


@pytest.mark.timeout(1800)  # Go compiles its client, once
@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_of_the_page_prints_the_answer(snippets, tmp_path, name):
    words = command(name, snippets[name], tmp_path)
    if words is None:
        why = f"the program for the snippet {name} is not here"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    environment = {**os.environ, "CORRAL_KEY": KEY}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)["choices"][0]["message"]["content"] if name == "curl" else done.stdout.strip()
    assert answer == "OK"


@pytest.mark.parametrize(
    ("program", "address", "key"),
    [("open-webui", "OPENAI_API_BASE_URL", "OPENAI_API_KEY"), ("home-assistant", "base_url", "api_key")],
)
def test_with_the_settings_of_a_program_its_requests_are_answered(snippets, program, address, key):
    settings = yaml.safe_load(snippets["programs"])[program]
    base, api_key = settings[address], os.path.expandvars(settings[key].replace("$CORRAL_KEY", KEY))
    status, text = get(f"{base}/models", api_key=api_key)
    assert (status, "text" in [one["id"] for one in json.loads(text)["data"]]) == (200, True)
    stream = Stream(base.removesuffix("/v1"), "text", 5, api_key=api_key, begins=False)
    stream.join()
    assert stream.is_whole
    call = {"type": "function", "function": {"name": "light", "parameters": {"type": "object", "properties": {}}}}
    body = question("Switch it on.", model=settings.get("chat_model", "text"), tools=[call], tool_choice="auto")
    assert post(f"{base}/chat/completions", body, api_key=api_key)[0] == 200
