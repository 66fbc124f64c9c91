# SPDX-License-Identifier: Apache-2.0
"""The image of METAFENCE_IMAGE, or of build/image: `./dev image` makes it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "image"), str(TESTS / "e2e")]

from harness import Lab  # noqa: E402
from layout import Layout  # noqa: E402


@pytest.fixture(scope="session")
def archive() -> Path:
    folder = Path(os.environ.get("METAFENCE_IMAGE", TESTS.parent / "build" / "image"))
    path = folder / "metafence.oci.tar"
    assert path.exists(), f"{path} is missing: run ./dev image"
    return path


@pytest.fixture(scope="session")
def layout(archive: Path) -> Layout:
    return Layout(archive)


@pytest.fixture(scope="session")
def root(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the archive unpacks to."""
    path = tmp_path_factory.mktemp("image") / "root"
    layout.unpack(path)
    return path


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    made = Lab("image-" + request.node.name.removeprefix("test_")[:24].replace("_", "-"))
    yield made
    made.close()
