"""The gang API of Kubernetes, scheduling.k8s.io: Workload and PodGroup in every version that was released."""
