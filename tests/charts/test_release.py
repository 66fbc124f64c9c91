# SPDX-License-Identifier: Apache-2.0
"""The steps of docs/releasing.md as they stand there, with a key that nobody keeps; what the package has."""

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import helm
import pytest
import yaml

KEY = "release test of metafence"
RELEASING = helm.REPO / "docs" / "releasing.md"


@pytest.fixture(scope="module")
def gnupg() -> Iterator[Path]:
    """A home with one key, where a path may be as short as a socket's."""
    if not shutil.which("gpg"):
        pytest.skip("needs gpg")
    home = Path(tempfile.mkdtemp(prefix="gpg-"))
    made = ["gpg", "--homedir", home, "--batch", "--passphrase", "", "--quick-generate-key"]
    subprocess.run([*made, KEY, "rsa2048", "sign", "never"], check=True, capture_output=True, timeout=120)
    yield home
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True, timeout=60)
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def package(gnupg: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made and verified by the document's own commands."""
    work = tmp_path_factory.mktemp("release")
    (work / "charts").symlink_to(helm.REPO / "charts")
    (work / "build" / "chart").mkdir(parents=True)
    [steps] = re.findall(r"^```sh\n(umask.*?)^```", RELEASING.read_text(), re.DOTALL | re.MULTILINE)
    path = f"{helm.helm().parent}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(work), "GNUPGHOME": str(gnupg), "KEY": KEY}
    done = subprocess.run(
        ["bash", "-euc", steps], cwd=work, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert f"Signed by: {KEY}" in done.stdout + done.stderr
    assert not (work / "release.gpg").exists()
    [found] = (work / "build" / "chart").glob("*.tgz")
    assert Path(f"{found}.prov").exists()
    return found


def test_a_package_that_was_changed_is_refused(package: Path, tmp_path: Path) -> None:
    ring = package.parents[2] / "metafence.gpg"
    other = tmp_path / package.name
    shutil.copy(f"{package}.prov", f"{other}.prov")
    shutil.copy(package, other)
    assert helm.run("verify", other, "--keyring", ring).returncode == 0
    other.write_bytes(package.read_bytes() + b"\0")
    refused = helm.run("verify", other, "--keyring", ring)
    assert refused.returncode != 0 and "sha256" in refused.stderr


def test_package_has_what_its_users_read_and_no_more(package: Path) -> None:
    with tarfile.open(package) as tar:
        names = {name.removeprefix("metafence/") for name in tar.getnames()}
    wanted = {"Chart.yaml", "values.yaml", "values.schema.json", "README.md", "files/rules.yaml"}
    assert wanted < names
    assert not {name for name in names if name.startswith("ci/")}


def test_what_artifact_hub_reads_is_true() -> None:
    chart = yaml.safe_load((helm.METAFENCE / "Chart.yaml").read_text())
    said = {key.removeprefix("artifacthub.io/"): text for key, text in chart["annotations"].items()}
    parts = {key: yaml.safe_load(text) for key, text in said.items()}
    [image] = parts["images"]
    assert image["image"] == f"docker.io/metafence/metafence:{chart['appVersion']}"
    version = re.search(r"version: '([0-9.]+)'", (helm.REPO / "meson.build").read_text())
    assert version and version[1] == chart["appVersion"], "the program's"
    assert {change["kind"] for change in parts["changes"]} <= {
        *("added", "changed", "deprecated", "removed", "fixed", "security")
    }
    home = "https://github.com/metafence/metafence/blob/main/"
    raw = "https://raw.githubusercontent.com/metafence/metafence/main/"
    urls = [entry["url"] for part in ("links", "screenshots") for entry in parts[part]] + [chart["icon"]]
    ours = [url.removeprefix(home).removeprefix(raw) for url in urls if url.startswith((home, raw))]
    assert len(ours) >= 5
    for path in ours:
        assert (helm.REPO / path).is_file(), path
