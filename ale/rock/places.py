"""`ale rock quota` and `ale rock pool`: what tenants may hold, and what is kept in stock for them.

All of it needs a token with the scope admin.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from typing import Annotated

import typer

from ale.rock.reach import ADDRESS_IN_USE, ServerOption
from ale.terminal import print_table
from ale.waiting import awaited
from rock_env.client.places import PlacesClient
from rock_env.errors import InvalidArgument
from rock_env.inventory import Limits, PoolStatus, TenantPlaces
from rock_env.plugins import load_env
from rock_env.spec import Resources, SandboxSpec

__all__ = ["pool_app", "quota_app"]

quota_app = typer.Typer(no_args_is_help=True, help="Bound what each tenant may hold, and see what is held.")
pool_app = typer.Typer(
    no_args_is_help=True, help="Keep started sandboxes in stock, so that a Create is quick."
)

JsonOption = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
_GIB = 1 << 30


@quota_app.command("list")
def quota_list(*, rock: ServerOption = ADDRESS_IN_USE, as_json: JsonOption = False) -> None:
    """List what the server and each tenant hold, and of how much."""

    async def act() -> tuple[TenantPlaces, list[TenantPlaces]]:
        async with PlacesClient(rock) as places:
            return await places.quotas()

    whole, tenants = awaited(act(), f"the ROCK server at {rock}")
    if as_json:
        _print_json({"server": asdict(whole), "tenants": [asdict(tenant) for tenant in tenants]})
        return
    rows = [_row("(server)", whole), *(_row(tenant.tenant or '""', tenant) for tenant in tenants)]
    print_table(["tenant", "boxes", "cpus", "GiB", "waiting", "weight"], rows)


@quota_app.command("set")
def quota_set(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help='As in its tokens; "" without tokens.')],
    *,
    boxes: Annotated[int | None, typer.Option("--boxes", min=0, help="None if left out: no bound.")] = None,
    cpus: Annotated[float | None, typer.Option("--cpus", min=0.0)] = None,
    memory_gib: Annotated[float | None, typer.Option("--memory-gib", min=0.0)] = None,
    weight: Annotated[float, typer.Option("--weight", help="Its share of what is scarce.")] = 1.0,
    rock: ServerOption = ADDRESS_IN_USE,
) -> None:
    """Replace a tenant's quota. Nobody loses what is held."""

    async def act() -> TenantPlaces:
        memory_bytes = None if memory_gib is None else round(memory_gib * _GIB)
        async with PlacesClient(rock) as places:
            return await places.set_quota(tenant, Limits(boxes, cpus, memory_bytes), weight=weight)

    changed = awaited(act(), f"the ROCK server at {rock}")
    sys.stderr.write(
        f"tenant {tenant!r} holds {changed.used.boxes} of {_bound(changed.limits.boxes)} boxes.\n"
    )


@pool_app.command("list")
def pool_list(*, rock: ServerOption = ADDRESS_IN_USE, as_json: JsonOption = False) -> None:
    """List the pools: what is in stock, how often it was asked for, and what went wrong."""

    async def act() -> list[PoolStatus]:
        async with PlacesClient(rock) as places:
            return await places.pools()

    pools = awaited(act(), f"the ROCK server at {rock}")
    if as_json:
        _print_json([asdict(pool) for pool in pools])
        return
    rows = []
    for pool in pools:
        asked = pool.hits + pool.misses
        trouble = "no room" if pool.waits_for_room else pool.last_failure
        rows.append(
            [
                pool.digest,
                pool.spec.image or f"({pool.backend})",
                f"{pool.ready}/{pool.target}",
                f"{pool.hits}/{asked}",
                str(pool.lost),
                str(pool.failures),
                trouble,
            ]
        )
    print_table(["spec", "image", "ready", "hits", "lost", "failures", "trouble"], rows)


@pool_app.command("set")
def pool_set(
    size: Annotated[int, typer.Argument(metavar="SIZE", min=0, help="0 ends the pool.")],
    *,
    image: Annotated[
        str, typer.Option("--image", help="Registered, or the engine's; none: process boxes.")
    ] = "",
    env: Annotated[
        str, typer.Option("--env", help="What this environment asks for; instead of the other amounts.")
    ] = "",
    cpus: Annotated[float | None, typer.Option("--cpus", min=0.001, help="1 if left out.")] = None,
    memory_gib: Annotated[
        float | None, typer.Option("--memory-gib", min=0.001, help="1 if left out.")
    ] = None,
    lifetime_s: Annotated[
        float,
        typer.Option(
            "--lifetime",
            metavar="SECONDS",
            min=1.0,
            help="The longest that it serves; E2B's SDK asks for 86400.",
        ),
    ] = 3600.0,
    rock: ServerOption = ADDRESS_IN_USE,
) -> None:
    """Keep SIZE started sandboxes with these resources, or of an environment, in stock."""
    if env:
        if image or cpus is not None or memory_gib is not None:
            raise InvalidArgument("an environment says its image, cpus and memory itself: leave them out.")
        spec = replace(_boxes_of(env), lifetime_s=lifetime_s)
    else:
        resources = Resources(cpus=cpus or 1.0, memory_bytes=round((memory_gib or 1.0) * _GIB))
        spec = SandboxSpec(image=image, resources=resources, lifetime_s=lifetime_s)

    async def act() -> PoolStatus:
        async with PlacesClient(rock) as places:
            return await places.set_pool(spec, size)

    pool = awaited(act(), f"the ROCK server at {rock}")
    part = "" if pool.target == size else f" of {size}, and the other servers of its store the rest"
    sys.stderr.write(f"pool {pool.digest}: this server keeps {pool.target} in stock{part}.\n")


def _boxes_of(name: str) -> SandboxSpec:
    spec = load_env(name).sandbox
    if spec is None:
        raise InvalidArgument(f"the environment {name!r} has no sandbox, so nothing of it is kept in stock.")
    return spec


def _row(name: str, places: TenantPlaces) -> list[str]:
    used, limits = places.used, places.limits
    return [
        name,
        f"{used.boxes}/{_bound(limits.boxes)}",
        f"{used.cpus or 0:g}/{_bound(limits.cpus)}",
        f"{(used.memory_bytes or 0) / _GIB:.1f}/{_bound(_gib(limits))}",
        str(places.waiting),
        f"{places.weight:g}",
    ]


def _gib(limits: Limits) -> float | None:
    return None if limits.memory_bytes is None else limits.memory_bytes / _GIB


def _bound(value: float | None) -> str:
    return "any" if value is None else f"{value:g}" if isinstance(value, int) else f"{value:.1f}"


def _print_json(value: object) -> None:
    sys.stdout.write(f"{json.dumps(value, indent=1)}\n")
