"""The command lines: loopback only, own ports, own files, and what each option changes."""

import re
from pathlib import Path

import pytest
import yaml

from devcluster import components
from devcluster.components import Files, Ports
from devcluster.layout import lay_out
from devcluster.options import ClusterOptions
from devcluster.processes import Command

PORTS = Ports(etcd=1001, etcd_peer=1002, apiserver=1003, controller_manager=1004, scheduler=1005, kwok=1006)
PROGRAM = Path("/bin/program")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return lay_out(tmp_path, PORTS, ClusterOptions()).files


def apiserver(files: Files, *, audit: bool = False, controllers: bool = True, extra: tuple[str, ...] = ()) -> Command:
    return components.apiserver(PROGRAM, files, PORTS, audit=audit, controllers=controllers, extra=extra)


def everything(files: Files) -> list[Command]:
    return [
        components.etcd(PROGRAM, files, PORTS),
        apiserver(files, audit=True),
        components.controller_manager(PROGRAM, files, PORTS),
        components.scheduler(PROGRAM, files, PORTS),
        components.kwok(PROGRAM, files, PORTS),
    ]


def values(command: Command) -> dict[str, str]:
    return dict(argument.removeprefix("--").partition("=")[::2] for argument in command.arguments)


def test_every_url_and_address_is_loopback(files: Files) -> None:
    for command in everything(files):
        for argument in command.arguments:
            for host in re.findall(r"https?://([^:/]+):", argument):
                assert host == "127.0.0.1", argument


@pytest.mark.parametrize("index", [1, 2, 3])
def test_kubernetes_servers_bind_to_loopback(files: Files, index: int) -> None:
    assert values(everything(files)[index])["bind-address"] == "127.0.0.1"


def test_kwok_listens_on_loopback(files: Files) -> None:
    assert values(components.kwok(PROGRAM, files, PORTS))["server-address"] == "127.0.0.1:1006"


def test_each_port_is_served_by_one_part(files: Files) -> None:
    serving = ("listen-client-urls", "listen-peer-urls", "secure-port", "server-address")
    served = [values(command)[flag] for command in everything(files) for flag in serving if flag in values(command)]
    numbers = [int(address.rpartition(":")[2]) for address in served]
    assert numbers == [1001, 1002, 1003, 1004, 1005, 1006]


def test_every_file_that_must_exist_at_start_does(files: Files) -> None:
    made_by_the_program = {files.etcd_data, files.audit_log}
    for command in everything(files):
        for flag, value in values(command).items():
            if value.startswith("/") and Path(value) not in made_by_the_program:
                assert Path(value).is_file(), f"{command.name} --{flag}={value}"


def test_etcd_takes_only_clients_of_its_own_authority(files: Files) -> None:
    given = values(components.etcd(PROGRAM, files, PORTS))
    assert "client-cert-auth" in given
    assert given["trusted-ca-file"] == str(files.ca)
    assert given["listen-client-urls"].startswith("https://")


def test_audit_log_is_written_only_when_asked_for(files: Files) -> None:
    assert values(apiserver(files, audit=True))["audit-log-path"] == str(files.audit_log)
    assert not any(flag.startswith("audit-") for flag in values(apiserver(files)))


def test_without_controllers_new_nodes_get_no_taint_that_nobody_removes(files: Files) -> None:
    assert values(apiserver(files))["disable-admission-plugins"] == "ServiceAccount"
    without = values(apiserver(files, controllers=False))["disable-admission-plugins"]
    assert without == "ServiceAccount,TaintNodesByCondition"


def test_own_apiserver_flags_come_last_and_so_win(files: Files) -> None:
    command = apiserver(files, extra=("--feature-gates=A=true", "--authorization-mode=Node,RBAC"))
    assert command.arguments[-2:] == ("--feature-gates=A=true", "--authorization-mode=Node,RBAC")


def test_scheduler_configuration_names_its_kubeconfig(files: Files) -> None:
    config = yaml.safe_load(files.scheduler_config.read_text())
    assert config["clientConnection"]["kubeconfig"] == str(files.scheduler_kubeconfig)
    assert config["leaderElection"] == {"leaderElect": False}
