"""Which jobs are ours, and whose children they are: reads the owners that `shared.jobs.queue_membership` asks for."""

from collections.abc import Mapping

import msgspec

from services.watcher.core_kinds import Namespace
from services.watcher.store import Store
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.selectors import LabelSelector, matches
from shared.config.configuration import Configured, WorkloadRetention
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates
from shared.jobs.protocol import JobKind
from shared.jobs.queue_membership import AncestorSearch, Standing, queue_name, standing
from shared.jobs.registry import INTEGRATED, KNOWN, PARENTS, OwnerKind, enabled_owners, external, token_of
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError, NotFound, Refused
from shared.kube.plurals import Plurals
from shared.kube.resources import Resource


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration says about jobs."""

    namespace_selector: LabelSelector = LabelSelector()
    manage_without_queue_name: bool = False
    wait_for_pods_ready: bool = False
    label_keys_to_copy: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ("batch/job",)
    """Integrations in use, of those that there are."""
    serving: tuple[str, ...] = ()
    """Integrations in use of kinds whose pods queue."""
    only_pods_of_parents: bool = False
    """Pods are managed for the sake of these kinds alone."""
    external_frameworks: tuple[str, ...] = ()
    """Kinds that other managers integrate."""
    gates: FeatureGates = DEFAULT_GATES
    keep_finished_s: float | None = None
    """How long finished workloads are kept; None: for ever."""
    keep_deactivated_s: float | None = None
    """How long jobs are kept whose workload was deactivated by us; None: for ever."""


def job_settings(configured: Configured, namespace: str) -> JobSettings:
    """As the configuration says. `namespace`: where Sluice runs, unless the configuration names it."""
    configuration = configured.configuration
    retention = configuration.object_retention_policies
    kept = retention.workloads if retention is not None else WorkloadRetention()
    there = {kind.framework for kind in INTEGRATED}
    wanted = configuration.integrations.frameworks
    implied = "pod" not in wanted and any(kind.framework in wanted for kind in PARENTS)
    return JobSettings(
        namespace_selector=configuration.managed_namespaces(configured.namespace(namespace)),
        manage_without_queue_name=configuration.manage_jobs_without_queue_name,
        wait_for_pods_ready=configured.wait_for_pods_ready is not None,
        label_keys_to_copy=configuration.integrations.label_keys_to_copy,
        serving=tuple(f for f in wanted if f not in there),
        external_frameworks=configuration.integrations.external_frameworks,
        gates=configured.gates,
        keep_finished_s=kept.after_finished,
        keep_deactivated_s=kept.after_deactivated_by_kueue,
        frameworks=(*(f for f in wanted if f in there), *(("pod",) if implied else ())),
        only_pods_of_parents=implied,
    )


class _Partial(msgspec.Struct):
    metadata: ObjectMeta


_partial = msgspec.json.Decoder(_Partial)


class ManagedJobs:
    """`enabled`: the integrations in use, by how owner references name them."""

    def __init__(
        self, store: Store, client: KubeClient, settings: JobSettings, enabled: Mapping[OwnerKind, JobKind]
    ) -> None:
        self._store = store
        self._client = client
        self._settings = settings
        self._enabled = enabled.keys() | enabled_owners(settings.serving) | external(settings.external_frameworks)
        self._plurals = Plurals(client)

    def may_be_managed(self, metadata: ObjectMeta) -> bool:
        """False if one look at the job tells that it is not ours; cheap, for every event of every Job of the cluster."""
        return (
            self._settings.manage_without_queue_name
            or bool(queue_name(metadata.labels))
            or metadata.controller_owner() is not None
        )

    async def standing(self, metadata: ObjectMeta, *, top_level: bool = False) -> Standing:
        """What a job is to us. `top_level`: it is a job for itself, whoever owns it. Raises OwnershipError, Unavailable."""
        if not self._namespace_matches(metadata.namespace):
            return Standing(managed=False)
        if top_level:
            return Standing(managed=self._settings.manage_without_queue_name or bool(queue_name(metadata.labels)))
        search = AncestorSearch(metadata, manage_all=self._settings.manage_without_queue_name, enabled=self._enabled)
        while (owner := search.next_owner()) is not None:
            search.found(await self._read(metadata.namespace, owner))
        return standing(
            metadata.labels,
            search,
            manage_all=self._settings.manage_without_queue_name,
            namespace_matches=True,
        )

    def _namespace_matches(self, name: str) -> bool:
        stored = self._store.get("namespace", "", name)
        if stored is None or not isinstance(stored.object, Namespace):
            return False
        return matches(self._settings.namespace_selector, stored.object.metadata.labels)

    async def _read(self, namespace: str, owner: OwnerReference) -> ObjectMeta | None:
        kind = OwnerKind(owner.api_version, owner.kind)
        group, _, version = owner.api_version.rpartition("/")
        plural = KNOWN.get(kind)
        watched = self._store.watched.get(token_of(group, owner.kind)) if kind in self._enabled else None
        if watched is not None:
            stored = self._store.get(watched.token, namespace, owner.name)
            if stored is not None or not watched.query:
                return None if stored is None else stored.object.metadata
        try:
            if plural is not None:
                resource = Resource(group, version, plural, owner.kind)
            else:
                resource = await self._plurals.resource(group, version, owner.kind)
            raw = await self._client.get(resource, namespace, owner.name)
        except (NotFound, Refused):
            return None
        try:
            return _partial.decode(raw).metadata
        except msgspec.DecodeError as error:
            raise ApiError(0, "Malformed", f"{owner.kind} {namespace}/{owner.name}: {error}") from error
