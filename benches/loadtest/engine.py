"""An engine of bytes: answers any POST with a stream of events at a pace, as cheaply as Python can."""

from __future__ import annotations

import argparse
import asyncio
import json

PLAIN = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "model": "fake",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "w"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
    }
).encode()


def event(content: str) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    body = {"id": "c", "object": "chat.completion.chunk", "model": "fake", "choices": [choice]}
    data = f"data: {json.dumps(body)}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


EVENT = event(" word")
LAST = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
MODELS = b'{"object": "list", "data": [{"id": "fake", "object": "model"}]}'


def whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


class Engine(asyncio.Protocol):
    """One connection."""

    tokens, gap_s, delay_s = 20, 0.1, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.data, self.wanted = transport, bytearray(), 0

    def data_received(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= self.wanted and (end := self.data.find(b"\r\n\r\n")) >= 0:
            head, length = self.data[:end], 0
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    length = int(line[15:])
            self.wanted = end + 4 + length
            if len(self.data) < self.wanted:
                return
            body = self.data[end + 4 : self.wanted]
            del self.data[: self.wanted]
            self.wanted = 0
            self.answer(head, body)

    def answer(self, head: bytearray, body: bytearray) -> None:
        if head.startswith(b"GET"):
            self.transport.write(whole(MODELS))
        elif b'"stream": true' in body or b'"stream":true' in body:
            self.transport.write(STREAM_HEAD + EVENT)
            self.later(self.tokens - 1)
        else:
            asyncio.get_running_loop().call_later(self.delay_s, self.end)

    def end(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(whole(PLAIN))

    def later(self, left: int) -> None:
        asyncio.get_running_loop().call_later(self.gap_s, self.next, left)

    def next(self, left: int) -> None:
        if self.transport.is_closing():
            return
        if left:
            self.transport.write(EVENT)
            self.later(left - 1)
        else:
            self.transport.write(LAST)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=Engine.tokens)
    parser.add_argument("--gap-s", type=float, default=Engine.gap_s)
    parser.add_argument("--delay-s", type=float, default=Engine.delay_s)
    options = parser.parse_args()
    Engine.tokens, Engine.gap_s, Engine.delay_s = options.tokens, options.gap_s, options.delay_s
    asyncio.run(serve(options.port))
