# SPDX-License-Identifier: Apache-2.0
"""What is in the archive, by two readers: layout.py and skopeo."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from layout import Layout

REPO = Path(__file__).resolve().parents[2]
MAX_BYTES = 8_000_000
PROGRAMS = {"/usr/bin/metafence", "/usr/bin/metafence-run"}
DOC = "/usr/share/doc/metafence/"
FILES = {
    *PROGRAMS,
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/ssl/certs/ca-certificates.crt",
    *(DOC + name for name in ("LICENSE", "NOTICE", "sbom.spdx.json")),
}
LINKED = ("libpq", "curl", "nghttp2", "libevent", "cJSON", "YAML", "protobuf-c", "OpenSSL")


def skopeo(*words: str | Path) -> bytes:
    argv: list[str | Path] = ["skopeo", "--insecure-policy", *words]
    done = subprocess.run(argv, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def chart(name: str) -> dict:
    return yaml.safe_load((REPO / "charts" / "metafence" / name).read_text())


def test_skopeo_reads_it(archive: Path, layout: Layout, tmp_path: Path) -> None:
    place = f"oci-archive:{archive}"
    said = json.loads(skopeo("inspect", place))
    assert said["Digest"] == layout.digest
    assert said["Labels"] == layout.labels
    skopeo("copy", place, f"dir:{tmp_path / 'copy'}")  # compares each digest
    config = json.loads((tmp_path / "copy" / layout.manifest["config"]["digest"].split(":")[1]).read_text())
    assert config == layout.config


def test_docker_can_load_it(archive: Path, layout: Layout, tmp_path: Path) -> None:
    skopeo("copy", f"docker-archive:{archive}", f"oci:{tmp_path / 'copy'}")
    (entry,) = json.loads((tmp_path / "copy" / "index.json").read_text())["manifests"]
    manifest = (tmp_path / "copy" / "blobs" / "sha256" / entry["digest"].split(":")[1]).read_text()
    config = json.loads(manifest)["config"]["digest"].split(":")[1]
    loaded = json.loads((tmp_path / "copy" / "blobs" / "sha256" / config).read_text())
    assert loaded["rootfs"] == layout.config["rootfs"]


def test_a_damaged_archive_is_refused(archive: Path, tmp_path: Path) -> None:
    """That the readers above do compare."""
    content = bytearray(archive.read_bytes())
    at = content.index(b"\x1f\x8b") + 1000  # in the packed layer
    content[at] ^= 1
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(content)
    with pytest.raises(AssertionError):
        Layout(damaged)
    with pytest.raises(AssertionError, match="Digest did not match"):
        skopeo("copy", f"oci-archive:{damaged}", f"dir:{tmp_path / 'copy'}")


def test_size(archive: Path) -> None:
    assert archive.stat().st_size <= MAX_BYTES


def test_exactly_these_files(layout: Layout) -> None:
    members = layout.members()
    assert {"/" + m.name for m in members if m.isfile()} == FILES
    assert all(m.isfile() or m.isdir() for m in members)
    assert {(m.uid, m.gid) for m in members} == {(0, 0)}
    assert not [m.name for m in members if m.mode & 0o7022], "nobody but root may write, nothing is setuid"
    for member in members:
        executable = member.isdir() or "/" + member.name in PROGRAMS
        assert member.mode == (0o755 if executable else 0o644), member.name


def test_every_time_is_the_commit_s(layout: Layout) -> None:
    times = {m.mtime for m in layout.members()}
    created = layout.labels["org.opencontainers.image.created"]
    stamp = subprocess.run(["date", "-u", "-d", f"@{times.pop()}", "+%FT%TZ"], capture_output=True, text=True)
    assert not times
    assert stamp.stdout.strip() == created == layout.config["created"]


def test_who_runs_what(layout: Layout) -> None:
    run = layout.config["config"]
    assert run["User"] == "65532:65532"
    assert run["Entrypoint"] == ["/usr/bin/metafence"]
    assert layout.config["os"] == layout.entry["platform"]["os"] == "linux"
    assert layout.config["architecture"] == layout.entry["platform"]["architecture"]


def test_the_chart_names_it(layout: Layout) -> None:
    """What the chart asks a registry for without any value is what is built here."""
    image, about = chart("values.yaml")["image"], chart("Chart.yaml")
    assert image["tag"] == image["digest"] == "", "the appVersion counts"
    reference = f"{image['registry']}/{image['repository']}:{about['appVersion']}"
    assert layout.entry["annotations"]["io.containerd.image.name"] == reference
    assert layout.labels["org.opencontainers.image.version"] == layout.version == about["appVersion"]
    assert layout.labels["org.opencontainers.image.source"] == about["home"]
    assert f"image: {reference}" in about["annotations"]["artifacthub.io/images"]
    assert chart("values.yaml")["securityContext"]["runAsUser"] == 65532


def test_the_containerfile_makes_the_same(layout: Layout) -> None:
    """No builder is needed here, so the instructions are compared, not run."""
    text = (REPO / "image" / "Containerfile").read_text()
    last = text[text.rindex("\nFROM scratch") :]
    run = layout.config["config"]
    assert f"\nUSER {run['User']}\n" in last
    assert f"\nENTRYPOINT {json.dumps(run['Entrypoint'])}\n" in last
    assert [f"{n}={v}" for n, v in re.findall(r"^ENV (\w+)=(.*)$", last, re.MULTILINE)] == run["Env"]
    labels = dict(re.findall(r'(org\.opencontainers\.image\.\w+)="([^"]*)"', last))
    fixed = {k: v for k, v in layout.labels.items() if not k.endswith((".version", ".revision", ".created"))}
    assert labels.keys() == layout.labels.keys()
    assert {k: v for k, v in labels.items() if k in fixed} == fixed
    wanted = subprocess.run(
        ["bash", "-c", '. tests/ci/stages.sh; printf "%s\\n" "${IMAGE_PACKAGES[@]}"'],
        cwd=REPO, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert set(wanted) <= set(text.split()), "packages that ./dev setup installs for it"


def test_licences_and_versions(layout: Layout) -> None:
    notice = layout.read(DOC + "NOTICE")
    bom = json.loads(layout.read(DOC + "sbom.spdx.json"))
    packages = {p["name"]: p for p in bom["packages"]}
    assert packages["metafence"]["versionInfo"] == layout.version
    assert len(packages) == 12
    for name, package in packages.items():
        if name != "metafence":
            assert f"{name} {package['versionInfo']} ({package['licenseDeclared']})" in notice
            assert package["externalRefs"][0]["referenceLocator"].startswith(f"pkg:deb/debian/{name}@")
    for phrase in (
        "GNU LESSER GENERAL PUBLIC LICENSE",
        "GCC RUNTIME LIBRARY EXCEPTION",
        "Daniel Stenberg",
        "PostgreSQL Global Development Group",
        "Tatsuhiro Tsujikawa",
        "Niels Provos",
        "Dave Gamble",
        "Kirill Simonov",
        "The OpenSSL Project",
        "Mozilla Public License",
    ):
        assert phrase.lower() in notice.lower(), phrase
    assert "Apache License" in layout.read(DOC + "LICENSE")


def test_authorities_are_debian_s_own(layout: Layout, root: Path) -> None:
    """None that this machine's owner has added; all can be read."""
    bundle = "etc/ssl/certs/ca-certificates.crt"
    files = sorted(Path("/usr/share/ca-certificates/mozilla").glob("*.crt"))
    assert layout.read(bundle) == "".join(file.read_text().strip() + "\n" for file in files)
    argv = ["openssl", "storeutl", "-noout", "-certs", root / bundle]
    said = subprocess.run(argv, capture_output=True, text=True)
    assert said.returncode == 0 and f"Total found: {len(files)}" in said.stdout, said
    assert len(files) > 100


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_programs_need_nothing_and_are_hardened(root: Path, program: str) -> None:
    argv = ["readelf", "-W", "-l", "-d", "-S", root / program.lstrip("/")]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "(NEEDED)" not in said and "INTERP" not in said
    assert "PIE" in said and "BIND_NOW" in said and "GNU_RELRO" in said
    assert re.search(r"GNU_STACK.* RW ", said), "no executable stack"
    assert ".symtab" not in said and ".debug" not in said


def test_no_path_of_this_machine_is_in_it(root: Path) -> None:
    for file in FILES:
        content = (root / file.lstrip("/")).read_bytes()
        for path in (REPO, Path(os.environ.get("METAFENCE_CACHE", Path.home() / ".cache"))):
            assert bytes(path) not in content, (file, path)


@pytest.mark.timeout(900)
def test_same_bytes_from_another_folder(archive: Path, layout: Layout) -> None:
    """Another tree in another place, another umask, time zone and language. The copy is kept, so that only
    what has changed is compiled again."""
    place = archive.parent / "again" / "elsewhere"
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPO, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    names = [name for name in listed.split("\0") if (REPO / name).is_file()]
    for stale in [p for p in place.rglob("*") if p.is_file() and str(p.relative_to(place)) not in names]:
        stale.unlink()
    for name in names:
        copy = place / name
        if copy.is_file() and copy.read_bytes() == (REPO / name).read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, copy)
    created = layout.labels["org.opencontainers.image.created"]
    stamp = subprocess.run(["date", "-u", "-d", created, "+%s"], capture_output=True, text=True, check=True)
    env = {
        **os.environ,
        "SOURCE_DATE_EPOCH": stamp.stdout.strip(),
        "REVISION": layout.labels["org.opencontainers.image.revision"],
        "TZ": "Pacific/Chatham",
        "LC_ALL": "C",
    }
    out = archive.parent / "again" / "out" / "of" / "tree"
    done = subprocess.run(
        ["sh", "-c", 'umask 077; exec "$0" "$@"', place / "image" / "build", out],
        env=env, capture_output=True, text=True, timeout=880,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    again = out / "metafence.oci.tar"
    if again.read_bytes() != archive.read_bytes():
        with tarfile.open(archive) as one, tarfile.open(again) as other:
            pytest.fail(f"{one.getnames()} != {other.getnames()}: compare {archive} and {again}")
