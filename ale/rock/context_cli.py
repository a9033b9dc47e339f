"""`ale rock context`: installations of ROCK by name, which every command and client takes in place of an address."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ale.terminal import print_table
from rock_env.client import installations
from rock_env.errors import InvalidArgument

__all__ = ["context_app"]

context_app = typer.Typer(
    no_args_is_help=True,
    help="Name installations of ROCK, with where their token and CA are; --rock takes the name.",
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the context.")]


@context_app.command("add")
def context_add(
    name: NameArgument,
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS", help="Such as grpcs://rock.example.org:8120; none with --kubernetes."
        ),
    ] = "",
    *,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Holds the API token; none: ROCK_TOKEN."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", metavar="FILE", help="PEM of the CA to trust; none: ROCK_CA, or the public ones."
        ),
    ] = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", metavar="FILE", help="PEM of the client's certificate.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="PEM of its key.")] = None,
    kubernetes: Annotated[
        bool,
        typer.Option(
            "--kubernetes",
            help="Reach it through the API of the cluster it runs in, as `kubectl port-forward` does.",
        ),
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option("--kubeconfig", metavar="FILE", help="Of that cluster; none: kubectl's."),
    ] = None,
    context: Annotated[
        str, typer.Option("--context", help="Of the kubeconfig; none: the one that is current now.")
    ] = "",
    namespace: Annotated[str, typer.Option("--namespace", help="That it was installed in.")] = "rock",
    service: Annotated[str, typer.Option("--service", help="Its Service.")] = "rock",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Of the Service, for gRPC.")] = 8120,
) -> None:
    """Keep an installation under a name, or change it. The files are named, not copied."""
    where = None
    if kubernetes:
        where = installations.in_cluster(kubeconfig, context, namespace=namespace, service=service, port=port)
    elif not address or kubeconfig or context:
        raise InvalidArgument(
            "a context needs an ADDRESS, or --kubernetes for an installation that is reached through its cluster's API"
        )
    if where is not None and address:
        raise InvalidArgument(
            f"--kubernetes finds the way by itself: leave it or the address {address!r} out"
        )
    files = {"token_file": token_file, "ca": ca, "cert": cert, "key": key}
    paths = {each: str(path.expanduser().absolute()) for each, path in files.items() if path is not None}
    replaced = installations.add(name, installations.Installation(address, **paths, kubernetes=where))
    sys.stderr.write(f"context {name} {'changed' if replaced else 'added'}. Try it: ale rock status {name}\n")


@context_app.command("use")
def context_use(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Of the context; left out: none, and this machine's server again."
        ),
    ] = "",
) -> None:
    """Have the `ale rock` commands that name no server go there."""
    installations.use(name)
    sys.stderr.write(f"`ale rock` commands go to {name or installations.DEFAULT_ADDRESS} now.\n")


@context_app.command("list")
def context_list(
    *, as_json: Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")] = False
) -> None:
    """List the contexts; the one in use has a star."""
    contexts, in_use = installations.listed()
    names = ("token_file", "ca", "cert", "key")
    told = {
        name: {
            "address": context.address or f"kubernetes: {context.kubernetes}",
            **{each: getattr(context, each) for each in names},
        }
        for name, context in contexts.items()
    }
    if as_json:
        sys.stdout.write(f"{json.dumps({'in_use': in_use, 'contexts': told}, indent=1)}\n")
        return
    rows = [[f"{name} *" if name == in_use else name, *fields.values()] for name, fields in told.items()]
    print_table(["context", "address", "token", "ca", "certificate", "key"], rows)
