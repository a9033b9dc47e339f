"""An upstream of the tests' own on loopback: PyPI, npm and Debian, which answers as it is told, also badly."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import lzma
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass
class Answer:
    body: bytes
    status: int = 200
    sends: int | None = None
    """Bytes of the body that are sent before the connection ends; None: all."""
    slow_s: float = 0.0
    headers: str = ""
    no_length: bool = False


def no_signature(text: str) -> bytes:
    """Return a text that looks as if it were signed."""
    begin, end = "-----BEGIN PGP SIGNATURE-----", "-----END PGP SIGNATURE-----"
    return f"-----BEGIN PGP SIGNED MESSAGE-----\n\n{text}{begin}\n\n{end}\n".encode()


class FakeUpstream:
    """Answers by path; `asked` counts requests."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: Counter[str] = Counter()
        self.was_asked = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeUpstream]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._answer(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._send(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        self.asked[path] += 1
        self.was_asked.set()
        answer = self.answers.get(path, Answer(b"none", 404))
        await asyncio.sleep(answer.slow_s)
        length = "" if answer.no_length else f"Content-Length: {len(answer.body)}\r\n"
        writer.write(
            f"HTTP/1.1 {answer.status} X\r\n{length}{answer.headers}Connection: close\r\n\r\n".encode()
        )
        writer.write(answer.body[: answer.sends])

    # -- packages

    def add_pypi(self, name: str, content: bytes, *, digest: str = "", **more: object) -> str:
        """Offer a project with one wheel; return its file's path."""
        path = f"/files/{name}-1.0-py3-none-any.whl"
        file = {
            "filename": path.rpartition("/")[2],
            "url": f"{self.url}{path}",
            "hashes": {"sha256": digest or hashlib.sha256(content).hexdigest()},
            **more,
        }
        self.answers[path] = Answer(content)
        page = {"meta": {"api-version": "1.0"}, "name": name, "files": [file]}
        self.answers[f"/simple/{name}/"] = Answer(json.dumps(page).encode())
        return path

    def add_npm(
        self, name: str, content: bytes, *, digest: bytes = b"", tarball: str = "", **more: object
    ) -> str:
        """Offer a package with one version; return its archive's path."""
        path = f"/{name}/-/{name.rpartition('/')[2]}-1.0.0.tgz"
        sha512 = base64.b64encode(digest or hashlib.sha512(content).digest()).decode()
        dist = {
            "tarball": tarball or f"{self.url}{path}",
            "integrity": f"sha512-{sha512}",
            "shasum": "0" * 40,
        }
        version = {"name": name, "version": "1.0.0", "dependencies": {"left": "^1"}, "dist": dist, **more}
        page = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        self.answers[path] = Answer(content)
        self.answers["/" + name.replace("/", "%2F")] = Answer(json.dumps(page).encode())
        return path

    def add_debian(
        self,
        content: bytes,
        *,
        digest: str = "",
        by_hash: bool = False,
        sign: Callable[[str], bytes] = no_signature,
        more_lines: Sequence[str] = (f" {'0' * 64} 5 ../../../etc/passwd",),
    ) -> str:
        """Offer an archive with one package; return its path."""
        path = "pool/main/h/hello/hello_2.10+b1~x_amd64.deb"
        packages = (
            f"Package: hello\nVersion: 2.10+b1~x\nArchitecture: amd64\nFilename: {path}\nSize: {len(content)}\n"
            f"SHA256: {digest or hashlib.sha256(content).hexdigest()}\nDescription: it says\n hello\n\n"
            f"Package: evil\nFilename: ../../etc/passwd\nSize: 1\nSHA256: {'0' * 64}\n"
        ).encode()
        listed, folder = [], "/debian/dists/bookworm"
        for name, packed in (("Packages", packages), ("Packages.xz", lzma.compress(packages))):
            sha256 = hashlib.sha256(packed).hexdigest()
            listed.append(f" {sha256} {len(packed)} main/binary-amd64/{name}")
            self.answers[f"{folder}/main/binary-amd64/{name}"] = Answer(packed)
            self.answers[f"{folder}/main/binary-amd64/by-hash/SHA256/{sha256}"] = Answer(packed)
        text = [
            "Suite: bookworm",
            "Codename: bookworm",
            "Architectures: amd64",
            "Components: main",
            "Date: Wed, 25 Nov 2026 00:00:00 UTC",
            f"Acquire-By-Hash: {'yes' if by_hash else 'no'}",
            "MD5Sum:",
            f" {'0' * 32} 5 main/Contents-amd64",
            "SHA256:",
            *listed,
            *more_lines,
        ]
        release = sign("\n".join([*text, ""]))
        self.answers[f"{folder}/InRelease"] = Answer(release)
        self.answers[f"/debian/{path.replace('+', '%2B')}"] = Answer(content)
        return path
