"""The dialect of the KAI scheduler: PodGroups, Queues, Topologies, and the pod grouper."""
