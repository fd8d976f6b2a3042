"""Owners of pods that cannot be queued themselves, and how their pods are grouped."""

from __future__ import annotations

from bayplan.dialects.jobs.kind import GroupBy, Grouping, JobKind

_BELOW = Grouping(GroupBy.BELOW)
_DEFAULT = Grouping()
_BY_POD_GANG = Grouping(GroupBy.POD_GANG)
_RUN_AI = "v2alpha1"
_GROVE = "v1alpha1"

POD_GANG = JobKind(
    *("PodGang", "scheduler.grove.io", _GROVE, "podgangs"),
    grouping=_DEFAULT, looked_up=True, names_pods=True,
)  # fmt: skip
REVISION = JobKind("Revision", "serving.knative.dev", "v1", "revisions", grouping=_DEFAULT, looked_up=True)
ENTRIES = (
    POD_GANG,
    REVISION,
    JobKind("Notebook", "kubeflow.org", "v1beta1", "notebooks", grouping=Grouping(GroupBy.TOP, "build")),
    JobKind(
        "ScheduledWorkflow", "kubeflow.org", "v1beta1", "scheduledworkflows", None, ("v1alpha1",),
        grouping=_DEFAULT,
    ),
    JobKind("PodGangSet", "grove.io", _GROVE, "podgangsets", grouping=_BY_POD_GANG),
    JobKind("PodCliqueSet", "grove.io", _GROVE, "podcliquesets", grouping=_BY_POD_GANG),
    JobKind("PodClique", "grove.io", _GROVE, "podcliques", grouping=_DEFAULT),
    JobKind("PodCliqueScalingGroup", "grove.io", _GROVE, "podcliquescalinggroups", grouping=_DEFAULT),
    JobKind("DynamoGraphDeployment", "nvidia.com", "v1alpha1", "dynamographdeployments", grouping=_BELOW),
    JobKind("Workflow", "argoproj.io", "v1alpha1", "workflows", grouping=_BELOW),
    JobKind("RunaiJob", "run.ai", "v1", "runaijobs", grouping=Grouping(GroupBy.RUN)),
    JobKind("TrainingWorkload", "run.ai", _RUN_AI, "trainingworkloads", grouping=_BELOW),
    JobKind("InteractiveWorkload", "run.ai", _RUN_AI, "interactiveworkloads", grouping=_BELOW),
    JobKind("DistributedWorkload", "run.ai", _RUN_AI, "distributedworkloads", grouping=_BELOW),
    JobKind("InferenceWorkload", "run.ai", _RUN_AI, "inferenceworkloads", grouping=_BELOW),
    JobKind(
        "DistributedInferenceWorkload", "run.ai", _RUN_AI, "distributedinferenceworkloads", grouping=_BELOW
    ),
    JobKind(
        "SeldonDeployment", "machinelearning.seldon.io", "v1", "seldondeployments", None, ("v1alpha2",),
        grouping=_DEFAULT,
    ),
    JobKind("VirtualMachine", "kubevirt.io", "v1", "virtualmachines", grouping=_DEFAULT),
    JobKind("VirtualMachineInstance", "kubevirt.io", "v1", "virtualmachineinstances", grouping=_DEFAULT),
    JobKind("DevWorkspace", "workspace.devfile.io", "v1alpha2", "devworkspaces", grouping=_DEFAULT),
    JobKind("PipelineRun", "tekton.dev", "v1", "pipelineruns", grouping=_DEFAULT),
    JobKind("TaskRun", "tekton.dev", "v1", "taskruns", grouping=_DEFAULT),
    JobKind(
        "Service", "serving.knative.dev", "v1", "services", grouping=Grouping(GroupBy.REVISION, "inference")
    ),
    JobKind("Configuration", "serving.knative.dev", "v1", "configurations", grouping=_DEFAULT),
    JobKind(
        "AmlJob", "amlarc.azureml.com", "v1alpha1", "amljobs",
        grouping=Grouping(
            GroupBy.NODE_COUNT, count=("spec", "job", "options", "envs", "AZUREML_NODE_COUNT")
        ),
    ),
    JobKind(
        "SPOTRequest", "egx.nvidia.io", "v1", "spotrequests", grouping=Grouping(GroupBy.TOP, "inference")
    ),
)  # fmt: skip
