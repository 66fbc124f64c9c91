# SPDX-License-Identifier: Apache-2.0
"""The image's programs from its own root, read-only, as user 65532: names, TLS and what libpq takes from its
environment work there as they do with Debian's libraries."""

import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from container import METAFENCE, Container
from harness import Lab, Postgres
from harness.nameserver import NAME
from harness.postgres import DATABASE, PASSWORD, USER
from layout import Layout
from secure import Authority, switch_tls_on

CONFIG = "/etc/metafence/agent.yaml"
HERE = Path(__file__).resolve().parent
BESIDE_A_NAMESERVER: list[str | Path] = ["unshare", "--net", sys.executable, HERE / "with-nameserver"]


@pytest.fixture
def container(lab: Lab, root: Path) -> Container:
    return Container(lab, root, lab.dir / "volume")


def write_config(container: Container, **postgres: object) -> str:
    tree = {
        "id": "meta-0:5690",
        "podUid": "12345678-1234",
        "postgres": {"host": "localhost", "database": DATABASE, "user": USER, **postgres},
    }
    return container.write(CONFIG, yaml.safe_dump(tree))


def test_version(container: Container, layout: Layout) -> None:
    ours = container.metafence("version")
    shim = container.run(container.argv("/usr/bin/metafence-run", "--version"))
    assert ours.returncode == shim.returncode == 0, (ours, shim)
    assert layout.version in ours.stdout and layout.version in shim.stdout
    assert "libcurl 7" in ours.stdout and "libpq 15" in ours.stdout


def test_config(container: Container) -> None:
    good = container.metafence("config", "validate", "--config", write_config(container))
    assert good.returncode == 0, good.stderr
    bad = container.metafence("config", "validate", "--config", write_config(container, port=70000))
    assert bad.returncode == 1
    assert "postgres.port" in bad.stderr


def test_nothing_can_be_written_to(container: Container) -> None:
    """That these tests have the root that they speak of, and its folder."""
    words = ("--state=/state", "--pod-uid=12345678-1234", "--", METAFENCE, "version")
    for place, wanted in (("", "EROFS"), (container.folder, "")):
        argv = container.argv("/usr/bin/metafence-run", f"--socket={place}/fence.sock", *words)
        assert wanted in container.run(argv).stderr


class TestPostgres:
    @pytest.fixture
    def postgres(self, lab: Lab) -> Postgres:
        self.ours = Authority(lab.dir / "authority")
        postgres = Postgres(lab).create()
        switch_tls_on(postgres, self.ours)
        return postgres

    def install(self, container: Container, postgres: Postgres, **env: str) -> "CompletedProcess[str]":
        """`sql install` by TLS with verify-full, which nothing but the right authority and name satisfy."""
        host = env.pop("HOST", "localhost")
        authority = container.write("/etc/metafence/ca.crt", self.ours.file.read_text())
        config = write_config(
            container, host=host, port=postgres.port, sslmode="verify-full", sslRootCert=authority
        )
        return container.metafence("sql", "install", "--config", config, **env)

    def test_tls_with_channel_binding(self, container: Container, postgres: Postgres) -> None:
        done = self.install(container, postgres, PGPASSWORD=PASSWORD, PGCHANNELBINDING="require")
        assert done.returncode == 0, done.stderr
        assert postgres.sql("SELECT count(*) FROM metafence.term")

    def test_a_wrong_name_is_refused(self, container: Container, postgres: Postgres) -> None:
        container.write("/etc/hosts", "127.0.0.1 another.test\n")
        done = self.install(container, postgres, PGPASSWORD=PASSWORD, HOST="another.test")
        assert done.returncode == 1
        assert "does not match host name" in done.stderr, done.stderr

    def test_an_unknown_authority_is_refused(
        self, container: Container, postgres: Postgres, lab: Lab
    ) -> None:
        self.ours = Authority(lab.dir / "another")
        done = self.install(container, postgres, PGPASSWORD=PASSWORD)
        assert done.returncode == 1
        assert "certificate verify failed" in done.stderr, done.stderr

    def test_the_image_s_bundle_is_read(self, container: Container, postgres: Postgres) -> None:
        bundle = "/etc/ssl/certs/ca-certificates.crt"
        config = write_config(container, port=postgres.port, sslmode="verify-full", sslRootCert=bundle)
        done = container.metafence("sql", "status", "--config", config, PGPASSWORD=PASSWORD)
        assert "certificate verify failed" in done.stderr, done.stderr  # read, and ours is not in it
        place = container.root / bundle.lstrip("/")
        place.write_text(place.read_text() + self.ours.file.read_text())
        done = container.metafence("sql", "install", "--config", config, PGPASSWORD=PASSWORD)
        assert done.returncode == 0, done.stderr

    def test_password_file_and_service(self, container: Container, postgres: Postgres) -> None:
        """libpq's own files, found by environment and by the user's home of /etc/passwd."""
        no_password = self.install(container, postgres)
        assert no_password.returncode == 1
        assert "no password supplied" in no_password.stderr, no_password.stderr
        line = f"localhost:{postgres.port}:{DATABASE}:{USER}:{PASSWORD}\n"
        named = container.write("/etc/metafence/pgpass", line, mode=0o600)
        assert self.install(container, postgres, PGPASSFILE=named).returncode == 0
        container.write("/.pgpass", line, mode=0o600)
        assert self.install(container, postgres).returncode == 0
        service = container.write("/etc/metafence/service", "[here]\ntarget_session_attrs=standby\n")
        refused = self.install(container, postgres, PGSERVICEFILE=service, PGSERVICE="here")
        assert refused.returncode == 1
        assert "not in hot standby mode" in refused.stderr, refused.stderr


@pytest.mark.parametrize("name", [NAME, "unknown.test"])
def test_names_of_a_name_server(container: Container, name: str) -> None:
    """By libpq's own look-up, which `sql` and `doctor` leave to it: libc's, without its shared modules."""
    container.write("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:5 attempts:3\n")
    config = write_config(container, host=name, port=1)
    argv = container.argv(METAFENCE, "sql", "install", "--config", config)
    done = container.run([*BESIDE_A_NAMESERVER, *argv], PGPASSWORD="none")
    assert done.returncode == 1
    wanted = "refused" if name == NAME else "could not translate host name"
    assert wanted in done.stderr, done.stderr
