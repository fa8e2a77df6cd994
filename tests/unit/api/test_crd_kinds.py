"""The shipped definitions: complete, current, and in agreement with the Structs they come from."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from cli import crds
from shared.api import names
from shared.api.crd import Crd, manifest, structural_schema
from shared.api.crd_kinds import KINDS
from shared.api.decoding import convert, encode
from shared.jobs.manifest import section

CRD_FOLDER = Path(__file__).parents[3] / "k8s" / "crds"
KIND_IDS = [crd.kind for crd in KINDS]

Node = dict[str, object]


def nodes(schema: object, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every schema node with its path."""
    assert isinstance(schema, dict)
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


def all_nodes(crd: Crd, version: str = names.V1BETA2) -> list[tuple[str, Node]]:
    (struct,) = [v.struct for v in crd.versions if v.name == version]
    return list(nodes(structural_schema(struct)))


def of_both_versions(crd: Crd) -> list[tuple[str, Node]]:
    return [*all_nodes(crd, names.V1BETA1), *all_nodes(crd)]


def test_files_on_disk_are_current() -> None:
    assert crds.differing(CRD_FOLDER) == []


@pytest.mark.parametrize("crd", KINDS, ids=KIND_IDS)
def test_names_and_scope(crd: Crd) -> None:
    expected = {
        "ClusterQueue": ("clusterqueues", False, ("cq",), True),
        "LocalQueue": ("localqueues", True, ("queue", "queues", "lq"), True),
        "Cohort": ("cohorts", False, ("co",), True),
        "Workload": ("workloads", True, ("kwl", "kueueworkload", "kueueworkloads"), True),
        "ResourceFlavor": ("resourceflavors", False, ("flavor", "flavors", "rf"), False),
        "AdmissionCheck": ("admissionchecks", False, ("ac",), True),
        "WorkloadPriorityClass": ("workloadpriorityclasses", False, ("wpc",), False),
        "Topology": ("topologies", False, ("topo",), False),
        "MultiKueueCluster": ("multikueueclusters", False, ("mkc",), True),
        "MultiKueueConfig": ("multikueueconfigs", False, ("mkconf",), False),
        "ProvisioningRequestConfig": ("provisioningrequestconfigs", False, ("prc",), False),
    }
    assert (crd.plural, crd.namespaced, crd.short_names, crd.status) == expected[crd.kind]


@pytest.mark.parametrize("crd", KINDS, ids=KIND_IDS)
def test_one_version_is_stored_and_its_struct_knows_its_kind(crd: Crd) -> None:
    assert [version.storage for version in crd.versions].count(True) == 1
    stored = next(version for version in crd.versions if version.storage)
    defaults = {
        field.name: field.default_factory()
        for field in msgspec.structs.fields(stored.struct)
        if field.name == "kind" and callable(field.default_factory)
    }
    assert defaults == {"kind": crd.kind}
    assert stored.name == names.V1BETA2


@pytest.mark.parametrize("crd", KINDS, ids=KIND_IDS)
def test_the_older_version_is_served_with_a_warning(crd: Crd) -> None:
    spec = manifest(crd)["spec"]
    assert isinstance(spec, dict)
    versions = {version["name"]: version for version in spec["versions"]}
    assert set(versions) == {names.V1BETA1, names.V1BETA2}
    assert all(version["served"] for version in versions.values())
    if crd.kind != names.MULTIKUEUE_CONFIG:
        # Kueue never called that one deprecated.
        assert names.GROUP_VERSION in versions[names.V1BETA1]["deprecationWarning"]
    assert versions[names.V1BETA1].get("subresources") == versions[names.V1BETA2].get("subresources")


@pytest.mark.parametrize("crd", KINDS, ids=KIND_IDS)
def test_versions_that_differ_are_converted(crd: Crd) -> None:
    """Whoever changes one version only has to convert it. Limits and rules may differ."""

    def fields(version: str) -> set[str]:
        return {path for path, _ in all_nodes(crd, version)}

    assert crd.converted == (fields(names.V1BETA1) != fields(names.V1BETA2))
    document: dict[str, object] = {**manifest(crd)}
    conversion = section(document, "spec", "conversion")
    assert conversion["strategy"] == ("Webhook" if crd.converted else "None")
    client_config = section(conversion, "webhook", "clientConfig")
    assert section(client_config, "service").get("path") == ("/convert" if crd.converted else None)


@pytest.mark.parametrize("crd", KINDS, ids=KIND_IDS)
def test_every_list_says_how_it_merges(crd: Crd) -> None:
    for path, node in of_both_versions(crd):
        if node.get("type") == "array":
            assert node["x-kubernetes-list-type"] in ("atomic", "set", "map"), path


@pytest.mark.parametrize("crd", KINDS, ids=KIND_IDS)
def test_kubectl_explain_has_something_to_say_about_every_field(crd: Crd) -> None:
    generic = (".apiVersion", ".kind", ".metadata")
    for path, node in of_both_versions(crd):
        if path not in generic and not path.endswith(("[]", "{}")):
            assert node.get("description"), path


@pytest.mark.parametrize("crd", KINDS, ids=KIND_IDS)
def test_keys_of_list_maps_exist_and_are_there(crd: Crd) -> None:
    for path, node in of_both_versions(crd):
        if node.get("x-kubernetes-list-type") == "map":
            items = node["items"]
            assert isinstance(items, dict)
            keys = node["x-kubernetes-list-map-keys"]
            assert isinstance(keys, list)
            for key in keys:
                assert key in items.get("required", ()) or "default" in items["properties"][key], path


def _defaults(struct: type[msgspec.Struct]) -> Iterator[tuple[str, object, object]]:
    """(field, default of the CRD, default of the Struct as JSON) of a Struct and all Structs in it."""
    seen: set[type] = set()
    waiting = [msgspec.inspect.type_info(struct)]
    while waiting:
        info: object = waiting.pop()
        if isinstance(info, msgspec.inspect.Metadata):
            waiting.append(info.type)
        elif isinstance(info, msgspec.inspect.UnionType):
            waiting += info.types
        elif isinstance(info, msgspec.inspect.VarTupleType):
            waiting.append(info.item_type)
        elif isinstance(info, msgspec.inspect.StructType) and info.cls not in seen:
            seen.add(info.cls)
            for field in info.fields:
                waiting.append(field.type)
                hints = field.type.extra_json_schema if isinstance(field.type, msgspec.inspect.Metadata) else None
                if hints and "default" in hints:
                    factory = field.default_factory
                    value = factory() if callable(factory) else field.default
                    yield f"{info.cls.__name__}.{field.encode_name}", hints["default"], value


@pytest.mark.parametrize("crd", KINDS, ids=KIND_IDS)
def test_defaults_of_the_schema_are_those_of_the_struct(crd: Crd) -> None:
    """An object decoded before and after the API server filled in defaults must be the same."""
    for field, wanted, value in (default for version in crd.versions for default in _defaults(version.struct)):
        if isinstance(value, msgspec.Struct):
            assert convert(type(value), wanted) == value, field
        else:
            assert value == wanted, field


def test_there_are_defaults_to_compare() -> None:
    found = [entry for crd in KINDS for entry in _defaults(crd.versions[-1].struct)]
    assert len(found) > 15


def test_pod_templates_are_kept_whole_and_not_expanded() -> None:
    (workload,) = [crd for crd in KINDS if crd.kind == names.WORKLOAD]
    found = dict(all_nodes(workload))
    template = found[".spec.podSets[].template"]
    assert template["x-kubernetes-preserve-unknown-fields"] is True
    assert "properties" not in template
    assert not [path for path in found if path.startswith(".spec.podSets[].template.")]


def test_names_on_the_wire_that_are_easy_to_get_wrong() -> None:
    (workload,) = [crd for crd in KINDS if crd.kind == names.WORKLOAD]
    found = dict(all_nodes(workload))
    for path in (
        ".spec.podSets[].topologyRequest.podsetSliceRequiredTopologyConstraints[].topology",
        ".spec.podSets[].topologyRequest.podSetSliceRequiredTopology",
        ".status.accumulatedPastExecutionTimeSeconds",
        ".status.admission.podSetAssignments[].delayedTopologyRequest",
        ".status.schedulingStats.evictions[].underlyingCause",
        ".status.admissionChecks[].podSetUpdates[].tolerations[].tolerationSeconds",
    ):
        assert path in found


def test_limits_of_the_workload_lists() -> None:
    (workload,) = [crd for crd in KINDS if crd.kind == names.WORKLOAD]
    found = dict(all_nodes(workload))
    limits = {path: node["maxItems"] for path, node in found.items() if "maxItems" in node}
    assert limits[".spec.podSets"] == 18
    assert limits[".status.conditions"] == 16
    assert limits[".status.admissionChecks"] == 8
    assert limits[".status.schedulingStats.evictions"] == 256
    assert limits[".status.admission.podSetAssignments[].topologyAssignment.slices"] == 1000


def test_writing_makes_a_folder_current_and_says_what_changed(tmp_path: Path) -> None:
    folder = tmp_path / "crds"
    assert len(crds.write(folder)) == len(KINDS) + 1
    assert crds.write(folder) == []
    stale = folder / "kueue.x-k8s.io_cohorts.yaml"
    stale.write_text("x: 1\n")
    (folder / "left_over.yaml").write_text("y: 1\n")
    (folder / "kustomization.yaml").unlink()
    assert crds.differing(folder) == ["kueue.x-k8s.io_cohorts.yaml", "kustomization.yaml", "left_over.yaml"]
    assert crds.main(["--out", str(folder), "--check"]) == 1
    assert crds.main(["--out", str(folder)]) == 0
    assert crds.main(["--out", str(folder), "--check"]) == 0
    assert not (folder / "left_over.yaml").exists()


def test_the_kustomization_lists_every_definition() -> None:
    listed = yaml.safe_load((CRD_FOLDER / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in CRD_FOLDER.glob("kueue*.yaml"))
    assert len(listed) == len(KINDS)


def test_files_are_plain_yaml_of_the_same_content() -> None:
    for name, text in crds.rendered().items():
        assert "&id" not in text, name
        document = yaml.safe_load(text)
        assert document["kind"] in ("CustomResourceDefinition", "Kustomization")


def test_an_object_with_only_defaults_is_just_its_identity() -> None:
    for crd in KINDS:
        if crd.kind in (names.CLUSTER_QUEUE, names.LOCAL_QUEUE, names.COHORT, names.RESOURCE_FLAVOR, names.WORKLOAD):
            encoded = msgspec.json.decode(encode(crd.versions[-1].struct()))
            assert encoded == {"apiVersion": names.GROUP_VERSION, "kind": crd.kind}
