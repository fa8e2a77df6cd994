"""apps/v1 Deployment: each of its pods is a job of its own. All there is to do is to mark its pod template."""

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError
from shared.jobs.manifest import JsonObject
from shared.jobs.protocol import Circumstances, Gates
from shared.jobs.queueing_parent import GroupWorkload, marks, with_metadata
from shared.jobs.serving_rules import common_errors


class Deployment:
    """See shared.jobs.queueing_parent.QueueingParent."""

    group = "apps"
    version = "v1"
    kind = "Deployment"
    plural = "deployments"
    framework = "deployment"
    grouped = False

    def foreign(self, parent: JsonObject) -> bool:
        return False

    def marked(self, parent: JsonObject, gates: Gates) -> JsonObject:
        # A pod of it is looked at as a plain one: it needs the labels of a managed pod, too.
        labels = {names.MANAGED_LABEL: "true", **marks(parent, names.QUEUE_NAME_LABEL, names.PRIORITY_CLASS_LABEL)}
        annotations = {names.POD_SUSPENDING_PARENT: self.framework}
        return with_metadata(parent, ("spec", "template"), labels=labels, annotations=annotations)

    def workloads(self, parent: JsonObject) -> tuple[GroupWorkload, ...]:
        return ()

    def resumed(self, parent: JsonObject, old: JsonObject) -> tuple[str, ...]:
        return ()

    def errors(self, parent: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        yield from common_errors(parent, old, around)
