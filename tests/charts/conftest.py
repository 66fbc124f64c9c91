# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import helm  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def helm_homes(tmp_path_factory: pytest.TempPathFactory):
    """helm looks at nobody's own settings, repositories and cluster."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("helm")
    for home in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"):
        patch.setenv(home, str(folder / home.lower()))
    patch.setenv("KUBECONFIG", str(folder / "no-cluster"))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def shim() -> helm.Objects:
    """A whole guarded release of metasim, as it is by default."""
    return helm.metasim()


@pytest.fixture(scope="session")
def pidfd() -> helm.Objects:
    return helm.metasim("metafence.config.fence.method=pidfd")
