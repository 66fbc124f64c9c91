# SPDX-License-Identifier: Apache-2.0
"""A node: containerd, kubelet and kube-proxy in namespaces of their own, ended by the death of one."""

import ipaddress
import json
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from harness.process import children, signal_pid
from harness.waiting import wait_for

from . import cgroups, network
from .images import PAUSE
from .layout import CONTROL_PLANE, DOMAIN, EVERYTHING, PODS, LabError, Layout, node_ip, node_name, pod_range
from .netns import inside
from .pki import Pki
from .programs import Program, clean_env
from .settings import Settings

CONTAINERD = """
version = 3
root = "{dir}/root"
state = "{dir}/state"
[grpc]
  address = "{dir}/cri.sock"
[ttrpc]
  address = "{dir}/cri.sock.ttrpc"
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true  # below -1 takes a capability that containers' hosts often lack
  disable_hugetlb_controller = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{cni}"]
  conf_dir = "{dir}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
"""

CNI = Path("/usr/lib/cni")
NETWORK = "pods"
NODE_INIT = Path(__file__).with_name("node-init")


class Node:
    def __init__(self, layout: Layout, index: int, settings: Settings, programs: Path, pki: Pki) -> None:
        self.layout, self.index, self.settings, self.pki = layout, index, settings, pki
        self.name = node_name(index)
        self.ip = node_ip(index)
        self.dir = layout.dir / self.name
        self._bin = programs
        launch = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv: list[str | Path] = [*launch, NODE_INIT, self.dir, layout.logs, programs]
        self.program = Program(layout, self.name, argv, part=self.name)
        self.was_cut = False  # since somebody has set this to False

    @property
    def namespace(self) -> Path:
        return self.layout.namespace(self.name)

    @property
    def group(self) -> str:
        return self.layout.name(self.name)

    @property
    def socket(self) -> Path:
        return self.dir / "cri.sock"

    @property
    def alive(self) -> bool:
        return self.program.alive

    @property
    def init_pid(self) -> int:
        """Of the node's first process, as the machine counts."""
        pid = self.program.pid
        found = children(pid) if pid is not None else []
        if not found:
            raise LabError(f"node {self.name} does not run")
        return found[0]

    def start(self) -> None:
        """Returns at once; see wait_up."""
        cgroups.make_for_node(self.group)
        for folder in ("root", "state", "cni", "kubelet", "podlogs"):
            (self.dir / folder).mkdir(parents=True, exist_ok=True)
        self._write_config()
        self.socket.unlink(missing_ok=True)
        self.program.start()

    def wait_up(self, timeout: float = 120) -> None:
        """containerd takes orders."""

        def up() -> bool:
            if not self.alive:
                raise LabError(f"node {self.name} ended; its log says:\n{self.program.log_tail()}")
            return self.socket.is_socket() and self._ctr("version").returncode == 0

        wait_for(f"containerd of {self.name} answers", up, timeout, every=0.1)

    def load(self, image: Path) -> None:
        """Makes an image tar known; a former one of that name is forgotten."""
        done = self._ctr("image", "import", str(image))
        if done.returncode != 0:
            raise LabError(f"{self.name}: import of {image}: {done.stderr.strip()}")

    def _ctr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        argv = [self._bin / "ctr", "--address", self.socket, "--namespace", "k8s.io", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, env=clean_env(), timeout=120)

    def run(self, argv: list[str | Path], timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        """Runs a program of the machine as if on this node: its network, mounts and processes."""
        nsenter = ["nsenter", f"--target={self.init_pid}", "--net", "--mount", "--pid", "--"]
        return subprocess.run(
            [*nsenter, *argv], capture_output=True, text=True, timeout=timeout, env=clean_env()
        )

    def path(self, path: str | Path) -> Path:
        """Where a path of the node, also in a file system in its memory, is for us."""
        return Path(f"/proc/{self.init_pid}/root{path}")

    def volume(self, pod_uid: str, name: str) -> Path:
        """An emptyDir of a pod that is here, on disk or in memory."""
        return self.path(self.dir / "kubelet/pods" / pod_uid / "volumes/kubernetes.io~empty-dir" / name)

    # --- addresses of pods -------------------------------------------------------------------

    def _addresses(self) -> Path:
        return self.path(self.dir / "ipam" / NETWORK)

    def has_given(self, address: str) -> bool:
        """A pod has it, or is not yet wholly gone."""
        return (self._addresses() / address).exists()

    def give_next(self, address: str) -> None:
        """The next pod here gets this one, if it is free by then."""
        before = ipaddress.ip_address(address) - 1
        (self._addresses() / "last_reserved_ip.0").write_text(str(before))

    # --- faults ------------------------------------------------------------------------------

    def cut(self) -> None:
        """Takes the node off the network; what runs on it goes on."""
        self.was_cut = True
        network.set_cable(self.layout, self.name, up=False)

    def heal(self) -> None:
        network.set_cable(self.layout, self.name, up=True)

    @property
    def is_cut(self) -> bool:
        line = network.run_ip("-n", self.layout.name("cp"), "-o", "link", "show", "dev", self.name)
        return "UP" not in line.partition("<")[2].partition(">")[0].split(",")

    def restart_clients(self) -> None:
        """Of the API server: kubelet and proxy. While they don't reach it they ask less and less often, and
        may see new pods and services a minute and a half after it is back; new ones ask at once."""
        for pid in cgroups.members(self.group):
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if name in ("kubelet", "kube-proxy"):
                signal_pid(pid, signal.SIGKILL)

    def pids(self, *names: str) -> list[int]:
        """Of the node's own programs with one of these names, as the machine counts. They are in the node's
        process namespace; the node's control groups only have its pods."""
        space = Path(f"/proc/{self.init_pid}/ns/pid").stat().st_ino
        found = []
        for pid in cgroups.members(self.layout.name("cp")):
            try:
                is_here = Path(f"/proc/{pid}/ns/pid").stat().st_ino == space
                if is_here and Path(f"/proc/{pid}/comm").read_text().strip() in names:
                    found.append(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    def starve(self, percent: int) -> None:
        """All its pods together get so much of one processor."""
        cgroups.limit_cpu(self.group, percent)

    def feed(self) -> None:
        cgroups.limit_cpu(self.group, None)

    def crash(self) -> None:
        """Loss of power: all its processes at once, and what a reboot forgets. start() is the reboot."""
        self.program.kill()
        wait_for(f"{self.name} has no process left", lambda: not cgroups.members(self.group), 30)
        with inside(self.namespace):
            subprocess.run(["nft", "flush", "ruleset"], check=True, capture_output=True)
        wait_for(f"{self.name} has no pod's link left", self._drop_pod_links, 30)
        cgroups.remove(self.group)
        shutil.rmtree(self.dir / "state")

    def _drop_pod_links(self) -> bool:
        """Whether there was none. The kernel takes them away, too, when it comes to the pods' namespaces."""
        here = ("-n", self.layout.name(self.name))
        lines = network.run_ip(*here, "-o", "link", "show", "type", "veth").splitlines()
        devices = {line.split(":")[1].strip().partition("@")[0] for line in lines} - {"eth0"}
        for device in devices:
            with suppress(LabError):
                network.run_ip(*here, "link", "del", device)
        return not devices

    # --- configuration -----------------------------------------------------------------------

    def _write_config(self) -> None:
        toml = CONTAINERD.format(dir=self.dir, pause=PAUSE.reference, cni=CNI)
        (self.dir / "containerd.toml").write_text(toml)
        (self.dir / "cni" / "10-pods.conflist").write_text(json.dumps(self._cni()))
        (self.dir / "kubelet.json").write_text(json.dumps(self._kubelet(), indent=1))
        (self.dir / "proxy.json").write_text(json.dumps(self._proxy(), indent=1))
        (self.dir / "resolv.conf").write_text(f"nameserver {CONTROL_PLANE}\n")
        (self.dir / "ip").write_text(self.ip)

    def _cni(self) -> dict[str, object]:
        """Pods get a route to the cluster and to nothing else."""
        ipam = {
            "type": "host-local",
            "dataDir": str(self.dir / "ipam"),
            "ranges": [[{"subnet": pod_range(self.index)}]],
            "routes": [{"dst": EVERYTHING}],
        }
        return {
            "cniVersion": "1.0.0",
            "name": NETWORK,
            "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
        }

    def _kubelet(self) -> dict[str, object]:
        none = "0%"  # the machine's disk and memory are not the cluster's to judge
        tree: dict[str, object] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.group}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": none, "nodefs.available": none, "imagefs.available": none},
            "imageGCHighThresholdPercent": 100,
            "podLogsDir": str(self.dir / "podlogs"),
            "resolvConf": str(self.dir / "resolv.conf"),
            "clusterDNS": [CONTROL_PLANE],
            "clusterDomain": DOMAIN,
            "tlsCertFile": str(self.pki.cert(self.name)),
            "tlsPrivateKeyFile": str(self.pki.key(self.name)),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.pki.authority)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "nodeStatusUpdateFrequency": "3s",
            "nodeLeaseDurationSeconds": 8,
        }
        if self.settings.restart_backoff:
            tree["crashLoopBackOff"] = {"maxContainerRestartPeriod": self.settings.restart_backoff}
        return tree

    def _proxy(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(self.layout.kubeconfig("proxy"))},
            "hostnameOverride": self.name,
            "clusterCIDR": PODS,
            "conntrack": {"maxPerCore": 0},  # the setting is the machine's
        }
