"""A server for the webhook example to call: it answers as it was told to, and remembers what it was sent."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer


@dataclass(frozen=True)
class Answer:
    """What to answer once; the last one of a list is given for ever."""

    status: HTTPStatus
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Received:
    """What came in."""

    headers: Mapping[str, str]
    body: bytes


BUSY_THEN_BROKEN_THEN_FINE = [
    Answer(HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": "1"}),
    Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {}),
    Answer(HTTPStatus.OK, {}),
]


class Receiver(HTTPServer):
    """A server on this machine. *port* 0 takes a free one."""

    def __init__(self, answers: list[Answer], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Conversation)
        self.answers = list(answers)
        self.received: list[Received] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/"


class _Conversation(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Take a delivery: http.server calls this by its name."""
        receiver = self.server
        assert isinstance(receiver, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        receiver.received.append(Received(dict(self.headers), body))
        answer = receiver.answers[0] if len(receiver.answers) == 1 else receiver.answers.pop(0)
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()
        print(f"{self.headers['Idempotency-Key']}: {answer.status.value} {answer.status.phrase}", flush=True)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing about the conversation itself."""


@contextmanager
def run_receiver(answers: list[Answer]) -> Iterator[Receiver]:
    """Run a receiver on a free port, in a thread of its own, for the length of a block."""
    with Receiver(answers) as receiver:
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


if __name__ == "__main__":
    with Receiver(BUSY_THEN_BROKEN_THEN_FINE, port=int(os.environ.get("PORT", "8090"))) as receiver:
        print(f"listening on {receiver.url}", flush=True)
        receiver.serve_forever()
