package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/util/tas"
)

const (
	topologyName = "bench"
	flavorName   = kueue.ResourceFlavorReference("bench")
	queueName    = kueue.ClusterQueueReference("bench")
)

// nodeLister stands where the peer has its informer cache. It hands out nodes without copying them deeply, which is
// cheaper than what the peer has in production: what is timed is the peer's own work.
type nodeLister struct {
	client.Client
	nodes []corev1.Node
}

func (l *nodeLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if nodes, ok := list.(*corev1.NodeList); ok {
		nodes.Items = l.nodes
	}
	return nil
}

func (s scenario) node(index int) corev1.Node {
	rack := index / s.NodesPerRack
	name := hostname(index)
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				s.Levels[0]: fmt.Sprintf("b%03d", rack/s.RacksPerBlock),
				s.Levels[1]: fmt.Sprintf("r%02d", rack%s.RacksPerBlock),
				s.Levels[2]: name,
			},
		},
		Status: corev1.NodeStatus{
			Allocatable: s.Allocatable.quantities(),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// build returns the peer's cache of the cluster, filled through its exported functions, and the source of its nodes.
func (s scenario) build(ctx context.Context) (*scheduler.Cache, *nodeLister, error) {
	lister := &nodeLister{nodes: make([]corev1.Node, len(s.Used), len(s.Used)+1)}
	for index := range s.Used {
		lister.nodes[index] = s.node(index)
	}
	log := logr.Discard()
	cache := scheduler.New(lister)
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: topologyName}}
	for _, level := range s.Levels {
		topology.Spec.Levels = append(topology.Spec.Levels, kueue.TopologyLevel{NodeLabel: level})
	}
	cache.AddOrUpdateTopology(log, topology)
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: string(flavorName)}}
	reference := kueue.TopologyReference(topologyName)
	flavor.Spec.TopologyName = &reference
	cache.AddOrUpdateResourceFlavor(log, flavor)
	if err := cache.AddClusterQueue(ctx, s.queue()); err != nil {
		return nil, nil, err
	}
	if workload := s.occupants(); workload != nil && !cache.AddOrUpdateWorkload(log, workload) {
		return nil, nil, fmt.Errorf("the cache did not take the workload that uses the nodes")
	}
	return cache, lister, nil
}

func (s scenario) queue() *kueue.ClusterQueue {
	group := kueue.ResourceGroup{Flavors: []kueue.FlavorQuotas{{Name: flavorName}}}
	for name := range s.Occupant {
		key := corev1.ResourceName(name)
		group.CoveredResources = append(group.CoveredResources, key)
		group.Flavors[0].Resources = append(group.Flavors[0].Resources,
			kueue.ResourceQuota{Name: key, NominalQuota: *resource.NewQuantity(1<<50, resource.DecimalSI)})
	}
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: string(queueName)},
		Spec:       kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group}, NamespaceSelector: &metav1.LabelSelector{}},
	}
}

// occupants is one admitted workload whose pods fill the nodes as the scenario says.
func (s scenario) occupants() *kueue.Workload {
	taken := &tas.TopologyAssignment{Levels: s.Levels[2:]}
	total := int32(0)
	for index, count := range s.Used {
		if count > 0 {
			taken.Domains = append(taken.Domains, tas.TopologyDomainAssignment{Values: []string{hostname(index)}, Count: count})
			total += count
		}
	}
	if total == 0 {
		return nil
	}
	sum := make(amounts, len(s.Occupant))
	flavors := make(map[corev1.ResourceName]kueue.ResourceFlavorReference, len(s.Occupant))
	for name, amount := range s.Occupant {
		sum[name] = amount * int64(total)
		flavors[corev1.ResourceName(name)] = flavorName
	}
	workload := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: "occupants"}}
	workload.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: total}}
	workload.Status.Admission = &kueue.Admission{
		ClusterQueue: queueName,
		PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Flavors: flavors, ResourceUsage: sum.quantities(), Count: &total,
			TopologyAssignment: tas.V1Beta2From(taken),
		}},
	}
	for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		meta.SetStatusCondition(&workload.Status.Conditions,
			metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Benchmark"})
	}
	return workload
}

// requests turns a shape into what the peer's placement function takes.
func (s shape) requests() scheduler.FlavorTASRequests {
	ask := &kueue.PodSetTopologyRequest{}
	switch {
	case s.Required != "":
		ask.Required = &s.Required
	case s.Preferred != "":
		ask.Preferred = &s.Preferred
	case s.SegmentSize == 0:
		unconstrained := true
		ask.Unconstrained = &unconstrained
	}
	if s.SegmentSize > 0 {
		ask.PodSetSliceRequiredTopology = &s.SegmentLevel
		ask.PodSetSliceSize = &s.SegmentSize
	}
	var group *string
	if len(s.PodSets) > 1 {
		group = &s.Name
	}
	requests := make(scheduler.FlavorTASRequests, 0, len(s.PodSets))
	for _, set := range s.PodSets {
		single := make(map[corev1.ResourceName]int64, len(set.Requests))
		for name, amount := range set.Requests {
			single[corev1.ResourceName(name)] = amount
		}
		requests = append(requests, scheduler.TASPodSetRequests{
			PodSet:            &kueue.PodSet{Name: kueue.PodSetReference(set.Name), Count: set.Count, TopologyRequest: ask},
			SinglePodRequests: single,
			Count:             set.Count,
			Flavor:            flavorName,
			PodSetGroupName:   group,
		})
	}
	return requests
}
