"""What a sampler, which may be a user's plugin, does wrong, said by its name and class.

The actors around engines check each call's answer once. A malformed answer, or a version that does not show, is a bug
and ends the run (`Halted`). An exception fails the requests that were being answered (`PolicyError`) and leaves its
traceback in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent_runtime.policy import Completion, PolicyError, SampleRequest, completion_fault
from rock_env.errors import RockError
from trainer.errors import Halted, TrainerError
from trainer.protocols.token_sampler import Sampled

__all__ = ["Named"]

logger = logging.getLogger(__name__)


class Named:
    """Who samples, and with which version of the weights."""

    def __init__(self, name: str, engine: object) -> None:
        kind = type(engine)
        self._who = f"the sampler {name!r} ({kind.__module__}.{kind.__qualname__})"
        self._versions = [0]
        """Those that were loaded, in turn; the last may be being loaded."""
        self._logged: Exception | None = None

    @property
    def loads(self) -> int:
        """Return how many versions were loaded so far: what a request that begins now gives as `since`."""
        return len(self._versions) - 1

    def take(self, version: int) -> None:
        """Take note that a version was loaded, or is about to be."""
        self._versions.append(version)

    @contextmanager
    def blamed(self, doing: str, kind: type[Exception]) -> Iterator[None]:
        """Have exceptions that nobody raised on purpose name the sampler, as `kind`. Their traceback goes to the log."""
        try:
            yield
        except (PolicyError, RockError, TrainerError):
            raise
        except Exception as error:
            if error is not self._logged:  # one that broke several requests
                logger.exception("%s failed to %s", self._who, doing)
                self._logged = error
            said = f"{type(error).__name__}: {error}".rstrip(".")
            raise kind(
                f"{self._who} failed to {doing}: {said}. Its traceback is in "
                "the log of its process (Ray's logs, /tmp/ray/session_latest/logs)."
            ) from error

    def check_batch(self, found: object, requests: Sequence[SampleRequest]) -> None:
        """Raise `Halted` where this is no list of one sound completion per request, all of the version loaded last."""
        if not isinstance(found, list | tuple) or len(found) != len(requests):
            count = f" of length {len(found)}" if isinstance(found, list | tuple) else ""
            raise self._malformed(
                f"expected a list of {len(requests)} completions, one per request, got {type(found).__name__}{count}"
            )
        for request, completion in zip(requests, found, strict=True):
            self.check(completion, request, self.loads)

    def checked(self, found: object, request: SampleRequest, since: int) -> Completion:
        """Return the completion of one request that stepped, sound. Raise as `check` does."""
        if not isinstance(found, Sampled) or not found.spans:
            raise self._malformed(f"expected a Sampled with one span or more, got {found!r:.80}")
        completion = found.completion()
        self.check(completion, request, since)
        ends = [0, *(span.end for span in found.spans)]
        if [span.start for span in found.spans] != ends[:-1] or ends[-1] != len(found.ids):
            raise self._malformed(
                f"expected spans in order over all {len(found.ids)} ids, got {found.spans!r}"
            )
        return completion

    def check(self, completion: Completion, request: SampleRequest, since: int) -> None:
        """Raise `Halted` for a completion without form, or of a version not loaded since its request (`loads` then)."""
        if fault := completion_fault(completion):
            raise self._malformed(f"{fault}, for turn {request.turn} of rollout {request.rollout_id!r}")
        given = completion.policy_version
        versions: list[object] = [span.version for span in given] if isinstance(given, tuple) else [given]
        loaded = self._versions[since:]
        if not all(isinstance(version, int) and version in loaded for version in versions):
            raise Halted(
                f"{self._who} does not show which weights it samples with: expected completions of policy_version "
                f"{' or '.join(map(str, loaded))}, which it loaded, got {given!r}. Keep the `version` that `load` takes, "
                "give it to every Completion, and continue with --resume."
            )

    def _malformed(self, fault: str) -> Halted:
        return Halted(
            f"{self._who} returned what no run can learn from: {fault}. Mend its `sample`, and continue with --resume."
        )
