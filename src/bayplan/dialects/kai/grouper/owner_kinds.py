"""The API resources of the kinds that own pods, or that PodGroups are derived from."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.dialects.api import Kind

_KINDS: dict[tuple[str, str], dict[str, str]] = {
    ("batch", "v1"): {"Job": "jobs", "CronJob": "cronjobs"},
    ("apps", "v1"): {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"},
    ("kubeflow.org", "v1"): {
        "PyTorchJob": "pytorchjobs",
        "TFJob": "tfjobs",
        "XGBoostJob": "xgboostjobs",
        "JAXJob": "jaxjobs",
        "MPIJob": "mpijobs",
    },
    ("kubeflow.org", "v2beta1"): {"MPIJob": "mpijobs"},
    ("kubeflow.org", "v1alpha1"): {"ScheduledWorkflow": "scheduledworkflows"},
    ("kubeflow.org", "v1beta1"): {"Notebook": "notebooks", "ScheduledWorkflow": "scheduledworkflows"},
    ("trainer.kubeflow.org", "v1alpha1"): {"TrainJob": "trainjobs"},
    ("jobset.x-k8s.io", "v1alpha2"): {"JobSet": "jobsets"},
    ("leaderworkerset.x-k8s.io", "v1"): {"LeaderWorkerSet": "leaderworkersets"},
    ("ray.io", "v1alpha1"): {"RayCluster": "rayclusters", "RayJob": "rayjobs", "RayService": "rayservices"},
    ("ray.io", "v1"): {"RayCluster": "rayclusters", "RayJob": "rayjobs", "RayService": "rayservices"},
    ("grove.io", "v1alpha1"): {
        "PodGangSet": "podgangsets",
        "PodCliqueSet": "podcliquesets",
        "PodClique": "podcliques",
        "PodCliqueScalingGroup": "podcliquescalinggroups",
    },
    ("scheduler.grove.io", "v1alpha1"): {"PodGang": "podgangs"},
    ("nvidia.com", "v1alpha1"): {"DynamoGraphDeployment": "dynamographdeployments"},
    ("argoproj.io", "v1alpha1"): {"Workflow": "workflows"},
    ("run.ai", "v1"): {"RunaiJob": "runaijobs"},
    ("run.ai", "v2alpha1"): {
        "TrainingWorkload": "trainingworkloads",
        "InteractiveWorkload": "interactiveworkloads",
        "DistributedWorkload": "distributedworkloads",
        "InferenceWorkload": "inferenceworkloads",
        "DistributedInferenceWorkload": "distributedinferenceworkloads",
    },
    ("machinelearning.seldon.io", "v1alpha2"): {"SeldonDeployment": "seldondeployments"},
    ("machinelearning.seldon.io", "v1"): {"SeldonDeployment": "seldondeployments"},
    ("kubevirt.io", "v1"): {
        "VirtualMachine": "virtualmachines",
        "VirtualMachineInstance": "virtualmachineinstances",
    },
    ("workspace.devfile.io", "v1alpha2"): {"DevWorkspace": "devworkspaces"},
    ("tekton.dev", "v1"): {"PipelineRun": "pipelineruns", "TaskRun": "taskruns"},
    ("serving.knative.dev", "v1"): {
        "Service": "services",
        "Configuration": "configurations",
        "Revision": "revisions",
    },
    ("amlarc.azureml.com", "v1alpha1"): {"AmlJob": "amljobs"},
    ("egx.nvidia.io", "v1"): {"SPOTRequest": "spotrequests"},
}
_ALWAYS_THERE = ("batch", "apps")


def _all() -> Iterator[Kind]:
    for (group, version), kinds in _KINDS.items():
        for kind, plural in kinds.items():
            yield Kind(group, version, kind, plural, optional=group not in _ALWAYS_THERE)


OWNER_KINDS = tuple(_all())
BY_NAME = {(kind.group, kind.kind): kind for kind in OWNER_KINDS}
"""By group and kind; of several versions of a kind the last."""
POD_GANG = "PodGang"
LOOKED_UP = ("Job", "RayCluster", "Revision", POD_GANG)
"""Kinds that are also looked up by name, without being an owner of the pod."""
