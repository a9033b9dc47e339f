"""The worker of a rule that is not ALE's own. Started by `fenced_rule` with a socket; answers until that closes."""

from __future__ import annotations

import argparse
import pickle
import resource
import signal
import sys
from multiprocessing.connection import Connection

import msgspec

from rock_env.env_workers.host import die_with_parent
from trainer.errors import ConfigError
from trainer.reward.base import Answer, NoAnswer, Sample
from trainer.reward.fenced_rule import Said
from trainer.reward.rule import Check, find_rule

__all__ = ["main"]


def _said(check: Check, sample: Sample) -> Said:
    """Apply the rule to a sample; this is the boundary where a user's function runs."""
    try:
        found = check(sample)
    except ConfigError as error:
        return Said(failed=str(error), stops=True)
    except Exception as error:  # noqa: BLE001 -- named boundary: a user's function
        return Said(failed=f"{type(error).__name__}: {error}")
    if isinstance(found, Answer):
        return Said(answer=found)
    if isinstance(found, NoAnswer):
        return Said(none=found)
    return Said(failed=f"it returned a {type(found).__name__}, expected an Answer or NoAnswer")


def main() -> None:
    """Serve the inherited socket."""
    parser = argparse.ArgumentParser(description="Run a reward rule (internal).")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    resource.setrlimit(resource.RLIMIT_DATA, (arguments.memory_bytes, arguments.memory_bytes))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the trainer decides
    with Connection(arguments.fd) as trainer:
        sys.path[:], name = pickle.loads(trainer.recv_bytes())
        check = find_rule(name)
        while True:
            try:
                sample = pickle.loads(trainer.recv_bytes())
            except EOFError:
                return
            # Numbers of numpy are numbers.
            trainer.send_bytes(msgspec.msgpack.encode(_said(check, sample), enc_hook=float))


if __name__ == "__main__":
    main()
