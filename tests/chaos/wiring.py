"""The stack as chaos needs it: proxies between its parts, a disk of NATS that can be full, and services of other releases."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.console import Console

from devcluster.nats_server import NatsServer
from devcluster.options import ClusterOptions
from devcluster.stack import WITH_KUBERNETES, Stack
from tests.chaos.disk import NoSmallDisk, SmallDisk
from tests.chaos.proxy import Proxy

DISK_MIB = 256


class WiredStack(Stack):
    """`bus`: between every service and NATS; `api`: between gateway and webhook and the API server; `admission`: between the API server and the
    webhooks. `disk` is None where none can be mounted. `release` decides what instances that start from now on run."""

    def __init__(self, console: Console) -> None:
        super().__init__(ClusterOptions(default_pod_seconds=0.5), console=console)
        self.bus = Proxy(lambda: (int(self.nats.url.rpartition(":")[2]),))
        self.api = Proxy(lambda: (self.cluster.ports.apiserver,))
        self._webhooks: dict[str, int] = {}
        self.admission = Proxy(lambda: [port for name, port in self._webhooks.items() if name in self.services])
        self.disk: SmallDisk | None = SmallDisk(self.folder / "nats" / "jetstream", DISK_MIB)
        self.no_disk = ""
        """Why there is no small disk."""
        self.release = ""

    async def start(self) -> None:
        """See Stack; the proxies come first."""
        for proxy in (self.bus, self.api, self.admission):
            await proxy.start(self.free_port())
        if self.disk is not None:
            try:
                await self.disk.mount()
                self.nats = NatsServer(self.folder / "nats", launcher=self.disk.launcher)
            except NoSmallDisk as error:
                self.disk, self.no_disk = None, str(error)
        await super().start()

    async def stop(self) -> None:
        """See Stack."""
        await super().stop()
        for proxy in (self.bus, self.api, self.admission):
            await proxy.stop()
        if self.disk is not None:
            await self.disk.unmount()

    def arguments(self, name: str) -> tuple[str, ...]:
        """See Stack."""
        return ("-m", "tests.chaos.release", self.release, name) if self.release else super().arguments(name)

    async def environment(self, name: str, instance: str, port: int) -> dict[str, str]:
        """See Stack; what it finds there are the proxies' ports."""
        own = f"SLUICE_{name.upper()}_"
        found = await super().environment(name, instance, port)
        found["SLUICE_NATS_URL"] = f"nats://127.0.0.1:{self.bus.port}"
        if name in WITH_KUBERNETES:
            found[f"{own}KUBECONFIG"] = str(self._detour(Path(found[f"{own}KUBECONFIG"])))
        if name == "watcher":
            found["SLUICE_WATCHER_WEBHOOK_URL"] = f"https://127.0.0.1:{self.admission.port}"
        if name == "webhook":
            self._webhooks[instance] = int(found["SLUICE_WEBHOOK_WEBHOOK_PORT"])
        return found

    @property
    def copied_store(self) -> Path:
        """Where `copy_store` puts it."""
        return self.folder / "nats-copy"

    def copy_store(self) -> None:
        """What NATS has on its disk now."""
        shutil.rmtree(self.copied_store, ignore_errors=True)
        shutil.copytree(self._store(), self.copied_store)

    def replace_store(self, by: Path | None) -> None:
        """What NATS, which must not run, finds on its disk when it starts: that copy, or nothing."""
        shutil.rmtree(self._store())
        if by is not None:
            shutil.copytree(by, self._store())

    def _store(self) -> Path:
        disk = self.disk.inside if self.disk is not None else self.nats.data_dir / "jetstream"
        # NATS makes a folder of that name in the one it is given.
        return disk / "jetstream"

    def _detour(self, kubeconfig: Path) -> Path:
        """The same file with the proxy's port."""
        detour = kubeconfig.with_name(f"through-proxy.{kubeconfig.name}")
        detour.touch(mode=0o600)
        direct, through = f":{self.cluster.ports.apiserver}", f":{self.api.port}"
        detour.write_text(kubeconfig.read_text().replace(direct, through))
        return detour
