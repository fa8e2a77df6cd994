"""The pod's service account, and tokens that rotate."""

from pathlib import Path

import pytest
from kubernetes_asyncio.config import incluster_config

from shared.kube import credentials


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a service account; the token may be changed."""
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    authority.write_text("PEM")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return token


def rotate(token: Path) -> None:
    token.write_text("second\n")


def remove(token: Path) -> None:
    token.unlink()


async def test_the_service_account_of_the_pod(account: Path) -> None:
    found = await credentials.load()
    assert found.server == "https://10.0.0.1:443"
    assert await found.authorization() == "Bearer first"
    assert found.server_name is None


async def test_a_rotated_token_file_is_read_again(account: Path) -> None:
    found = await credentials.load()
    rotate(account)
    await found.renew()
    assert await found.authorization() == "Bearer second"


async def test_a_service_account_without_a_token_is_an_error(account: Path) -> None:
    remove(account)
    with pytest.raises(credentials.CredentialsError, match="token"):
        await credentials.load()


async def test_the_context_that_was_asked_for_is_used(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        """
current-context: one
contexts:
- {name: one, context: {cluster: one, user: u}}
- {name: two, context: {cluster: two, user: u}}
clusters:
- {name: one, cluster: {server: "https://one:6443/"}}
- {name: two, cluster: {server: "https://two:6443", tls-server-name: inside, insecure-skip-tls-verify: true}}
users:
- {name: u, user: {tokenFile: token}}
"""
    )
    (tmp_path / "token").write_text("from-file")
    one, two = await credentials.load(str(path)), await credentials.load(str(path), "two")
    assert (one.server, two.server, two.server_name) == ("https://one:6443", "https://two:6443", "inside")
    assert await one.authorization() == "Bearer from-file"
    assert two.tls().check_hostname is False
    (tmp_path / "token").write_text("rotated")
    await one.renew()
    assert await one.authorization() == "Bearer rotated"
