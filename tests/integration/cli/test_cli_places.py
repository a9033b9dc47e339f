"""`ale rock quota` and `ale rock pool` against a real server that is restarted in between."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from command_line import ale, refused
from secure_servers import serving

from rock_env.client.credentials import Credentials
from rock_env.client.places import PlacesClient

SERVE = ["rock_env.server", "--listen", "127.0.0.1:0", "--insecure", "--isolation", "none"]


async def stocked(address: str, size: int) -> None:
    async with PlacesClient(address, credentials=Credentials()) as places:
        for _ in range(1500):
            (pool,) = await places.pools()
            if pool.ready == size:
                return
            await asyncio.sleep(0.02)
    raise AssertionError(f"no {size} boxes in stock after 30 s")


def test_quotas_and_pools_are_set_seen_and_kept(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text("[capacity]\nboxes = 7\n[tenants.red]\nweight = 3\n")
    options = [*SERVE, "--state", str(tmp_path / "state"), "--quotas", str(tmp_path / "q.toml")]
    with serving(options, tmp_path) as (_, address):
        done = ale("rock", "quota", "set", "blue", "--boxes", "2", "--rock", address, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "tenant 'blue' holds 0 of 2 boxes" in done.stderr
        done = ale("rock", "pool", "set", "2", "--lifetime", "7200", "--rock", address, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        refused(
            ale("rock", "pool", "set", "8", "--rock", address, cwd=tmp_path), 2, "than this server holds: 7"
        )
        refused(
            ale("rock", "pool", "set", "1", "--env", "frozen_lake", "--rock", address, cwd=tmp_path),
            2,
            "has no sandbox",
        )
        refused(
            ale("rock", "pool", "set", "1", "--env", "code", "--cpus", "2", "--rock", address, cwd=tmp_path),
            2,
            "leave them out",
        )
        refused(ale("rock", "quota", "set", "Blue", "--rock", address, cwd=tmp_path), 2, "bad tenant name")
        asyncio.run(stocked(address, 2))
    with serving(options, tmp_path) as (_, address):
        asyncio.run(stocked(address, 2))
        listed = ale("rock", "quota", "list", "--rock", address, cwd=tmp_path).stdout.splitlines()
        assert [line.split()[:2] + line.split()[-1:] for line in listed] == [
            ["tenant", "boxes", "weight"],
            ["(server)", "0/7", "1"],
            ["blue", "0/2", "1"],
            ["red", "0/any", "3"],
        ]
        (pool,) = json.loads(ale("rock", "pool", "list", "--json", "--rock", address, cwd=tmp_path).stdout)
        assert (pool["target"], pool["ready"], pool["backend"]) == (2, 2, "process")
        assert pool["spec"]["lifetime_s"] == 7200
    (tmp_path / "q.toml").write_text("[capasity]\n")
    words = ["rock", "serve", "--insecure", "--listen", "127.0.0.1:0", "--quotas", "q.toml"]
    refused(ale(*words, cwd=tmp_path), 2, "Did you mean 'capacity'")


def test_a_drain_ends_the_server_and_says_what_becomes_of_its_sandboxes(tmp_path: Path) -> None:
    with serving([*SERVE, "--state", str(tmp_path / "state")], tmp_path) as (process, address):
        done = ale("rock", "drain", address, "--within", "0.5", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "0 live on, 0 end with it" in done.stderr + done.stdout
        assert process.wait(30) == 0
