"""Credentials as Secrets: made once, kept, replaced only with what they are made of, never shown."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cli.nats_credentials import (
    CA_SECRET,
    CONFIG_KEY,
    CONFIG_SECRET,
    TLS_SECRET,
    USERS,
    Credentials,
    made_of,
    main,
    secret_name,
    server_of,
)
from shared.bus.server_config import Server
from shared.kube.client import KubeClient
from shared.kube.errors import Forbidden
from shared.kube.resources import SECRETS, Resource
from tests.unit.kube.api_server import ApiServer, client_of, kubeconfig, serve, status

NAMESPACE = "kueue-system"
SERVER = Server(store_dir="/data")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")


def credentials(client: KubeClient, server: Server = SERVER) -> Credentials:
    return Credentials(client, namespace=NAMESPACE, url="nats://here:4222", server=server)


def stored(api: ApiServer) -> dict[str, dict[str, str]]:
    """Secret -> values in plain text."""
    secrets: dict[tuple[str, str], dict[str, Any]] = api.objects["secrets"]
    return {
        name: {key: base64.b64decode(value).decode() for key, value in document["data"].items()}
        for (_, name), document in secrets.items()
    }


async def put(api: ApiServer, name: str, **values: str) -> None:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    await api.put(SECRETS, {"metadata": {"name": name, "namespace": NAMESPACE}, "data": data})


async def test_a_secret_per_user_and_the_configuration() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        done = await credentials(client).ensure()
    made = stored(api)
    assert set(made) == {CONFIG_SECRET, *map(secret_name, USERS)}
    assert done == [f"secret/{secret_name(user)} created" for user in USERS] + [f"secret/{CONFIG_SECRET} created"]
    for user in USERS:
        values = made[secret_name(user)]
        assert values["user"] == user
        assert values["url"] == "nats://here:4222"
        assert len(values["password"]) >= 32
        assert f'user: "{user}"' in made[CONFIG_SECRET][CONFIG_KEY]
        assert not any(values["password"] in line for line in done)
    assert len({made[secret_name(user)]["password"] for user in USERS}) == len(USERS)


async def test_a_second_run_changes_nothing() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        await credentials(client).ensure()
        before, writes = stored(api), len([r for r in api.requests if r[0] != "GET"])
        assert await credentials(client).ensure() == []
    assert stored(api) == before
    assert len([r for r in api.requests if r[0] != "GET"]) == writes


async def test_what_is_missing_is_made_and_the_configuration_follows() -> None:
    api = ApiServer()
    await api.put(STATEFUL_SETS, {"metadata": {"name": "sluice-nats", "namespace": NAMESPACE}})
    async with client_of(api) as client:
        await credentials(client).ensure()
        before = stored(api)
        await api.remove(SECRETS, NAMESPACE, secret_name("metrics"))
        done = await credentials(client).ensure()
    after = stored(api)
    assert done == [
        f"secret/{secret_name('metrics')} created",
        f"secret/{CONFIG_SECRET} replaced",
        "statefulset/sluice-nats restarted",
    ]
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {secret_name("metrics"), CONFIG_SECRET}
    template = api.objects["statefulsets"][(NAMESPACE, "sluice-nats")]["spec"]["template"]
    assert list(template["metadata"]["annotations"]) == ["sluice.dev/made-of"]


async def test_a_server_that_is_not_there_need_not_be_restarted() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        await credentials(client).ensure()
        done = await credentials(client, Server(store_dir="/elsewhere")).ensure()
    assert done == [f"secret/{CONFIG_SECRET} replaced"]
    assert "/elsewhere" in stored(api)[CONFIG_SECRET][CONFIG_KEY]


async def test_passwords_of_your_own_are_used() -> None:
    api = ApiServer()
    await put(api, secret_name("scheduler"), password="chosen-by-hand")
    async with client_of(api) as client:
        done = await credentials(client).ensure()
    assert f"secret/{secret_name('scheduler')} created" not in done
    assert stored(api)[secret_name("scheduler")] == {"password": "chosen-by-hand"}


async def test_a_secret_without_a_password_is_an_error_that_names_it() -> None:
    api = ApiServer()
    await put(api, secret_name("scheduler"), other="x")
    async with client_of(api) as client:
        with pytest.raises(ValueError, match=r"secret/sluice-nats-scheduler has no password"):
            await credentials(client).ensure()


async def test_who_loses_the_race_uses_the_winners_password() -> None:
    api = ApiServer()

    async def overtaken(_: web.Request) -> web.StreamResponse | None:
        await put(api, secret_name(USERS[0]), password="the-winners")
        return status(404, "NotFound")

    api.faults.append(overtaken)
    async with client_of(api) as client:
        done = await credentials(client).ensure()
    assert stored(api)[secret_name(USERS[0])] == {"password": "the-winners"}
    assert f"secret/{secret_name(USERS[0])} created" not in done


async def test_a_refusal_is_not_swallowed() -> None:
    api = ApiServer()

    async def forbidden(_: web.Request) -> web.StreamResponse | None:
        return status(403, "Forbidden")

    api.faults.append(forbidden)
    async with client_of(api) as client:
        with pytest.raises(Forbidden):
            await credentials(client).ensure()


def test_the_mark_follows_everything_and_shows_nothing() -> None:
    passwords = {user: f"secret-of-{user}" for user in USERS}
    mark = made_of(SERVER, passwords)
    assert made_of(SERVER, dict(passwords)) == mark
    assert made_of(Server(store_dir="/other"), passwords) != mark
    assert made_of(SERVER, {**passwords, "watcher": "other"}) != mark
    assert not any(password in mark for password in passwords.values())


async def test_the_command_prints_what_it_did_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api = ApiServer()
    async with serve(api) as url:
        arguments = [f"--kubeconfig={kubeconfig(tmp_path, url)}", "--url=nats://there:4222"]
        assert await asyncio.to_thread(main, arguments) == 0
        printed = capsys.readouterr().out
        assert await asyncio.to_thread(main, arguments) == 0
        assert capsys.readouterr().out == "nothing to do\n"
        await put(api, secret_name("metrics"), password="")
        assert await asyncio.to_thread(main, arguments) == 1
        assert "secret/sluice-nats-metrics has no password" in capsys.readouterr().err
    secret = {values.get("password", CONFIG_KEY) for values in stored(api).values()}
    assert not any(value and value in printed for value in secret)
    assert stored(api)[secret_name("watcher")]["url"] == "nats://there:4222"
    assert api.requests[0][1] == "/api/v1/namespaces/kueue-system/secrets/sluice-nats-watcher"


async def test_a_cluster_gets_certificates_and_only_the_authority_goes_to_the_services() -> None:
    api, cluster = ApiServer(), server_of(NAMESPACE, 3)
    async with client_of(api) as client:
        done = await credentials(client, cluster).ensure()
        assert [line for line in done if "-tls" in line or "-ca" in line] == [
            f"secret/{TLS_SECRET} created",
            f"secret/{CA_SECRET} created",
        ]
        assert await credentials(client, cluster).ensure() == []
    made = stored(api)
    assert set(made[TLS_SECRET]) == {"ca.crt", "tls.crt", "tls.key"}
    assert made[CA_SECRET] == {"ca.crt": made[TLS_SECRET]["ca.crt"]}
    config = made[CONFIG_SECRET][CONFIG_KEY]
    assert config.count(f"tls://sluice-nats-2.sluice-nats-servers.{NAMESPACE}.svc:6222") == 1
    assert "verify: true" in config
    assert "BEGIN" not in config


async def test_a_cluster_with_a_certificate_that_says_no_authority_is_an_error() -> None:
    api = ApiServer()
    await put(api, TLS_SECRET, **{"tls.crt": "x"})
    async with client_of(api) as client:
        with pytest.raises(ValueError, match=r"secret/sluice-nats-tls has no ca\.crt"):
            await credentials(client, server_of(NAMESPACE, 3)).ensure()


async def test_one_server_has_no_certificates() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        await credentials(client, server_of(NAMESPACE, 1)).ensure()
    assert not {TLS_SECRET, CA_SECRET} & set(stored(api))
    assert "cluster:" not in stored(api)[CONFIG_SECRET][CONFIG_KEY]
