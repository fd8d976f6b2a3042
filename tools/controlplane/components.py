"""The command line and readiness check of each program."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.controlplane.plan import STAGES, Switches

LOOPBACK = "127.0.0.1"
PORTS = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "jobset",
    "jobset-webhook",
)


@dataclass(frozen=True, slots=True)
class Site:
    """Where one cluster lives: its folder, its ports, the switches of its version."""

    folder: Path
    ports: Mapping[str, int]
    switches: Switches

    @property
    def api(self) -> str:
        return f"https://{LOOPBACK}:{self.ports['kube-apiserver']}"

    def pki(self, name: str) -> str:
        return str(self.folder / "pki" / name)

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"


def etcd(site: Site) -> list[str]:
    """The store. Not synced to disk: these clusters are thrown away."""
    clients, peers = (f"http://{LOOPBACK}:{site.ports[name]}" for name in ("etcd", "etcd-peer"))
    return [
        f"--data-dir={site.folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        f"--quota-backend-bytes={4 << 30}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(site: Site) -> list[str]:
    """The API, with RBAC on. No request limits: a test may send more than a fair share."""
    return [
        f"--etcd-servers=http://{LOOPBACK}:{site.ports['etcd']}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={site.ports['kube-apiserver']}",
        *_serving(site),
        f"--client-ca-file={site.pki('ca.crt')}",
        f"--token-auth-file={site.pki('tokens.csv')}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={site.pki('service-account.key')}",
        f"--service-account-key-file={site.pki('service-account.pub')}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        "--event-ttl=10m",
        f"--runtime-config={site.switches.runtime_config}",
        f"--feature-gates={site.switches.feature_gates}",
    ]


def controllers(site: Site) -> list[str]:
    """The real Job controller and its siblings. Nodes have no heartbeat, so their silence says nothing."""
    return [
        *_delegating(site, "kube-controller-manager"),
        f"--kubeconfig={site.kubeconfig('kube-controller-manager')}",
        f"--root-ca-file={site.pki('ca.crt')}",
        f"--service-account-private-key-file={site.pki('service-account.key')}",
        "--use-service-account-credentials=true",
        "--controllers=*,-nodeipam",
        "--leader-elect=false",
        "--node-monitor-grace-period=8760h",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
        f"--feature-gates={site.switches.feature_gates}",
    ]


def scheduler(site: Site) -> list[str]:
    """kube-scheduler, without client-side rate limits."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(site.kubeconfig("kube-scheduler")),
            "qps": 5000,
            "burst": 5000,
        },
    }
    path = site.folder / "kube-scheduler.json"
    path.write_text(json.dumps(configuration))
    return [
        *_delegating(site, "kube-scheduler"),
        f"--config={path}",
        f"--feature-gates={site.switches.feature_gates}",
    ]


def kwok(site: Site) -> list[str]:
    """kwok, which simulates the kubelets of all nodes with our stages."""
    return [
        f"--kubeconfig={site.kubeconfig('kwok')}",
        f"--config={STAGES}",
        "--manage-all-nodes=true",
        "--cidr=10.64.0.0/10",
        f"--node-ip={LOOPBACK}",
        f"--server-address={LOOPBACK}:{site.ports['kwok']}",
    ]


def jobset(site: Site) -> list[str]:
    """The JobSet controller, with webhooks on loopback and certificates of ours."""
    configuration = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{site.ports['jobset']}"},
        "webhook": {"host": LOOPBACK, "port": site.ports["jobset-webhook"], "certDir": site.pki("webhook")},
    }
    path = site.folder / "jobset.json"
    path.write_text(json.dumps(configuration))
    return [f"--config={path}", f"--kubeconfig={site.kubeconfig('jobset')}"]


def answers(site: Site, url: str, expected: str = "") -> bool:
    """Whether a GET of `url`, as the administrator, is answered with 200 and `expected`."""
    trust = None
    if url.startswith("https"):
        trust = ssl.create_default_context(cafile=site.pki("ca.crt"))
        trust.load_cert_chain(site.pki("admin.crt"), site.pki("admin.key"))
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=trust)] if trust else [])
    )
    try:
        with opener.open(url, timeout=5) as answer:
            return answer.status == 200 and expected in answer.read().decode(errors="replace")
    except (urllib.error.URLError, OSError):
        return False


def _serving(site: Site) -> list[str]:
    return [f"--tls-cert-file={site.pki('server.crt')}", f"--tls-private-key-file={site.pki('server.key')}"]


def _delegating(site: Site, name: str) -> list[str]:
    """How a component serves its health and metrics: over TLS, asking the API server who may see them."""
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={site.ports[name]}",
        *_serving(site),
        f"--authentication-kubeconfig={site.kubeconfig(name)}",
        f"--authorization-kubeconfig={site.kubeconfig(name)}",
        "--authentication-tolerate-lookup-failure=true",
    ]
