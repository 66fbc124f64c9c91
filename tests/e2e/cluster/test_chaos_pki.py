# SPDX-License-Identifier: Apache-2.0
"""Rotation of a cluster's authority and of its service accounts' key, without a cluster."""

import subprocess
from pathlib import Path

import pytest
from kubelab.pki import Pki


class Files:
    """As much of a Layout as certificates need."""

    def __init__(self, folder: Path) -> None:
        self.pki, self._folder = folder / "pki", folder

    def kubeconfig(self, user: str) -> Path:
        return self._folder / f"{user}.kubeconfig"


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    made = Pki(Files(tmp_path))  # type: ignore[arg-type]
    made.make(1)
    return made


def is_trusted(authority: str, certificate: Path, tmp_path: Path) -> bool:
    bundle = tmp_path / "bundle.crt"
    bundle.write_text(authority)
    done = subprocess.run(["openssl", "verify", "-CAfile", bundle, certificate], capture_output=True)
    return done.returncode == 0


def test_who_has_not_read_the_new_authority_does_not_trust_the_new_server(pki: Pki, tmp_path: Path) -> None:
    old, server = pki.authority.read_text(), pki.cert("apiserver")
    for number in (1, 2):
        pki.add_authority()
        both = pki.authority.read_text()
        assert both.startswith(old) and both.count("BEGIN CERTIFICATE") == 1 + number
        assert is_trusted(old, server, tmp_path) and is_trusted(both, server, tmp_path), (
            "nothing is renewed yet"
        )
        pki.renew_server()
        assert is_trusted(both, server, tmp_path) and not is_trusted(old, server, tmp_path)
        assert is_trusted(both, pki.cert("admin"), tmp_path), "clients keep theirs"
        old = both


def test_tokens_of_the_former_key_are_good_until_it_is_dropped(pki: Pki) -> None:
    public = pki.dir / "service-account.pub"
    first = public.read_text()
    pki.add_service_account_key()
    second = public.read_text().removesuffix(first)
    assert public.read_text() == second + first and second != first
    assert second.count("BEGIN PUBLIC KEY") == 1
    argv = ["openssl", "pkey", "-in", pki.key("service-account"), "-pubout"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == second
    pki.drop_former_service_account_keys()
    assert public.read_text() == second
