"""Addresses and their queries."""

from webquery.address import get_param, set_param, split_address
from webquery.escape import decode, encode
from webquery.query import build_query, parse_query

__all__ = [
    "build_query",
    "decode",
    "encode",
    "get_param",
    "parse_query",
    "set_param",
    "split_address",
]
