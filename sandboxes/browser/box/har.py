"""The requests of an episode as a HAR 1.2 file: addresses, methods, headers, statuses, sizes and times, and no content.

Fed with Chromium's Network events of each tab. Bounded: of many requests the first are kept.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

__all__ = ["MOST_REQUESTS", "HarLog"]

MOST_REQUESTS = 2000
_MOST_TEXT = 2000
_MOST_HEADERS = 60


class HarLog:
    """The requests so far. A redirect's hops are entries of their own."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._open: dict[tuple[int, str], tuple[dict[str, Any], float]] = {}
        """By tab and request: its entry, and when it was sent."""

    def sent(self, tab: int, event: dict[str, Any]) -> None:
        """Take `Network.requestWillBeSent`."""
        key, at = (tab, event["requestId"]), float(event.get("timestamp", 0.0))
        if "redirectResponse" in event:
            self._answered(key, event["redirectResponse"])
            self._ended(key, at, 0)
        if len(self._entries) >= MOST_REQUESTS:
            return
        asked = event["request"]
        entry: dict[str, Any] = {
            "startedDateTime": datetime.fromtimestamp(float(event.get("wallTime", 0.0)), UTC).isoformat(),
            "time": -1,
            "request": {
                "method": str(asked["method"])[:20],
                "url": str(asked["url"])[:_MOST_TEXT],
                "httpVersion": "HTTP/1.1",
                "cookies": [],
                "headers": _headers(asked.get("headers", {})),
                "queryString": [],
                "headersSize": -1,
                "bodySize": len(asked.get("postData", "")),
            },
            "response": _response({}),
            "cache": {},
            "timings": {"send": 0, "wait": -1, "receive": -1},
        }
        self._entries.append(entry)
        self._open[key] = entry, at

    def received(self, tab: int, event: dict[str, Any]) -> None:
        """Take `Network.responseReceived`."""
        self._answered((tab, event["requestId"]), event["response"])

    def ended(self, tab: int, event: dict[str, Any]) -> None:
        """Take `Network.loadingFinished` or `Network.loadingFailed`."""
        key = (tab, event["requestId"])
        if key in self._open and "errorText" in event:
            self._open[key][0]["response"]["_error"] = str(event["errorText"])[:200]
        self._ended(key, float(event.get("timestamp", 0.0)), int(event.get("encodedDataLength", -1)))

    def text(self) -> str:
        """Return the file."""
        log = {"version": "1.2", "creator": {"name": "ale browser", "version": "1"}, "entries": self._entries}
        return json.dumps({"log": log})

    def _answered(self, key: tuple[int, str], response: dict[str, Any]) -> None:
        if key in self._open:
            self._open[key][0]["response"] = _response(response)

    def _ended(self, key: tuple[int, str], at: float, size: int) -> None:
        found = self._open.pop(key, None)
        if found is not None:
            entry, began = found
            entry["time"] = entry["timings"]["wait"] = round(max(0.0, at - began) * 1000, 3)
            entry["timings"]["receive"] = 0
            entry["response"]["bodySize"] = size


def _response(told: dict[str, Any]) -> dict[str, Any]:
    headers = told.get("headers", {})
    return {
        "status": int(told.get("status", 0)),
        "statusText": str(told.get("statusText", ""))[:200],
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _headers(headers),
        "content": {"size": -1, "mimeType": str(told.get("mimeType", ""))[:200]},
        "redirectURL": str(headers.get("Location", ""))[:_MOST_TEXT],
        "headersSize": -1,
        "bodySize": -1,
    }


def _headers(told: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"name": str(name)[:200], "value": str(value)[:_MOST_TEXT]}
        for name, value in list(told.items())[:_MOST_HEADERS]
    ]
