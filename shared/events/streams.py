"""The one table of streams: what each holds, who may publish to it and who may read it.

The gateway creates the streams from it, the NATS server's accounts and permissions are generated from it, and tests attack the result. Nothing else
in the project spells a stream's settings.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.events import subjects

DAY_S = 86_400
MIB = 1 << 20

GATEWAY = "watcher"
SERVICES = (
    GATEWAY,
    "queue_manager",
    "scheduler",
    "preemptor",
    "provisioning_request",
    "metrics",
    "webhook",
)
"""Each is a NATS user with its own inbox prefix."""
READER = "events_reader"
"""The user of external tools: its own account, live public events and nothing else."""

REPLICAS = 8
"""Instances of one service that may read at once: so many names of consumers each has. Which one an instance takes is found out when it opens one."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One stream. `publishers` maps a service to the subjects it may publish (wildcards allowed)."""

    name: str
    subjects: tuple[str, ...]
    publishers: dict[str, tuple[str, ...]]
    readers: tuple[str, ...]
    latest_per_subject: bool = False
    message_ttl: bool = False
    max_age_s: int = 0
    max_bytes: int = -1
    discard: Literal["old", "new"] = "old"
    duplicate_window_s: int = 120
    allow_direct: bool = False
    per_epoch: bool = False
    """A template: `name` and `subjects` are completed with shard and epoch."""


_DECIDERS_READ = ("queue_manager", "scheduler", "preemptor", "metrics", GATEWAY)

STREAMS: tuple[Stream, ...] = (
    Stream(
        name="OBJECTS",
        subjects=("sluice.objects.>",),
        publishers={GATEWAY: ("sluice.objects.>",)},
        readers=SERVICES,
        latest_per_subject=True,
        message_ttl=True,
    ),
    Stream(
        name="DECISIONS",
        subjects=("sluice.decisions",),
        publishers={GATEWAY: ("sluice.decisions.>",), "scheduler": ("sluice.decisions.>",)},
        readers=_DECIDERS_READ,
        max_bytes=512 * MIB,
        discard="new",
        per_epoch=True,
    ),
    Stream(
        name="OUTCOMES",
        subjects=("sluice.outcomes.>",),
        publishers={GATEWAY: ("sluice.outcomes.>",)},
        readers=(*_DECIDERS_READ, "provisioning_request"),
        max_bytes=512 * MIB,
    ),
    Stream(
        name="COMMANDS",
        subjects=("sluice.commands.>",),
        publishers={
            s: (f"sluice.commands.{s}.>",) for s in ("queue_manager", "scheduler", "preemptor", "provisioning_request")
        },
        readers=(GATEWAY,),
        latest_per_subject=True,
    ),
    Stream(
        name="EVENTS",
        subjects=("sluice.events.>",),
        publishers={GATEWAY: ("sluice.events.>",)},
        readers=(GATEWAY, "metrics"),
        max_age_s=7 * DAY_S,
        max_bytes=1024 * MIB,
    ),
    Stream(
        name="DEADLETTER",
        subjects=("sluice.dead.>",),
        publishers={s: (f"sluice.dead.{s}",) for s in SERVICES},
        readers=(GATEWAY, "metrics"),
        max_age_s=7 * DAY_S,
        max_bytes=64 * MIB,
    ),
)

LEASES_BUCKET = "LEASES"
LEASE_HOLDERS = ("scheduler", "queue_manager", "preemptor", "provisioning_request", "metrics")
"""Roles of which one instance is active, acts first (provisioning_request) or counts (metrics); the gateway's lease is a Kubernetes Lease."""
LEASE_TTL_S = 3

RPC_CALLS: dict[str, tuple[str, ...]] = {
    "provisioning_request": (GATEWAY,),
    "metrics": ("scheduler",),
    "webhook": (GATEWAY,),
    GATEWAY: ("scheduler",),
}
"""Caller -> the services whose RPC it may call."""

TOMBSTONE_TTL_S = 3600
"""How long a tombstone stays in OBJECTS; a consumer away for over half of it discards its state and replays."""

DELIVERY_LIMIT = 5
"""Attempts at one message before it is moved to DEADLETTER."""


def decisions_of(shard: str, epoch: int) -> Stream:
    """The stream of one epoch of one shard."""
    template = next(s for s in STREAMS if s.name == "DECISIONS")
    return msgspec.structs.replace(
        template,
        name=subjects.decisions_stream(shard, epoch),
        subjects=(subjects.decisions(shard, epoch),),
        per_epoch=False,
    )
