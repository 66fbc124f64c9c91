# SPDX-License-Identifier: Apache-2.0
"""What is in the programs and beside them that others have written: versions, licences, their texts."""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMON_LICENSES = Path("/usr/share/common-licenses")


@dataclass(frozen=True)
class Component:
    name: str  # Debian's source package
    license: str  # as SPDX names it
    # The installed package that it comes from; empty: built from source by image/libraries.
    package: str = ""
    common: str = ""  # Debian's copyright file only refers to this text

    def version(self, libraries: Path) -> str:
        """Of the source package."""
        if not self.package:
            return (libraries / f"{self.name}.version").read_text().strip()
        query = ["dpkg-query", "-W", "-f=${source:Version}", self.package]
        return subprocess.run(query, check=True, capture_output=True, text=True).stdout

    def copyright(self, libraries: Path) -> str:
        if not self.package:
            return (libraries / f"{self.name}.copyright").read_text()
        return (Path("/usr/share/doc") / self.package / "copyright").read_text()


COMPONENTS = (
    Component("ca-certificates", "MPL-2.0", "ca-certificates"),
    Component("cjson", "MIT"),
    Component("curl", "curl"),
    Component("gcc-12", "GPL-3.0-or-later WITH GCC-exception-3.1", "libgcc-12-dev", "GPL-3"),
    Component("glibc", "LGPL-2.1-or-later", "libc6-dev", "LGPL-2.1"),
    Component("libevent", "BSD-3-Clause", "libevent-dev"),
    Component("libyaml", "MIT", "libyaml-dev"),
    Component("nghttp2", "MIT"),
    Component("openssl", "Apache-2.0", "libssl-dev", "Apache-2.0"),
    Component("postgresql-15", "PostgreSQL"),
    Component("protobuf-c", "BSD-2-Clause", "libprotobuf-c-dev"),
)

HEAD = """\
metafence is under the Apache License 2.0, see LICENSE beside this file.

Linked into its programs, or beside them, are parts of the projects below, in the versions of Debian's source
packages that are named. Their sources are there: `apt-get source NAME=VERSION`, https://snapshot.debian.org.
All of them can be exchanged: https://github.com/metafence/metafence is the whole source of the rest, and
image/build links the programs anew.
"""


def notice(libraries: Path) -> str:
    """Each component's own text, then those that several refer to."""
    parts = [HEAD]
    for component in COMPONENTS:
        title = f"{component.name} {component.version(libraries)} ({component.license})"
        parts.append(f"\n{'=' * 78}\n{title}\n{'=' * 78}\n\n{component.copyright(libraries)}")
    for name in sorted({c.common for c in COMPONENTS if c.common}):
        parts.append(f"\n{'=' * 78}\n{name}\n{'=' * 78}\n\n{(COMMON_LICENSES / name).read_text()}")
    return "".join(parts)


def _package(name: str, version: str, license_id: str, location: str) -> dict[str, Any]:
    return {
        "SPDXID": "SPDXRef-" + name,
        "name": name,
        "versionInfo": version,
        "downloadLocation": location,
        "licenseConcluded": license_id,
        "licenseDeclared": license_id,
        "copyrightText": "NOASSERTION",
        "filesAnalyzed": False,
    }


def sbom(libraries: Path, version: str, created: str) -> str:
    """SPDX 2.3: the image contains metafence, which contains the others."""
    own = _package("metafence", version, "Apache-2.0", "https://github.com/metafence/metafence")
    packages = [own]
    for component in COMPONENTS:
        debian = component.version(libraries)
        package = _package(component.name, debian, component.license, "NOASSERTION")
        locator = f"pkg:deb/debian/{component.name}@{debian.replace('+', '%2B')}?arch=source&distro=debian-12"
        package["externalRefs"] = [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": locator,
            }
        ]
        packages.append(package)
    versions = json.dumps([(p["name"], p["versionInfo"]) for p in packages])
    tree = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"metafence-{version}",
        "documentNamespace": "https://github.com/metafence/metafence/sbom/"
        + hashlib.sha256(versions.encode()).hexdigest(),
        "creationInfo": {"created": created, "creators": ["Tool: metafence-image-build"]},
        "packages": packages,
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": own["SPDXID"],
            },
            *(
                {
                    "spdxElementId": own["SPDXID"],
                    "relationshipType": "CONTAINS",
                    "relatedSpdxElement": package["SPDXID"],
                }
                for package in packages[1:]
            ),
        ],
    }
    return json.dumps(tree, indent=1) + "\n"
