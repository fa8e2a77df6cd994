"""Who may do what on NATS: the permissions of every user, made of the table of streams and nothing else (design, section 4).

Only values: `server_config` makes a configuration file of them. A service may publish what the table gives it, create and read its own
consumers under their fixed names, renew the lease of its role, and call the services named for it. `$JS.API.STREAM.*` is the gateway's, but for INFO
of the streams a service reads: it tells a wiped stream from the one that was read before (R1).
"""

from __future__ import annotations

import msgspec

from shared.events import streams, subjects

PURPOSES = ("objects", "epoch", "decisions", "outcomes", "commands", "load", "events", "dead")
"""What a service has consumers for; a name is `<service>-<number>-<purpose>`."""

_OF_STREAM = {
    "OBJECTS": ("objects", "load"),
    "OUTCOMES": ("outcomes", "load"),
    "COMMANDS": ("commands",),
    "EVENTS": ("events",),
    "DEADLETTER": ("dead",),
}


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """Allow lists of one user; everything else is denied. `responses`: may answer requests that it received."""

    user: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    responses: bool = False


def consumer_names(service: str, purpose: str) -> tuple[str, ...]:
    """The names under which instances of a service may read, one each; every other is denied. Raises ValueError for an unknown purpose."""
    if purpose not in PURPOSES:
        raise ValueError(f"no such purpose of a consumer: {purpose!r}")
    return tuple(f"{service}-{number}-{purpose}" for number in range(streams.REPLICAS))


def inbox(user: str) -> str:
    """Prefix of everything that is sent to this user alone."""
    return f"_INBOX_{user}"


def lease_subject(role: str, shard: str) -> str:
    """Key of a role's lease in the bucket."""
    return f"$KV.{streams.LEASES_BUCKET}.{role}.{subjects.escape(shard)}"


def _consumers(service: str, stream: str, purpose: str) -> list[str]:
    allowed = []
    for name in consumer_names(service, purpose):
        allowed += [
            f"$JS.API.CONSUMER.CREATE.{stream}.{name}",
            f"$JS.API.CONSUMER.CREATE.{stream}.{name}.>",
            f"$JS.API.CONSUMER.DELETE.{stream}.{name}",
            f"$JS.API.CONSUMER.INFO.{stream}.{name}",
            f"$JS.FC.{stream}.{name}.>",
        ]
    return allowed


def _log_consumers(service: str) -> list[str]:
    # The name of an epoch's stream is not known before: the filter, which the server compares with the subject of the request, keeps the consumer to logs.
    allowed = []
    for name in consumer_names(service, "decisions"):
        allowed += [
            f"$JS.API.CONSUMER.CREATE.*.{name}.sluice.decisions.>",
            f"$JS.API.CONSUMER.DELETE.*.{name}",
            f"$JS.API.CONSUMER.INFO.*.{name}",
            f"$JS.FC.*.{name}.>",
        ]
    return allowed


def of_service(service: str) -> Permissions:
    """Permissions of one service of the table."""
    publish: list[str] = []
    for stream in streams.STREAMS:
        publish += stream.publishers.get(service, ())
        if service not in stream.readers:
            continue
        if stream.per_epoch:
            publish += _log_consumers(service)
            continue
        publish.append(f"$JS.API.STREAM.INFO.{stream.name}")
        for purpose in _OF_STREAM[stream.name]:
            if purpose != "load" or service == streams.GATEWAY:
                publish += _consumers(service, stream.name, purpose)
        if stream.name == "OBJECTS":
            publish += _consumers(service, stream.name, "epoch")
    if service == streams.GATEWAY:
        publish.append("$JS.API.STREAM.>")
    if service in streams.LEASE_HOLDERS:
        key = f"$KV.{streams.LEASES_BUCKET}.{service}.*"
        publish += [key, f"$JS.API.DIRECT.GET.KV_{streams.LEASES_BUCKET}.{key}"]
    publish += [f"sluice.rpc.{callee}.>" for callee in streams.RPC_CALLS.get(service, ())]
    return Permissions(
        user=service,
        publish=tuple(dict.fromkeys(publish)),
        subscribe=(f"{inbox(service)}.>", f"sluice.rpc.{service}.>"),
        responses=True,
    )


def of_reader(user: str, namespaces: tuple[str, ...] = ()) -> Permissions:
    """Permissions of an outside reader: live public events (of these namespaces; none given: of all) and nothing else."""
    return Permissions(user=user, publish=(), subscribe=reader_imports(namespaces))


def reader_imports(namespaces: tuple[str, ...]) -> tuple[str, ...]:
    """What the account of a reader imports."""
    if not namespaces:
        return ("sluice.events.>",)
    return tuple(f"sluice.events.{subjects.escape(n)}.>" for n in namespaces)
