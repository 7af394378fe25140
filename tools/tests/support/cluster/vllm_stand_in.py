"""Stands in for vLLM in the test cluster, whose image has no place on a machine without a card.

It takes the words that vLLM takes, needs the same folder and the same key, and answers each chat with "OK".
"""

from __future__ import annotations

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from pathlib import Path


def values(flag: str) -> list[str]:
    """The words after *flag*, up to the next flag."""
    words = sys.argv[sys.argv.index(flag) + 1 :]
    return list(takewhile(lambda word: not word.startswith("--"), words))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    names: frozenset[str]

    def do_GET(self) -> None:
        self.reply(200 if self.path == "/health" else 404, b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {os.environ['VLLM_API_KEY']}":
            self.reply(401, b'{"error": "Unauthorized"}')
        elif asked["model"] not in self.names:
            self.reply(404, b'{"error": {"message": "The model does not exist."}}')
        elif asked.get("stream"):
            texts = ("O", "K")
            chunks = [{"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in texts]
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            lines = [f"data: {json.dumps(one)}\n\n" for one in (*chunks, end)]
            self.reply(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), kind="text/event-stream")
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": "OK"}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10}
            self.reply(200, json.dumps({"model": asked["model"], "choices": [choice], "usage": usage}).encode())

    def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve the folder that the command line names."""
    folder = Path(sys.argv[2])
    for name in ("config.json", "model.safetensors"):
        (folder / name).read_bytes()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # process 1 of a pod ends by no signal that it does not handle
    Handler.names = frozenset(values("--served-model-name"))
    (host,), (port,) = values("--host"), values("--port")
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
