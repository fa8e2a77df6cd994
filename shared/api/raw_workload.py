"""Workloads whose pod templates are kept byte for byte, for those who write them back.

The gateway makes Workloads of jobs and must not lose a field of their templates; deciding needs only the lean view,
which `lean` gives. Raw bytes are JSON: these Structs cannot be encoded as MessagePack.
"""

import msgspec

from shared.api import names
from shared.api.decoding import decode
from shared.api.meta import ObjectMeta
from shared.api.pods import PodTemplateSpec
from shared.api.schema_hints import ApiStruct, always
from shared.api.workload import PodSet, PodSetBase, Workload, WorkloadSpec, WorkloadSpecBase
from shared.api.workload_status import WorkloadStatus


class RawPodSet(PodSetBase, frozen=True, kw_only=True):
    """A pod set with its template as JSON bytes."""

    template: msgspec.Raw

    def lean(self) -> PodSet:
        """Raises msgspec.ValidationError when the bytes are not a pod template."""
        return PodSet(
            name=self.name,
            count=self.count,
            min_count=self.min_count,
            topology_request=self.topology_request,
            template=decode(PodTemplateSpec, bytes(self.template)),
        )


class RawWorkloadSpec(WorkloadSpecBase, frozen=True, kw_only=True):
    pod_sets: tuple[RawPodSet, ...] = ()


class RawWorkload(ApiStruct, frozen=True, kw_only=True):
    """A Workload whose encoding holds its templates unchanged."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.WORKLOAD)
    metadata: ObjectMeta = ObjectMeta()
    spec: RawWorkloadSpec = RawWorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    def lean(self) -> Workload:
        """The view decisions work with. Raises msgspec.ValidationError when a template is not one."""
        spec = self.spec
        return Workload(
            api_version=self.api_version,
            metadata=self.metadata,
            spec=WorkloadSpec(
                pod_sets=tuple(pod_set.lean() for pod_set in spec.pod_sets),
                queue_name=spec.queue_name,
                priority_class_ref=spec.priority_class_ref,
                priority=spec.priority,
                active=spec.active,
                maximum_execution_time_seconds=spec.maximum_execution_time_seconds,
                preemption_gates=spec.preemption_gates,
            ),
            status=self.status,
        )
