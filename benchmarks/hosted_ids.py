"""Which of GEM's and Gymnasium's ids run as `gem:ID` and `gym:ID`, by the checks of `ale env check`.

`python -m benchmarks.hosted_ids [--quick] [--write]`. Each id is checked on eight tasks on one server. The last line is one
JSON object: `ids`, `importable` (the library makes it here, without network and with what is installed), `passed`
(no check failed) and `passed_share` of those importable; `by` says the same for each library. stderr names each other id
with its reason. `--quick` takes every twelfth id. `--write` writes docs/results/hosted-ids.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

from benchmarks.scaffold import finish, markdown_table, parser_of, say, write_results
from rock_env import plugins
from rock_env.client import Client
from rock_env.client.registry import RegistryClient
from rock_env.errors import InvalidArgument, RockError
from rock_env.local import embedded
from rock_env.vetting.episodes import Subject
from rock_env.vetting.vet import sample, vet

LIBRARIES = ("gem", "gym")
TASKS = 8
LIMIT_S = 180
QUICK = 12


async def verdict(client: Client, registry: RegistryClient, name: str) -> tuple[str, str]:
    """Return what became of an id, and why where it did not pass."""
    spec = plugins.load_env(name)
    params = spec.params()
    try:
        env = await client.make(name)
        try:
            await env.reset("train/0", 0)
        finally:
            await env.close()
    except InvalidArgument as error:
        return "not importable", error.message
    except RockError as error:
        return "failed", error.message
    subject = Subject(client, spec, params, sample(spec, params, TASKS))
    wrong = []
    try:
        async with asyncio.timeout(LIMIT_S), aclosing(vet(subject, registry)) as reports:
            async for report in reports:
                if report.result == "FAIL":
                    wrong.append(f"{report.name}: {report.evidence}")
                if report.name == "same seed, same observations" and report.result == "SKIP":
                    wrong.append(f"{report.name}: {report.evidence}")
    except TimeoutError:
        wrong.append(f"not checked within {LIMIT_S} s")
    return ("failed", "; ".join(wrong)) if wrong else ("passed", "")


async def check_all(*, quick: bool) -> dict[str, dict[str, tuple[str, str]]]:
    found: dict[str, dict[str, tuple[str, str]]] = {}
    async with embedded([]) as address, Client(address) as client, RegistryClient(address) as registry:
        for library in LIBRARIES:
            ids = plugins.load_library(library).ids()[:: QUICK if quick else 1]
            found[library] = {}
            for env_id in ids:
                name = f"{library}:{env_id}"
                found[library][name] = result, why = await verdict(client, registry, name)
                if result != "passed":
                    say(f"{name} {result}: {why}")
    return found


def counts(results: Mapping[str, tuple[str, str]]) -> dict[str, float]:
    kinds = [kind for kind, _ in results.values()]
    importable = len(kinds) - kinds.count("not importable")
    passed = kinds.count("passed")
    return {
        "ids": len(kinds),
        "importable": importable,
        "passed": passed,
        "passed_share": round(passed / max(importable, 1), 4),
    }


def page(found: Mapping[str, Mapping[str, tuple[str, str]]]) -> str:
    rows = [(library, *counts(results).values()) for library, results in found.items()]
    text = [markdown_table(("library", "ids", "importable", "passed", "share"), rows)]
    for kind in ("failed", "not importable"):
        others = [
            (f"`{name}`", why.replace("|", "\\|")[:220])
            for results in found.values()
            for name, (result, why) in results.items()
            if result == kind
        ]
        if others:
            text.append(f"\n## {kind.capitalize()}\n\n{markdown_table(('id', 'reason'), others)}")
    text.append(
        "\nIds that are left out by name are in the [guide](../../sandboxes/libraries/README.md) and not counted here."
    )
    return "\n".join(text)


def main() -> None:
    parser = parser_of(__doc__, quick="one id of each family", write="hosted-ids.md")
    arguments = parser.parse_args()
    found = asyncio.run(check_all(quick=arguments.quick))
    if arguments.write:
        write_results(
            "hosted-ids.md",
            "GEM's and Gymnasium's ids",
            "python -m benchmarks.hosted_ids --write",
            page(found),
        )
    together = {name: each for results in found.values() for name, each in results.items()}
    by = {library: counts(results) for library, results in found.items()}
    finish({**counts(together), "by": by})


if __name__ == "__main__":
    main()
