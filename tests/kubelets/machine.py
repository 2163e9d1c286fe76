"""A machine of a fleet: containerd, a kubelet and a device plugin in one mount namespace.

The folder through which a kubelet finds device plugins cannot be configured, so each machine has
its own /var/lib/kubelet. Pods get addresses of the machine's own bridge; the kernel routes between
bridges.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import yaml
from tests.apiserver.server import program
from tests.kubelets.image import PAUSE

NAMES_AT = "10.77.0.53"  # the address of the DNS server, which `inside` configures
PORT = 10250
PATIENCE_S = 60
# A kubelet stops containers that it does not know and removes their logs.
_OWN_PLACES = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers")


class Machine:
    """A machine whose kubelet can be stopped and started again while its containers go on."""

    def __init__(self, name: str, number: int, *, gpus: int, logs: Path) -> None:
        self.name = name
        self.address = f"10.77.{number}.1"
        self._bridge = f"lh{number}"
        self._number = number
        self._gpus = gpus
        self._logs = logs
        self._starts = 0
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kubeconfig: Path, image: Path) -> None:
        """Start the machine with an empty disk."""
        if not self._starts:
            self._make_bridge()
        self._starts += 1
        self._folder.mkdir(parents=True)
        for place in _OWN_PLACES:
            Path(place).mkdir(parents=True, exist_ok=True)
        mounts = [f"mount -t tmpfs -o mode=755 {self.name} {place}" for place in _OWN_PLACES]
        script = " && ".join(["mount --make-rshared /", *mounts, "echo up", "exec sleep 1000000"])
        holder = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script]
        held = subprocess.Popen(holder, stdout=subprocess.PIPE)
        self._running["holder"] = held
        assert held.stdout is not None
        with held.stdout as said:
            assert said.readline() == b"up\n", f"{self.name} has no namespace for its mounts"
        self._start_containerd(image)
        self._kubeconfig = kubeconfig
        self.start_kubelet()
        self._launch("deviceplugin", program("deviceplugin"), "--count", str(self._gpus))

    def start_kubelet(self) -> None:
        config = self._folder / "kubelet.yaml"
        config.write_text(yaml.safe_dump(self._kubelet_config()), encoding="utf-8")
        labels = {
            "region": "us",
            "cluster": "gpu-a",
            "fabric.domain": "a",
            "gpu.flavor": "H100-80GB",
        }
        self._launch(
            "kubelet", program("kubelet"), f"--config={config}",
            f"--kubeconfig={self._kubeconfig}", f"--hostname-override={self.name}",
            f"--node-ip={self.address}", "--v=2",
            "--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items()),
        )  # fmt: skip

    def stop_kubelet(self) -> None:
        """Stop only the kubelet, as if the machine were unreachable; its containers go on."""
        self._kill("kubelet")

    def lose_power(self) -> None:
        """Kill everything on the machine at once, including the shims of its containers."""
        for name in list(self._running):
            self._kill(name)
        for pid in [*self._pids(), *self._shims()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def log(self, name: str) -> str:
        path = self._logs / f"{self.name}-{name}.log"
        return path.read_text(encoding="utf-8", errors="replace")[-6000:] if path.exists() else ""

    def _shims(self) -> list[int]:
        """Return the ids of this machine's shims; their command lines name its containerd."""
        found = []
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if f"{self._folder}/".encode() in place.read_bytes():
                    found.append(int(place.parent.name))
        return found

    def _pids(self) -> list[int]:
        places = Path("/sys/fs/cgroup").glob(f"**/{self._scope}/**/cgroup.procs")
        return sorted({int(pid) for place in places for pid in place.read_text().split()})

    @property
    def _folder(self) -> Path:
        return Path("/run/leasehold") / f"{self.name}-{self._starts}"

    @property
    def _scope(self) -> str:
        return f"{os.environ['LEASEHOLD_CGROUP']}/{self.name}"

    def _make_bridge(self) -> None:
        for words in (
            ("link", "add", self._bridge, "type", "bridge"),
            ("address", "add", f"{self.address}/24", "dev", self._bridge),
            ("link", "set", self._bridge, "up"),
        ):
            subprocess.run(["ip", *words], check=True)

    def _start_containerd(self, image: Path) -> None:
        network = self._folder / "net.d"
        network.mkdir()
        (network / "10-bridge.conflist").write_text(json.dumps(self._network()), encoding="utf-8")
        socket = self._folder / "containerd.sock"
        config = self._folder / "containerd.toml"
        config.write_text(
            f"""
version = 2
root = "{self._folder}/images"
state = "{self._folder}/state"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{network}"
""",
            encoding="utf-8",
        )
        self._launch("containerd", "containerd", "--config", str(config))
        ctr = ["ctr", "--address", str(socket), "--namespace", "k8s.io"]
        self._until("containerd", lambda: self._does(*ctr, "version"))
        self._inside(*ctr, "images", "import", str(image))

    def _network(self) -> dict[str, object]:
        subnet = {"subnet": f"10.77.{self._number}.0/24", "gateway": self.address}
        bridge = {
            "type": "bridge",
            "bridge": self._bridge,
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[subnet]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": str(self._folder / "addresses"),
            },
        }
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}

    def _kubelet_config(self) -> dict[str, object]:
        for each in Path("/sys/fs/cgroup").iterdir():
            if each.is_dir() and not each.is_symlink():
                (each / self._scope).mkdir(parents=True, exist_ok=True)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": PORT,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._scope}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "oomScoreAdj": 0,
            "evictionHard": {"memory.available": "1Mi"},
            "makeIPTablesUtilChains": False,
            "containerRuntimeEndpoint": f"unix://{self._folder}/containerd.sock",
            "volumePluginDir": str(self._folder / "volume-plugins"),
            "clusterDNS": [NAMES_AT],
            "clusterDomain": "cluster.local",
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 8,
            "syncFrequency": "5s",
            "maxPods": 30,
        }

    def _launch(self, name: str, *words: str) -> None:
        with (self._logs / f"{self.name}-{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                self._words(*words), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def _words(self, *words: str) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._running['holder'].pid}/ns/mnt", "--", *words]

    def _inside(self, *words: str) -> None:
        subprocess.run(self._words(*words), check=True, capture_output=True, timeout=PATIENCE_S)

    def _does(self, *words: str) -> bool:
        done = subprocess.run(
            self._words(*words), check=False, capture_output=True, timeout=PATIENCE_S
        )
        return done.returncode == 0

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        due = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < due, self.log(what)
            assert self._running[what].poll() is None, self.log(what)
            time.sleep(0.1)

    def _kill(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()
