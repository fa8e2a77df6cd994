import pytest

from shared.jobs.naming import limited_name, pod_template_name, variant_name, workload_name


@pytest.mark.parametrize(
    ("kind", "group", "name", "uid", "extra", "expected"),
    [
        ("Job", "batch", "name", "uid", "", "job-name-ef3a1"),
        ("Job", "batch", "name", "uid", "1", "job-name-2514c"),
        ("Pod", "", "pod", "test-uid", "", "pod-pod-43ebf"),
        ("StatefulSet", "apps", "sts", "sts-uid", "", "statefulset-sts-d8800"),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io", "lws-0", "uid-1", "", "leaderworkerset-lws-0-76f84"),
        ("RayCluster", "ray.io", "rc", "u", "", "raycluster-rc-2c4a9"),
    ],
)
def test_published_vectors(kind: str, group: str, name: str, uid: str, extra: str, expected: str) -> None:
    assert workload_name(kind=kind, group=group, name=name, uid=uid, extra=extra) == expected


def test_long_names_are_cut_before_the_hash_and_stay_apart() -> None:
    one = workload_name(kind="Job", group="batch", name="a" * 253, uid="1")
    other = workload_name(kind="Job", group="batch", name="a" * 253, uid="2")
    assert len(one) == len(other) == 253
    assert one[:-5] == other[:-5] == "job-" + "a" * 243 + "-"
    assert one != other


def test_short_names_have_63_characters() -> None:
    assert len(workload_name(kind="Job", group="batch", name="b" * 100, uid="1", limit=63)) == 63


def test_the_cut_may_leave_a_separator() -> None:
    name = "x" * 51 + "-" + "y" * 20
    assert workload_name(kind="Job", group="batch", name=name, uid="1", limit=63)[:58] == f"job-{'x' * 51}-y-"


def test_limited_name_keeps_what_fits() -> None:
    assert limited_name("a" * 247) == "a" * 247
    long = limited_name("a" * 248)
    assert len(long) == 253
    assert long.startswith("a" * 247 + "-")


def test_pod_template_name() -> None:
    assert pod_template_name("job-x-1a2b3-check-1", "main") == "ppt-job-x-1a2b3-check-1-main"


def test_the_name_of_a_variant_is_its_parents_with_the_flavor() -> None:
    one, other = variant_name("job-sample-1a2b3", "spot"), variant_name("job-sample-1a2b4", "spot")
    assert one[:-5] == other[:-5] == "job-sample-variant-spot-"
    assert one != other
    # A group of pods is named by its user: nothing is cut off.
    assert variant_name("group-12345x", "spot").startswith("group-12345x-variant-spot-")
    assert variant_name("group", "a").startswith("group-variant-a-")


def test_the_name_of_a_variant_fits() -> None:
    longest = variant_name("j" * 247 + "-1a2b3", "f" * 253)
    assert len(longest) == 253
    assert longest != variant_name("j" * 247 + "-1a2b3", "f" * 252 + "g")
    assert len(variant_name("job-x-1a2b3", "f" * 60, limit=63)) == 63
