"""The client of `test_far_networks`, in a network namespace: `far_client.py ACT ADDRESS CA TOKEN` prints lines of JSON."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator

from rock_env.backends.kubernetes import api
from rock_env.client.admin import AdminClient
from rock_env.client.client import Client
from rock_env.client.credentials import Credentials
from rock_env.errors import RockError
from rock_env.security.kubeconfig import Access, TokenSource


async def health(address: str, credentials: Credentials) -> AsyncIterator[str]:
    for _ in range(4):
        async with AdminClient(address, credentials=credentials, timeout_s=60.0) as admin:
            yield "serving" if await admin.serving() else "draining"


async def create(address: str, credentials: Credentials) -> AsyncIterator[str]:
    async with (
        Client(address, credentials=credentials, retry_for_s=0.0) as client,
        await client.sandboxes.create(),
    ):
        yield "made"


async def deadline(address: str, credentials: Credentials) -> AsyncIterator[str]:
    async with AdminClient(address, credentials=credentials, timeout_s=1.0) as admin:
        try:
            await admin.serving()
        except RockError as error:
            yield f"{type(error).__name__}: {error}"


async def partition(address: str, credentials: Credentials) -> AsyncIterator[str]:
    async with Client(address, credentials=credentials, retry_for_s=0.0) as client:
        box = await client.sandboxes.create()
        yield "made"
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await box.refresh()
        except RockError as error:
            yield f"{type(error).__name__}: {error}"
        while True:
            try:
                await box.refresh()
            except RockError:
                await asyncio.sleep(0.2)
            else:
                break
        yield "found again"
        await box.delete()


async def kubernetes(address: str, credentials: Credentials) -> AsyncIterator[str]:
    del credentials
    api._CONNECT_S = 0.5
    url = address.replace("grpcs", "https")
    cluster = api.Api(Access(url, ssl.create_default_context(), TokenSource("word"), "boxes"))
    try:
        await cluster.call("GET", "/api/v1/namespaces/boxes/pods")
    except RockError as error:
        yield f"{type(error).__name__}: {error}"
    await cluster.close()


async def main(act: str, address: str, ca: str, token: str) -> None:
    async for said in globals()[act](address, Credentials(token=token, ca=ca)):
        print(json.dumps(said), flush=True)  # noqa: T201


asyncio.run(main(*sys.argv[1:]))
