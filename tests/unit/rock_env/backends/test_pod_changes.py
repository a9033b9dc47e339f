"""A namespace's stream of changes goes on, whatever it said last."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import httpx
import pytest

from rock_env.backends.kubernetes import pods as in_pods
from rock_env.backends.kubernetes.access import Access
from rock_env.backends.kubernetes.api import Api
from rock_env.backends.kubernetes.pods import Pods
from rock_env.security.kubeconfig import TokenSource


def changed(name: str) -> dict[str, Any]:
    about = {"name": name, "uid": name, "resourceVersion": "2"}
    return {"type": "ADDED", "object": {"metadata": about, "status": {}}}


@pytest.mark.parametrize(
    "odd",
    [json.dumps(changed("p"))[:30], "null", "[]", '{"type": "ADDED"}', '{"type": "ADDED", "object": {}}'],
)
async def test_a_change_that_was_cut_off_does_not_end_the_stream(
    odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_pods, "_RETRY_S", 0.0)
    streams = [odd, json.dumps(changed("p"))]

    async def answer(request: httpx.Request) -> httpx.Response:
        if "watch" not in request.url.params:
            return httpx.Response(200, json={"items": [], "metadata": {"resourceVersion": "1"}})
        if not streams:
            await asyncio.Event().wait()
        return httpx.Response(200, text=f"{streams.pop(0)}\n")

    api = Api(Access("https://cluster.example", ssl.create_default_context(), TokenSource("word"), "boxes"))
    api._client = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="https://cluster.example")
    pods = Pods(api, "boxes", "a=b")
    following = asyncio.create_task(pods.run())
    heard = asyncio.create_task(pods.until("p", lambda pod: pod))
    done, _ = await asyncio.wait((following, heard), timeout=60, return_when=asyncio.FIRST_COMPLETED)
    assert done == {heard}
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await api.close()
