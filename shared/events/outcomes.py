"""What became of decisions and commands: exactly one outcome each, identical duplicates allowed (R6).

`applied` names the resourceVersion that carries the content; the assumption behind the decision is dropped when the reader's view of the workload reaches it.
`rejected` says that the write can never land; its `version` is that of the state which proves it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.events.codec import Codec
from shared.events.decisions import DecisionId


class DecisionOutcome(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="outcomes.Decision/1"
):
    decision: DecisionId
    key: str
    uid: str
    status: Literal["applied", "rejected"]
    version: int = 0
    why: str = ""
    gone: bool = False
    """Rejected since the object is gone: no view will ever reach `version`."""


class CommandOutcome(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="outcomes.Command/1"
):
    command: str
    """The id that its writer gave it."""
    subject: str
    status: Literal["applied", "rejected"]
    version: int = 0
    why: str = ""


Outcome = DecisionOutcome | CommandOutcome
codec: Codec[Outcome] = Codec("outcomes", Outcome)
