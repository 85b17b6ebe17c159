"""The probes' server over real TCP: what it answers, and what it bears."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterator

import pytest

from jobq.errors import ConfigurationError
from jobq.worker import probes
from jobq.worker.probes import Address, Probes, listen, parse_address
from tests.worker.asking import OK, Client
from tests.worker.observe import eventually, within

HERE = Address("127.0.0.1", 0)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A socket that listens on a free port."""
    with listen(HERE) as listening:
        yield listening


@pytest.fixture
def loops() -> dict[str, list[str]]:
    """The loops that are stuck or failing, as a test says."""
    return {"stuck": [], "failing": []}


@pytest.fixture
async def client(listening: socket.socket, loops: dict[str, list[str]]) -> AsyncIterator[Client]:
    """Somebody who asks probes that run."""
    server = Probes(listening, stuck=lambda: loops["stuck"], failing=lambda: loops["failing"])
    serving = asyncio.create_task(server.serve())
    yield Client(listening)
    serving.cancel()
    await asyncio.wait([serving], timeout=1)
    assert serving.cancelled()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:8080", ("::1", 8080)),
        ("localhost:65535", ("localhost", 65535)),
        (":8080", ("127.0.0.1", 8080)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    """Without a host it is this machine's own: probes are nobody else's business unless stated."""
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "8080", "localhost", "localhost:", "localhost:http", ":65536", ":-1", ":²"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    """A message that shows how."""
    with pytest.raises(ConfigurationError, match=r"is not HOST:PORT: pass one such as 127\.0\.0\.1:8080"):
        parse_address(text)


def test_an_address_is_shown_as_in_a_url() -> None:
    """The log line can be pasted."""
    assert (str(Address("::1", 80)), str(Address("127.0.0.1", 80))) == ("[::1]:80", "127.0.0.1:80")


def test_an_address_in_use_is_a_wrong_configuration(listening: socket.socket) -> None:
    """Told with the address, before there is a worker."""
    address = Address(*listening.getsockname()[:2])

    with pytest.raises(ConfigurationError, match=rf"^the probes cannot listen on {address} \(.*in use\)"):
        listen(address)


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
def test_an_address_of_another_machine_is_a_wrong_configuration(host: str) -> None:
    """Reserved for documentation, both of them."""
    with pytest.raises(ConfigurationError, match=f"the probes cannot listen on {host}:8080"):
        listen(Address(host, 8080))


async def test_a_worker_that_is_well_is_200(client: Client) -> None:
    """Both."""
    assert await client.ask("/healthz") == OK
    assert await client.ask("/readyz?verbose=1") == OK


async def test_a_stuck_loop_is_a_503_of_healthz(client: Client, loops: dict[str, list[str]]) -> None:
    """With the loops' names, for whoever looks after the restart."""
    loops["stuck"] = ["reaper", "claims of mail"]

    assert await client.ask("/healthz") == (503, "stuck: reaper, claims of mail\n")
    assert await client.ask("/readyz") == OK


async def test_a_failing_loop_is_a_503_of_readyz(client: Client, loops: dict[str, list[str]]) -> None:
    """Alive all the same: no restart."""
    loops["failing"] = ["heartbeat"]

    assert await client.ask("/readyz") == (503, "not working: heartbeat\n")
    assert await client.ask("/healthz") == OK


async def test_head_is_get_without_the_text(client: Client, loops: dict[str, list[str]]) -> None:
    """Some load balancers ask so."""
    loops["failing"] = ["heartbeat"]

    assert await client.ask("/healthz", "HEAD") == (200, "")
    assert await client.ask("/readyz", "HEAD") == (503, "")


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
async def test_other_methods_are_refused(client: Client, method: str) -> None:
    """With what is allowed, as RFC 9110 wants."""
    assert await client.ask("/healthz", method) == (405, "only GET and HEAD\n")
    assert b"\r\nAllow: GET, HEAD\r\n" in await client.says(b"POST /healthz HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("path", ["/", "/metrics/", "//healthz", "/healthz/", "/%2e%2e/etc/passwd"])
async def test_other_paths_are_not_found(client: Client, path: str) -> None:
    """With those that are there."""
    assert await client.ask(path) == (404, "there are /healthz, /readyz and /metrics\n")


@pytest.mark.parametrize(
    ("sent", "start"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\n", b""),
        (b"\r\n\r\n", b"HTTP/1.1 405 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)), b""),
        (b"GET /\xff\xfe\x00 HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
        (b"GET /healthz HTTP/1.1\r\nCookie: " + 100_000 * b"x" + b"\r\n\r\n", b""),
        (b"GET " + 1_000_000 * b"/", b""),
    ],
    ids=["nothing", "half", "empty", "tls", "bytes", "huge header", "huge path"],
)
async def test_a_bad_request_harms_nobody(client: Client, sent: bytes, start: bytes) -> None:
    """Refused or dropped, and the next one is answered."""
    answer = await client.says(sent, close_writing=True)

    assert answer.startswith(start)
    assert bool(answer) is bool(start)
    assert await client.ask("/healthz") == OK


async def test_a_client_that_hangs_up_harms_nobody(client: Client) -> None:
    """With a reset, in the middle of its request."""
    for _ in range(20):
        with socket.create_connection(client.address) as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            rude.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")

    assert await client.ask("/healthz") == OK


async def test_a_slow_client_is_dropped(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a few seconds for its request."""
    monkeypatch.setattr(probes, "REQUEST_LIMIT_S", 0.05)

    assert await client.says(b"GET /healthz HTT") == b""


async def test_silent_clients_use_up_no_files(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a few are turned away at once, and when they go there is room again."""
    monkeypatch.setattr(probes, "MAX_CLIENTS", 2)
    silent = [await asyncio.open_connection(*client.address) for _ in range(2)]

    assert await client.says(b"GET /healthz HTTP/1.1\r\n\r\n") == b""

    for _, writer in silent:
        writer.close()
    await eventually(lambda: client.says(b"GET /healthz HTTP/1.1\r\n\r\n"))


async def test_the_server_can_be_started_over(listening: socket.socket) -> None:
    """The side thread starts over after a bug; a client that stays on does not hold up the end."""
    server = Probes(listening, stuck=list, failing=list)
    client = Client(listening)

    for _ in range(3):
        serving = asyncio.create_task(server.serve())
        assert await client.ask("/healthz") == OK
        _, silent = await asyncio.open_connection(*client.address)
        assert await client.ask("/healthz") == OK
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within(1, serving)
        silent.close()
