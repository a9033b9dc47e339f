"""The files in a multipart/form-data body (RFC 7578), as the E2B SDKs send small uploads.

Used by `server/e2b/envd`. Only what it needs: parts with a file name, content as it is.
"""

from __future__ import annotations

from email.message import Message

from rock_env.errors import InvalidArgument

__all__ = ["parts"]


def parts(content_type: str, body: bytes) -> list[tuple[str, bytes]]:
    """Return (file name, content) of each file in the body. Raise `InvalidArgument` for what is none."""
    boundary = _header("content-type", content_type).get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise InvalidArgument("multipart/form-data without a boundary")
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode())
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise InvalidArgument("the multipart/form-data body is cut short")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> tuple[str, bytes]:
    head, separator, content = piece.partition(b"\r\n\r\n")
    if not separator:
        raise InvalidArgument("a part of the multipart/form-data body has no content")
    for line in head.decode(errors="replace").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            file = _header("content-disposition", value.strip()).get_filename()
            if file:
                return file, content
    raise InvalidArgument("a part of the multipart/form-data body has no file name")


def _header(name: str, value: str) -> Message:
    message = Message()
    message[name] = value
    return message
