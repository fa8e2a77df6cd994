"""The `tls` section of the configuration, for whatever is served over HTTPS: the lowest version, the cipher suites of TLS 1.2, the key exchange.

Where OpenSSL as Python has it cannot do what was asked for, the service says so and does not start: serving with less than was asked for is no answer.
"""

from __future__ import annotations

import platform
import ssl

from shared.config.configuration import Tls
from shared.config.settings import SettingsError
from shared.config.tls_names import CIPHER_SUITES, CURVES

_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def server_context(tls: Tls) -> ssl.SSLContext:
    """A context without a certificate yet. Raises SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    named = [CIPHER_SUITES[suite] for suite in tls.cipher_suites if suite in CIPHER_SUITES]
    if tls.cipher_suites and not named:
        # Only suites of TLS 1.3 were named: with 1.2 there is none to talk in.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if named:
        try:
            context.set_ciphers(":".join(named))
        except ssl.SSLError as error:
            raise SettingsError(f"tls.cipherSuites: {ssl.OPENSSL_VERSION} has none of them") from error
    if len(tls.curve_preferences) == 1:
        curve = tls.curve_preferences[0]
        try:
            context.set_ecdh_curve(CURVES[curve])
        except (ssl.SSLError, ValueError) as error:
            raise SettingsError(
                f"tls.curvePreferences: Python {platform.python_version()} with {ssl.OPENSSL_VERSION} cannot use {CURVES[curve]} ({curve})"
            ) from error
    return context
