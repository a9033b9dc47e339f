"""What a pod's state says in words: why it will never run, and why it ended. Pure.

Used by the `kubernetes` backend only. It tells the image's fault, the cluster's and the box's own end apart; a command's
failure is none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rock_env.errors import InfraError, InvalidArgument, ResourceExhausted, RockError

__all__ = ["BOX", "address_of", "end_of", "is_over", "late", "trouble_of"]

BOX = "box"
"""Name of the container that a sandbox's commands run in."""
_BAD_NAME = ("InvalidImageName", "ErrImageNeverPull")
_PULL = ("ErrImagePull", "ImagePullBackOff", "ErrImageInspect", "RegistryUnavailable")
_CONFIG = ("CreateContainerConfigError",)
_START = ("CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun")
_NOT_THERE = re.compile(
    r"not found|no such|does not exist|unknown|denied|unauthorized|forbidden", re.IGNORECASE
)
_LONGEST = 500
_KILLED = 137

Pod = Mapping[str, Any]


def is_over(pod: Pod) -> bool:
    """Return whether the pod's containers have ended for good."""
    return _status(pod).get("phase") in ("Succeeded", "Failed")


def address_of(pod: Pod | None) -> str | None:
    """Return the address of a pod, None while it has none."""
    return _status(pod or {}).get("podIP") or None


def trouble_of(pod: Pod | None) -> RockError | None:
    """Return why a pod that was just made will not come up; None while it may."""
    for which, state in _states(pod or {}):
        waiting = state.get("waiting") or {}
        reason, said = waiting.get("reason", ""), str(waiting.get("message") or "")[:_LONGEST]
        if reason in _BAD_NAME or (reason in _PULL and _NOT_THERE.search(said)):
            return InvalidArgument(
                f"the cluster cannot get the image of the sandbox{which}: {reason}: {said}. Push it to a registry that the "
                "nodes pull from, and give its pull secret in the backend's template where it needs one."
            )
        if reason in _PULL and reason != "ErrImagePull":  # the kubelet tries again by itself
            return InfraError(f"the node cannot pull the image of the sandbox{which} now: {reason}: {said}")
        if reason in _CONFIG:
            return InvalidArgument(
                f"the cluster does not start the sandbox{which}: {reason}: {said}. An image that runs as root needs "
                "--backend kubernetes:profile=image, or a user of its own (user=1000)."
            )
        if reason in _START:
            return InfraError(f"the node cannot start the sandbox{which}: {reason}: {said}")
        ended = state.get("terminated") or {}
        if which and ended.get("exitCode"):
            return InfraError(
                f"the guest did not get into the sandbox: status {ended['exitCode']}: {ended.get('message') or ''}"
            )
    if pod is None or is_over(pod) or _deleted(pod):
        return InfraError(f"a sandbox did not come up: {end_of(pod)}")
    return None


def late(pod: Pod | None, waited_s: float) -> RockError:
    """Return what a pod that did not come up in time waited for."""
    for condition in _status(pod or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return ResourceExhausted(
                f"no node had room for the sandbox within {waited_s:g} s: {condition.get('message') or 'no reason given'}",
                retry_after_s=10.0,
            )
    for which, state in _states(pod or {}):
        if waiting := state.get("waiting"):
            said = f"{waiting.get('reason', '')} {waiting.get('message') or ''}".strip()
            return InfraError(f"a sandbox did not come up within {waited_s:g} s{which}: {said}")
    return InfraError(f"a sandbox did not come up: its guest did not answer within {waited_s:g} s")


def end_of(pod: Pod | None) -> str:
    """Return why a pod is gone or goes; empty while nothing says that it does."""
    if pod is None:
        return "the sandbox's pod is gone"
    status = _status(pod)
    node = (pod.get("spec") or {}).get("nodeName") or "?"
    said = str(status.get("message") or "")[:_LONGEST]
    reason = status.get("reason") or ""
    if reason == "Evicted":
        return f"the cluster evicted the sandbox from node {node}: {said}"
    if reason == "DeadlineExceeded":
        return "the sandbox ended: its lifetime was over"
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    lost = conditions.get("Ready", {}).get("reason") == "NodeStatusUnknown"
    if reason in ("NodeLost", "Shutdown", "Terminated", "NodeShutdown") or lost:
        return f"the sandbox was lost with its node {node}: {said or reason or 'the node does not report'}"
    disrupted = conditions.get("DisruptionTarget", {})
    if disrupted.get("status") == "True":
        return f"the cluster took the sandbox away: {disrupted.get('reason')}: {disrupted.get('message')}"
    for which, state in _states(pod):
        ended = state.get("terminated")
        if ended and not which:
            return _in_words(int(ended.get("exitCode") or 0), str(ended.get("reason") or ""))
    if reason:
        return f"the cluster ended the sandbox: {reason}: {said}"
    if _deleted(pod):
        return (
            "the sandbox's pod was deleted by somebody else: an eviction through the API (a drained node), a preemption, or "
            "a person"
        )
    return ""


def _in_words(code: int, reason: str) -> str:
    if reason == "OOMKilled":
        return "the sandbox was killed: it ran out of memory (OOMKilled)"
    if code == 0:
        return "the sandbox ended by itself: its lease or its lifetime was over, or its server had gone"
    if code == _KILLED:
        return "the sandbox was killed from outside (container status 137)"
    return f"the sandbox's guest ended with status {code} ({reason})"


def _states(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the container that carries the guest in, then the box, each with its state."""
    status = _status(pod)
    for each in status.get("initContainerStatuses") or ():
        yield " (its guest image)", each.get("state") or {}
    for each in status.get("containerStatuses") or ():
        if each["name"] == BOX:
            yield "", each.get("state") or {}


def _status(pod: Pod) -> Mapping[str, Any]:
    return pod.get("status") or {}


def _deleted(pod: Pod) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
