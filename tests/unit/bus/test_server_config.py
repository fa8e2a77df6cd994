"""The configuration file and the credentials beside it."""

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import bcrypt
import pytest

from shared.bus.server_binary import nats_binary
from shared.bus.server_config import Server, ensure_passwords, hasher, main, render, write_config, write_private
from shared.events import streams

ROOT = Path(__file__).resolve().parents[3]
USERS = (*streams.SERVICES, streams.READER)
PASSWORDS = {user: f"password of {user}" for user in USERS}


def accepted(config: Path) -> str:
    """The server's own judgement: empty if the file is right."""
    checked = subprocess.run(
        [nats_binary(), "-t", "-c", config], capture_output=True, text=True, timeout=20, check=False
    )
    return "" if checked.returncode == 0 else checked.stderr


def test_every_user_is_there_once(tmp_path: Path) -> None:
    text = render(Server(store_dir=str(tmp_path)), PASSWORDS)
    assert re.findall(r'user: "(\w+)"', text) == list(USERS)
    for password in PASSWORDS.values():
        assert text.count(json.dumps(password)) == 1


@pytest.mark.parametrize(
    "readers", [None, {}, {"a": ("team-a",), "b": ("team-a", "team-b"), "c": ()}], ids=["default", "none", "three"]
)
def test_the_server_takes_it(tmp_path: Path, readers: dict[str, tuple[str, ...]] | None) -> None:
    config = write_config(
        tmp_path, Server(store_dir=str(tmp_path / "js"), monitor="127.0.0.1:0", sync_always=True), readers
    )
    assert accepted(config) == ""


def test_a_reader_imports_its_namespaces_alone(tmp_path: Path) -> None:
    text = render(Server(store_dir=str(tmp_path)), {**PASSWORDS, "a": "x"}, {"a": ("team-a",)})
    account = text[text.index("READER_0") :]
    assert re.findall(r'subject: "([^"]+)"', account) == ["sluice.events.team-a.>"]
    assert "jetstream" not in account
    assert 'publish: { deny: ">" }' in account


def test_certificates_and_further_lines(tmp_path: Path) -> None:
    server = Server(
        store_dir="/data", cert_file="/tls/tls.crt", key_file="/tls/tls.key", ca_file="/tls/ca.crt", extra="cluster {}"
    )
    text = render(server, PASSWORDS)
    assert 'tls: { cert_file: "/tls/tls.crt", key_file: "/tls/tls.key", ca_file: "/tls/ca.crt" }' in text
    assert text.endswith("cluster {}\n")
    assert "tls:" not in render(Server(store_dir="/data"), PASSWORDS)


def test_passwords_are_private_random_and_kept(tmp_path: Path) -> None:
    directory = tmp_path / "credentials"
    passwords = ensure_passwords(directory, USERS)
    assert len(set(passwords.values())) == len(USERS)
    assert all(len(p) >= 32 for p in passwords.values())
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for file in directory.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert (directory / "scheduler.env").read_text().splitlines() == [
        "SLUICE_NATS_USER=scheduler",
        f"SLUICE_NATS_PASSWORD={passwords['scheduler']}",
    ]
    assert ensure_passwords(directory, USERS) == passwords


def test_the_file_holds_hashes_and_the_output_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        ["--out", str(tmp_path), "--store-dir", str(tmp_path / "js"), "--reader", "ops", "--reader", "a=team-a,team-b"]
    )
    config = tmp_path / "nats-server.conf"
    assert capsys.readouterr().out == f"{config}\n"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    text = config.read_text()
    for user in (*streams.SERVICES, "ops", "a"):
        plain = (tmp_path / f"{user}.password").read_text()
        assert plain not in text
        hashed = re.search(rf'user: "{user}", password: "([^"]+)"', text)
        assert hashed is not None
        assert bcrypt.checkpw(plain.encode(), hashed[1].encode())
    assert "sluice.events.team-b.>" in text
    assert accepted(config) == ""


def test_it_can_stay_until_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shared.bus.server_config", "--out", str(tmp_path), "--stay"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{tmp_path / 'nats-server.conf'}\n"
            assert (tmp_path / "nats-server.conf").exists()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.2)
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_without_bcrypt_passwords_stay_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hasher()("secret").startswith("$2a$")
    monkeypatch.setitem(__import__("sys").modules, "bcrypt", None)
    assert hasher()("secret") == "secret"


def test_private_files_replace_wider_ones(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new")
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
