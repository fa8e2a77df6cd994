"""Certificates of the webhooks: what they are good for, when they are made anew, and what the API server is told to trust."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from services.watcher.certificates import (
    CA_LIFE,
    CONFIGURATIONS,
    CONVERTED,
    LIFE,
    Certificates,
    kept_authority,
    make_authority,
    make_pair,
    usable,
)
from shared.api.crd_kinds import CONVERTED as CONVERTED_DEFINITIONS
from shared.kube.client import KubeClient
from shared.kube.errors import Conflict, Forbidden
from shared.kube.resources import CRDS, SECRETS, Resource
from tests.unit.kube.api_server import ApiServer, client_of, status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ("kueue-webhook-service.kueue-system.svc", "127.0.0.1")
SECRET = "kueue-webhook-server-cert"
QUEUES = "clusterqueues.kueue.x-k8s.io"
OWN = tuple(
    f"{service}.kueue-system.{domain}"
    for service in ("kueue-webhook-service", "kueue-conversion-service")
    for domain in ("svc", "svc.cluster.local")
)


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def leaf(data: dict[str, str]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))


def bundle(data: dict[str, str]) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(base64.b64decode(data["ca.crt"]))


# The pair.


def test_a_pair_serves_its_hosts_and_is_signed_by_its_authority() -> None:
    data = make_pair(HOSTS, NOW).secret_data()
    names = leaf(data).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOSTS[0]]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == [HOSTS[1]]
    leaf(data).verify_directly_issued_by(bundle(data)[0])
    assert leaf(data).not_valid_after_utc == NOW + LIFE
    assert bundle(data)[0].not_valid_after_utc == NOW + CA_LIFE
    assert leaf(data).not_valid_before_utc < NOW
    constraints = bundle(data)[0].extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value.ca
    assert usable(data, HOSTS, NOW)


def test_the_common_name_of_a_long_host_fits() -> None:
    data = make_pair((("a" * 60 + ".") * 3 + "svc",), NOW).secret_data()
    assert usable(data, (("a" * 60 + ".") * 3 + "svc",), NOW)


@pytest.mark.parametrize("missing", ["ca.crt", "tls.crt", "tls.key"])
@pytest.mark.parametrize("instead", [None, "", "!", encoded(b"garbage")])
def test_a_spoilt_part_makes_it_unusable(missing: str, instead: str | None) -> None:
    data = make_pair(HOSTS, NOW).secret_data()
    del data[missing]
    if instead is not None:
        data[missing] = instead
    assert not usable(data, HOSTS, NOW)


@pytest.mark.parametrize("mixed", ["ca.crt", "tls.crt", "tls.key"])
def test_parts_of_different_pairs_do_not_fit(mixed: str) -> None:
    data, other = make_pair(HOSTS, NOW).secret_data(), make_pair(HOSTS, NOW).secret_data()
    assert not usable({**data, mixed: other[mixed]}, HOSTS, NOW)


def test_an_encrypted_key_is_no_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    data = {**make_pair(HOSTS, NOW).secret_data(), "tls.key": encoded(pem), "ca.key": encoded(pem)}
    assert not usable(data, HOSTS, NOW)
    assert kept_authority(data, NOW) is None


def test_other_names_need_another_certificate() -> None:
    data = make_pair(HOSTS, NOW).secret_data()
    assert usable(data, HOSTS[:1], NOW)
    assert not usable(data, (*HOSTS, "10.0.0.1"), NOW)


def test_a_third_of_its_life_must_be_left() -> None:
    data = make_pair(HOSTS, NOW).secret_data()
    due = NOW + LIFE * 2 / 3
    assert usable(data, HOSTS, due - timedelta(seconds=1))
    assert not usable(data, HOSTS, due)


def test_a_certificate_is_of_no_use_without_a_valid_authority() -> None:
    authority = make_authority(NOW - CA_LIFE + LIFE / 3)
    data = make_pair(HOSTS, NOW, authority).secret_data()
    assert not usable(data, HOSTS, NOW)


# The authority.


def test_the_authority_is_kept_until_it_would_end_before_what_it_signs() -> None:
    data = make_pair(HOSTS, NOW).secret_data()
    last = NOW + CA_LIFE - LIFE
    assert kept_authority(data, last - timedelta(seconds=1)) is not None
    assert kept_authority(data, last) is None


def test_an_authority_that_is_not_ours_is_not_kept() -> None:
    data = make_pair(HOSTS, NOW).secret_data()
    other = make_pair(HOSTS, NOW).secret_data()
    foreign = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    assert kept_authority({**data, "ca.key": other["ca.key"]}, NOW) is None
    assert kept_authority({**data, "ca.key": encoded(foreign)}, NOW) is None
    assert kept_authority({**data, "ca.key": encoded(b"garbage")}, NOW) is None
    assert kept_authority({"ca.crt": data["ca.crt"]}, NOW) is None


def test_a_new_authority_comes_with_the_newest_old_one() -> None:
    first = make_authority(NOW)
    second = make_authority(NOW, first.bundle)
    third = make_authority(NOW, second.bundle)
    trusted = x509.load_pem_x509_certificates(third.bundle)
    assert trusted == [third.certificate, second.certificate]
    assert x509.load_pem_x509_certificates(make_authority(NOW + CA_LIFE, first.bundle).bundle)[1:] == []
    assert len(x509.load_pem_x509_certificates(make_authority(NOW, b"garbage").bundle)) == 1


# The Secret and the configurations.


class World:
    """An API server with both webhook configurations and one definition, and a keeper of certificates with a clock of ours."""

    def __init__(self, api: ApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.now = NOW

    def keeper(self, url: str = "") -> Certificates:
        return Certificates(
            self.client,
            namespace="kueue-system",
            secret=SECRET,
            service="kueue-webhook-service",
            url=url,
            now=lambda: self.now.timestamp(),
        )

    @property
    def data(self) -> dict[str, str]:
        found: dict[str, str] = self.api.objects["secrets"][("kueue-system", SECRET)]["data"]
        return found

    def client_configs(self) -> list[dict[str, Any]]:
        return [
            webhook["clientConfig"]
            for resource, name in CONFIGURATIONS
            for webhook in self.api.objects[resource.plural][("", name)]["webhooks"]
        ]

    def conversion(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects["customresourcedefinitions"][("", QUEUES)]["spec"]["conversion"]
        return found

    def writes(self) -> list[str]:
        return [f"{method} {path}" for method, path, _, _ in self.api.requests if method != "GET"]


CONVERSION = {"name": "kueue-conversion-service", "namespace": "kueue-system", "path": "/convert", "port": 443}


async def define(api: ApiServer, conversion: dict[str, Any]) -> None:
    await api.put(CRDS, {"metadata": {"name": QUEUES}, "spec": {"group": "kueue.x-k8s.io", "conversion": conversion}})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    api = ApiServer()
    for resource, name in CONFIGURATIONS:
        service = {"name": "kueue-webhook-service", "namespace": "kueue-system", "path": f"/{resource.plural}"}
        webhooks = [
            {"name": "a", "clientConfig": {"service": service}},
            {"name": "b", "clientConfig": {"service": service}},
        ]
        await api.put(resource, {"metadata": {"name": name}, "webhooks": webhooks})
    await define(api, {"strategy": "Webhook", "webhook": {"clientConfig": {"service": CONVERSION}}})
    async with client_of(api) as client:
        yield World(api, client)


async def test_made_when_missing_and_then_left_alone(world: World) -> None:
    await world.keeper().ensure()
    assert usable(world.data, OWN, NOW)
    assert {config["caBundle"] for config in world.client_configs()} == {world.data["ca.crt"]}
    assert all(config["service"]["name"] == "kueue-webhook-service" for config in world.client_configs())
    assert world.conversion()["webhook"]["clientConfig"] == {"service": CONVERSION, "caBundle": world.data["ca.crt"]}
    assert len(world.writes()) == 4
    await world.keeper().ensure()
    assert len(world.writes()) == 4


def webhooks_of(world: World, resource: Resource, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.api.objects[resource.plural][("", name)]["webhooks"]
    return found


async def test_webhooks_that_kueue_left_beside_ours_are_removed(world: World) -> None:
    (mutating, name), (validating, other) = CONFIGURATIONS
    ours = {"matchConditions": [{"name": "x", "expression": "true"}, {"name": "not-the-watcher", "expression": "true"}]}
    webhooks_of(world, mutating, name)[0].update(ours)
    await world.keeper().ensure()
    assert [w["name"] for w in webhooks_of(world, mutating, name)] == ["a"]
    # One that is Kueue's alone is not ours to empty.
    assert [w["name"] for w in webhooks_of(world, validating, other)] == ["a", "b"]
    writes = len(world.writes())
    await world.keeper().ensure()
    assert len(world.writes()) == writes


async def test_a_url_replaces_the_service_and_is_among_the_names(world: World) -> None:
    await world.keeper("https://127.0.0.1:9443/").ensure()
    assert usable(world.data, (*OWN, "127.0.0.1"), NOW)
    urls = [config["url"] for config in world.client_configs()]
    assert urls[0] == "https://127.0.0.1:9443/mutatingwebhookconfigurations"
    assert not any("service" in config for config in world.client_configs())
    await world.keeper("https://127.0.0.1:9444").ensure()
    assert [config["url"] for config in world.client_configs()] == [u.replace("9443", "9444") for u in urls]
    wanted = {"url": "https://127.0.0.1:9444/convert", "caBundle": world.data["ca.crt"]}
    assert world.conversion() == {"strategy": "Webhook", "webhook": {"clientConfig": wanted}}


async def test_a_definition_that_converts_nothing_is_left_alone(world: World) -> None:
    await define(world.api, {"strategy": "None"})
    await world.keeper().ensure()
    assert world.conversion() == {"strategy": "None"}
    assert not [w for w in world.writes() if QUEUES in w]


async def test_a_definition_that_changed_meanwhile_is_not_overwritten(world: World) -> None:
    async def changed(request: web.Request) -> web.StreamResponse | None:
        if request.method != "PATCH":
            world.api.faults.append(changed)
        else:
            await define(world.api, {"strategy": "None"})
        return None

    world.api.faults.append(changed)
    with pytest.raises(Conflict):
        await world.keeper().ensure()
    assert world.conversion() == {"strategy": "None"}


def test_the_kinds_are_those_whose_definitions_say_so() -> None:
    assert {f"{kind.plural}.{kind.group}" for kind in CONVERTED} == set(CONVERTED_DEFINITIONS)


async def test_rotation_keeps_what_is_trusted(world: World) -> None:
    await world.keeper().ensure()
    before = dict(world.data)
    world.now = NOW + LIFE * 2 / 3
    await world.keeper().ensure()
    assert world.data["tls.crt"] != before["tls.crt"]
    assert world.data["ca.crt"] == before["ca.crt"]
    assert usable(world.data, OWN, world.now)
    assert [w for w in world.writes() if "secrets" not in w] == world.writes()[1:4]


async def test_at_the_end_of_an_authority_the_old_one_stays_trusted(world: World) -> None:
    await world.keeper().ensure()
    old = bundle(world.data)
    world.now = NOW + CA_LIFE - LIFE
    await world.keeper().ensure()
    assert bundle(world.data)[1:] == old
    leaf(world.data).verify_directly_issued_by(bundle(world.data)[0])
    assert {config["caBundle"] for config in world.client_configs()} == {world.data["ca.crt"]}
    assert world.conversion()["webhook"]["clientConfig"]["caBundle"] == world.data["ca.crt"]


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": encoded(b"garbage")}, {"foreign": encoded(b"x")}])
async def test_an_empty_or_foreign_secret_is_filled(world: World, data: dict[str, str] | None) -> None:
    document: dict[str, Any] = {"metadata": {"name": SECRET, "namespace": "kueue-system"}, "type": "kubernetes.io/tls"}
    await world.api.put(SECRETS, document if data is None else {**document, "data": data})
    await world.keeper().ensure()
    assert usable(world.data, OWN, NOW)
    # The type of a Secret cannot change: asking for it would be refused for ever.
    assert world.api.objects["secrets"][("kueue-system", SECRET)]["type"] == "kubernetes.io/tls"


async def test_who_loses_the_race_to_create_uses_what_is_there(world: World) -> None:
    winners = make_pair(OWN, NOW).secret_data()

    async def overtaken(_: web.Request) -> web.StreamResponse | None:
        await world.api.put(SECRETS, {"metadata": {"name": SECRET, "namespace": "kueue-system"}, "data": winners})
        return status(404, "NotFound")

    world.api.faults.append(overtaken)
    await world.keeper().ensure()
    assert world.data == winners
    assert {config["caBundle"] for config in world.client_configs()} == {winners["ca.crt"]}


async def test_what_is_there_after_a_lost_race_may_be_garbage(world: World) -> None:
    async def overtaken(_: web.Request) -> web.StreamResponse | None:
        await world.api.put(SECRETS, {"metadata": {"name": SECRET, "namespace": "kueue-system"}, "data": {}})
        return status(404, "NotFound")

    world.api.faults.append(overtaken)
    with pytest.raises(ValueError, match="unusable"):
        await world.keeper().ensure()
    await world.keeper().ensure()
    assert usable(world.data, OWN, NOW)


async def test_a_refusal_is_the_callers(world: World) -> None:
    async def forbidden(_: web.Request) -> web.StreamResponse | None:
        return status(403, "Forbidden")

    world.api.faults.append(forbidden)
    with pytest.raises(Forbidden):
        await world.keeper().ensure()


async def test_a_configuration_that_is_not_there_is_left_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    (resource, name), (_, other) = CONFIGURATIONS
    del world.api.objects[resource.plural][("", name)]
    keeper = world.keeper()
    for _ in range(2):
        await keeper.ensure()
    assert [r.configuration for r in caplog.records if "no such webhook" in r.message] == [name]  # type: ignore[attr-defined]
    assert [w.rpartition("/")[2] for w in world.writes() if "webhookconf" in w] == [other]


async def test_says_when_all_was_done_once(world: World) -> None:
    keeper = world.keeper()
    running = asyncio.create_task(keeper.run())
    try:
        async with asyncio.timeout(5):
            await keeper.done.wait()
        assert {config["caBundle"] for config in world.client_configs()} == {world.data["ca.crt"]}
    finally:
        running.cancel()
