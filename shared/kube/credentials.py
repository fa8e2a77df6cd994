"""Where the API server is and who we are: a kubeconfig file or the pod's service account.

The loading is kubernetes_asyncio's. Tokens rotate: `authorization` reads a service account's file again when it is due, and `renew` loads
everything anew after the server refused the old credentials.
"""

from __future__ import annotations

import os
import ssl

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config


class CredentialsError(Exception):
    """No usable kubeconfig or service account; the text says which and why."""


class Credentials:
    """The server and the caller's identity. Use `load`."""

    def __init__(self, kubeconfig: str, context: str, configuration: Configuration) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration = configuration

    @property
    def server(self) -> str:
        """Base URL without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """Name to expect in the server's certificate, when it is not the host of the URL."""
        name = self._configuration.tls_server_name
        return str(name) if name else None

    @property
    def proxy(self) -> str | None:
        proxy = self._configuration.proxy
        return str(proxy) if proxy else None

    def tls(self) -> ssl.SSLContext:
        """Trusts the cluster's authority and presents the client certificate, if there is one. Raises CredentialsError."""
        configuration = self._configuration
        try:
            made = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
            if configuration.cert_file:
                made.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
        except OSError as error:
            # ssl.SSLError is one too; it names no file.
            files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
            named = ", ".join(str(name) for name in files if name)
            raise CredentialsError(f"certificates of {self.server} ({named}): {error}") from error
        if not configuration.verify_ssl:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        return made

    async def authorization(self) -> str:
        """Value of the Authorization header; empty with a client certificate."""
        return (await self._configuration.get_api_key_with_prefix("BearerToken") or "").strip()

    async def renew(self) -> None:
        """Read the files again. Raises CredentialsError."""
        self._configuration = await _configuration(self._kubeconfig, self._context)


async def load(kubeconfig: str = "", context: str = "") -> Credentials:
    """From the file given, else from $KUBECONFIG, else the pod's service account. Raises CredentialsError."""
    chosen = kubeconfig or os.environ.get("KUBECONFIG", "")
    return Credentials(chosen, context, await _configuration(chosen, context))


async def _configuration(kubeconfig: str, context: str) -> Configuration:
    configuration = Configuration()
    if not kubeconfig:
        try:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except ConfigException as error:
            raise CredentialsError(f"no kubeconfig is set and there is no service account: {error}") from error
        return configuration
    if missing := _missing(kubeconfig):
        raise CredentialsError(f"kubeconfig {missing}: no such file")
    try:
        await load_kube_config(
            config_file=kubeconfig, context=context or None, client_configuration=configuration, persist_config=False
        )
    except (ConfigException, OSError, ValueError, TypeError, AttributeError, AssertionError, yaml.YAMLError) as error:
        # What the parser says goes over several lines.
        raise CredentialsError(f"kubeconfig {kubeconfig}: {' '.join(str(error).split())}") from error
    return configuration


def _missing(kubeconfig: str) -> str:
    """The first of the files that is not there; kubernetes_asyncio would skip it and complain about the rest."""
    return next((part for part in kubeconfig.split(os.pathsep) if part and not os.path.isfile(part)), "")
