"""Questions in a terminal for the embedded engine, in the place of llama-cli, which its wheel does not have.

The engine is that of ``corral.engine.llama_server``, with the same command line; a line of stdin is a question, and
the answer is printed while it comes.  Each question follows the earlier ones and their answers, as in llama-cli.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

from corral.engine import embedded
from corral.engine.llama_server import fail


def main() -> NoReturn:
    """Answer until stdin ends; never returns.  Exit code 1: the command line or the model cannot be used."""
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    embedded.require_available()
    command_line = embedded.parse(sys.argv[1:])
    if command_line is None:
        sys.exit(1)  # the parser has printed why
    try:
        import xllamacpp

        server = xllamacpp.Server(command_line.params)  # returns when the model is loaded
    except Exception as error:  # noqa: BLE001 - the extension throws llama.cpp's reason as whatever type it likes
        embedded.flush_log()
        fail(str(error))
    embedded.flush_log()
    _converse(server)
    os._exit(0)  # the destructor would wait for every client to hang up


def _converse(server: Any) -> None:
    messages: list[dict[str, str]] = []
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        sys.stdout.write(prompt)
        sys.stdout.flush()
        if not (line := sys.stdin.readline()):
            return
        if question := line.strip():
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": _answer(server, messages)})


def _answer(server: Any, messages: list[dict[str, str]]) -> str:
    """Print the answer to the last of *messages*, thoughts included, and return it without them."""
    pieces: list[str] = []

    def show(chunk: str) -> bool:
        document = json.loads(chunk)
        if error := document.get("error"):
            sys.stderr.write(f"error: {error.get('message', error)}\n")
        for choice in document.get("choices", ()):
            delta = choice.get("delta", {})
            pieces.append(delta.get("content") or "")
            sys.stdout.write((delta.get("reasoning_content") or "") + pieces[-1])
            sys.stdout.flush()
        return False  # go on

    server.handle_chat_completions(json.dumps({"messages": messages, "stream": True}), show)
    sys.stdout.write("\n")
    sys.stdout.flush()
    return "".join(pieces)


if __name__ == "__main__":
    main()
