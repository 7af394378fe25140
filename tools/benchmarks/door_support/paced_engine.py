"""An engine that streams at a fixed pace: what is measured beside it is the proxies alone.

python paced_engine.py PORT FIRST_MS TOKEN_MS TOKENS
"""

from __future__ import annotations

import asyncio
import json
import sys


def event(text: str) -> bytes:
    """One token as llama-server sends it."""
    delta = {
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
        "object": "chat.completion.chunk",
    }
    data = b"data: " + json.dumps(delta).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
HEALTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


async def serve(port: int, first_s: float, token_s: float, tokens: int) -> None:
    """Answer every POST with a stream and every GET with 200, for ever."""
    token = event("word ")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"GET"):
                writer.write(HEALTH)
                continue
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            begun = asyncio.get_running_loop().time()
            for number in range(tokens):
                await asyncio.sleep(begun + first_s + number * token_s - asyncio.get_running_loop().time())
                writer.write((b"" if number else HEAD) + token)
            writer.write(END)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (OSError, EOFError):
            writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", port, backlog=512) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]) / 1000, int(sys.argv[3]) / 1000, int(sys.argv[4])))
