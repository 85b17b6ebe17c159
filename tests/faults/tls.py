"""A PostgreSQL of Debian's that speaks TLS, with certificates of the test's own; the embedded one has no TLS."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import trustme

BINARIES = Path(os.environ.get("JOBQ_TEST_PGBIN", "/usr/lib/postgresql/15/bin"))
PASSWORD = "s3cret-of-the-test"

REQUEST_FOR_TLS = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
"""All that a client says before it knows whether the server speaks TLS."""


class Authority:
    """A certificate authority, and what it has issued, as files in *directory*."""

    def __init__(self, directory: Path, name: str) -> None:
        self._ca = trustme.CA()
        self._directory = directory
        self._name = name
        self.root = directory / f"{name}-root.crt"
        self._ca.cert_pem.write_to_path(str(self.root))

    def issue(self, identity: str, *, common_name: str | None = None) -> tuple[Path, Path]:
        """Issue a certificate for a host, or for the user *common_name*. Returns it, and its key."""
        issued = self._ca.issue_cert(identity, common_name=common_name)
        certificate, key = (self._directory / f"{self._name}-{identity}.{kind}" for kind in ("crt", "key"))
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        key.chmod(0o600)
        return certificate, key


class TlsServer:
    """One server on 127.0.0.1, as an ordinary user's: PostgreSQL does not run as root."""

    def __init__(self, home: Path, *, port: int) -> None:
        self._home = home
        self.port = port

    def dsn(self, host: str = "localhost", /, **parameters: str | Path) -> str:
        """Return the DSN of the user `app`, with these parameters."""
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"postgresql://app:{PASSWORD}@{host}:{self.port}/postgres?{query}"

    def present(self, certificate: Path, key: Path) -> None:
        """Present this certificate to who connects from now on."""
        for source, name in ((certificate, "server.crt"), (key, "server.key")):
            copied = shutil.copy(source, self._home / name)
            os.chmod(copied, 0o600)
            _give(copied)
        self._control("reload")

    def _control(self, *words: str) -> None:
        _as_ordinary_user(BINARIES / "pg_ctl", "-s", "-D", self._home / "data", *words)

    def start(self, **settings: str) -> None:
        """Start it, and wait until it is ready."""
        stated = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            **settings,
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in stated.items())
        self._control("-w", "-l", str(self._home / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop it at once."""
        self._control("-m", "immediate", "-w", "stop")


@contextmanager
def tls_server(
    authority: Authority | None, *, access: str = "hostssl all all all scram-sha-256"
) -> Iterator[TlsServer]:
    """Start a server with a certificate of *authority* for `localhost`, or without TLS; *access* is its pg_hba.conf."""
    with TemporaryDirectory(prefix="jq-tls-", dir="/tmp") as name:
        home = Path(name)
        _give(home)
        password = home / "password"
        password.write_text(PASSWORD)
        _give(password)
        initialise = (
            "-D",
            home / "data",
            "--username=app",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--no-sync",
        )
        _as_ordinary_user(BINARIES / "initdb", *initialise)
        (home / "data" / "pg_hba.conf").write_text(f"{access}\n")
        server = TlsServer(home, port=_free_port())
        settings = {"ssl": "off"}
        if authority is not None:
            root = shutil.copy(authority.root, home / "root.crt")
            _give(root)
            settings = {
                "ssl": "on",
                "ssl_cert_file": f"{home}/server.crt",
                "ssl_key_file": f"{home}/server.key",
                "ssl_ca_file": str(root),
            }
            for source, file in zip(authority.issue("localhost"), ("server.crt", "server.key"), strict=True):
                _give(shutil.copy(source, home / file))
                os.chmod(home / file, 0o600)
        server.start(**settings)
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def listener() -> Iterator[socket.socket]:
    """A port of 127.0.0.1, for a server that the test plays itself."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


class Eavesdropper:
    """A server that has no TLS, and keeps what is said to it."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer N to a request for TLS, and keep everything to the end."""
        heard = await reader.read(len(REQUEST_FOR_TLS))
        writer.write(b"N")
        self.heard.append(heard + await reader.read())
        writer.close()


def _ordinary_user() -> pwd.struct_passwd | None:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _give(path: str | Path) -> None:
    if user := _ordinary_user():
        os.chown(path, user.pw_uid, user.pw_gid)


def _as_ordinary_user(*command: str | Path) -> None:
    user = _ordinary_user()
    account = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL, cwd="/", **account)  # type: ignore[call-overload]


def _free_port() -> int:
    with listener() as free:
        port: int = free.getsockname()[1]
    return port
