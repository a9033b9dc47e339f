"""Who a replica is to the others over a network: a certificate by the store's own authority, made at each start.

Used by `server/replicas/joining` and `forward`. The authority's key is in the shared store beside the secret of passes:
whoever can read it can read every record anyway, so operators have no certificates to make, and a restart renews them.
A replica's name is how the ids of its environments begin, which no two servers share: who calls one takes no other name,
who is called takes any that the authority signed.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import grpc

from rock_env.errors import InvalidArgument
from rock_env.store.postgres.members import Member, Members
from rock_env.threads import for_life

__all__ = ["Identity", "identity"]

_EARLIER = datetime.timedelta(days=1)
"""How far the clocks of two machines may differ."""
_GOOD = datetime.timedelta(days=3650)
_AUTHORITY = "rock store"


@dataclass(frozen=True, slots=True)
class Identity:
    """PEM: the authority's certificate, and this replica's own with its key."""

    authority: bytes
    certificate: bytes
    key: bytes

    def server(self) -> grpc.ServerCredentials:
        """Return what lets in replicas of the same store and nobody else."""
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)], root_certificates=self.authority, require_client_auth=True
        )

    def client(self) -> grpc.ChannelCredentials:
        """Return what shows a replica of the same store who this one is."""
        return grpc.ssl_channel_credentials(
            root_certificates=self.authority, private_key=self.key, certificate_chain=self.certificate
        )

    @staticmethod
    def options(member: Member) -> list[tuple[str, str]]:
        """Return the channel's options that take no replica but this one at its address."""
        return [("grpc.ssl_target_name_override", _name(member.environments))]


async def identity(members: Members, environments: str) -> Identity:
    """Make a certificate for the replica with this prefix. Raise `InvalidArgument` where there is no library for it."""
    try:
        from rock_env.server.replicas.trust import issuing
    except ImportError as error:
        raise InvalidArgument(
            "--peers needs the package `cryptography` to make certificates: pip install 'ale-rl[postgres]'."
        ) from error
    kept = await members.authority()
    if kept is None:
        kept = await members.keep_authority(*await for_life(issuing.authority, _AUTHORITY, _EARLIER, _GOOD))
    key, authority = kept
    own = await for_life(issuing.issued, key, authority, _name(environments), _EARLIER, _GOOD)
    return Identity(authority, *own)


def _name(environments: str) -> str:
    return f"{environments}.replica.rock.internal"
