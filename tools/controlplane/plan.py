"""What a control plane is made of: programs, the modules they are built from, and each version's switches."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

GO_DIR = Path(__file__).parent / "go"
STAGES = Path(__file__).parent / "stages.yaml"
DEFAULT_KUBE = "1.35.4"
ADDONS_MODULE = "addons"
HELM_MODULE = "helm"
PROMTOOL_MODULE = "promtool"
KUEUE_MODULE = "kueue"
KAI_MODULE = "kai"
VOLCANO_MODULE = "volcano"


class Trouble(Exception):
    """Something a person has to look at: the message says what was asked, what was found, what to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """One binary, and the Go package that it is built from."""

    name: str
    package: str
    module: str  # the folder under go/ whose go.mod pins it; empty: the one of the Kubernetes version
    tags: str = ""  # build tags


@dataclass(frozen=True, slots=True)
class Switches:
    """What a Kubernetes version calls the gang-scheduling API, and how that API is turned on."""

    runtime_config: str
    feature_gates: str


ETCD = Program("etcd", "go.etcd.io/etcd/server/v3", "")
APISERVER = Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "")
CONTROLLERS = Program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "")
KUBECTL = Program("kubectl", "k8s.io/kubernetes/cmd/kubectl", "")
SCHEDULER = Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "")
KWOK = Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", ADDONS_MODULE)
JOBSET = Program("jobset", "sigs.k8s.io/jobset", ADDONS_MODULE)
HELM = Program("helm", "helm.sh/helm/v3/cmd/helm", HELM_MODULE)
PROMTOOL = Program(
    "promtool", "github.com/prometheus/prometheus/cmd/promtool", PROMTOOL_MODULE, tags="remove_all_sd"
)
"""Without the clients of clouds that Prometheus can discover targets with: rules need none of them."""

KUEUE = Program("kueue", "sigs.k8s.io/kueue/cmd/kueue", KUEUE_MODULE)
KAI = Program("kai-scheduler", "github.com/NVIDIA/KAI-scheduler/cmd/scheduler", KAI_MODULE)
KAI_BINDER = Program("kai-binder", "github.com/NVIDIA/KAI-scheduler/cmd/binder", KAI_MODULE)
VOLCANO = Program("vc-scheduler", "volcano.sh/volcano/cmd/scheduler", VOLCANO_MODULE)
"""Peers, for benchmarks only."""

NEEDED = (ETCD, APISERVER, CONTROLLERS, KUBECTL, KWOK, JOBSET)
"""In the order in which they are built."""

ADDON_VERSIONS = {"sigs.k8s.io/kwok": "v0.8.0", "sigs.k8s.io/jobset": "v0.12.0"}
HELM_VERSION = "v3.19.5"
"""Of those that need no newer libraries than the default Kubernetes: what that one compiled is used again."""
KUEUE_VERSION = "v0.19.2"
KAI_VERSION, VOLCANO_VERSION = "v0.12.0", "v1.10.0"
"""The newest ones that the Go module proxy has."""
PROMETHEUS_VERSION = "v0.313.5"
"""Prometheus 3.13.5; its Go module counts from 0."""

SWITCHES = {
    "1.35": Switches("scheduling.k8s.io/v1alpha1=true", "GenericWorkload=true,GangScheduling=true"),
    "1.36": Switches(
        "scheduling.k8s.io/v1alpha2=true",
        "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true,WorkloadAwarePreemption=true",
    ),
    "1.37": Switches(
        "scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
        "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
    ),
}


def known_versions() -> list[str]:
    """The Kubernetes versions that have module files here."""
    return sorted(folder.name.removeprefix("kubernetes-") for folder in GO_DIR.glob("kubernetes-*"))


def check_version(kube: str) -> str:
    """Give `kube` back without a leading v, or say which versions there are."""
    version = kube.removeprefix("v")
    if version not in known_versions():
        raise Trouble(
            f"Kubernetes {kube} was asked for; there are module files for {', '.join(known_versions())}. "
            f"Take one of these, or add it with: python -m tools.controlplane pin {version}"
        )
    return version


def switches(kube: str) -> Switches:
    """The switches of a version's minor release."""
    minor = ".".join(kube.split(".")[:2])
    if minor not in SWITCHES:
        raise Trouble(
            f"Kubernetes {kube} was asked for; plan.py has switches for {', '.join(SWITCHES)}. "
            f"Add an entry for {minor} that names its gang-scheduling API and feature gates."
        )
    return SWITCHES[minor]


def module_dir(program: Program, kube: str) -> Path:
    """The folder with the go.mod that pins a program."""
    return GO_DIR / (program.module or f"kubernetes-{kube}")


def cache_dir(program: Program, kube: str) -> Path:
    """Where a program is kept once it is built."""
    return cache_root() / (program.module or kube)


def cache_root() -> Path:
    """Everything that is built, outside the checkout."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "bayplan" / "controlplane"


def default_state() -> Path:
    """The state folder of the cluster that is started when none is named."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "bayplan" / "cluster"


def _xdg(variable: str, fallback: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / fallback)
