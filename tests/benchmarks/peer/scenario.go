package main

import (
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// amounts holds whole numbers: milli-CPU, bytes, counts.
type amounts map[string]int64

// scenario is the file that both sides of the benchmark are built from.
type scenario struct {
	Levels        []string `json:"levels"`
	NodesPerRack  int      `json:"nodes_per_rack"`
	RacksPerBlock int      `json:"racks_per_block"`
	Allocatable   amounts  `json:"allocatable"`
	Reduced       amounts  `json:"reduced"`  // allocatable of a node after it changed
	Occupant      amounts  `json:"occupant"` // requests of one pod that is already there
	Used          []int32  `json:"used"`     // occupants of each node
	Changed       int      `json:"changed"`  // index of the node that changes
	Removed       int      `json:"removed"`  // index of the node that goes
	Shapes        []shape  `json:"shapes"`
}

// shape is one request: a single pod set, or workers and a leader that stay together.
type shape struct {
	Name         string   `json:"name"`
	Required     string   `json:"required"`
	Preferred    string   `json:"preferred"`
	SegmentLevel string   `json:"segment_level"`
	SegmentSize  int32    `json:"segment_size"`
	Balanced     bool     `json:"balanced"`
	PodSets      []podSet `json:"pod_sets"`
}

type podSet struct {
	Name     string  `json:"name"`
	Count    int32   `json:"count"`
	Requests amounts `json:"requests"`
}

func readScenario(path string) (scenario, error) {
	var read scenario
	text, err := os.ReadFile(path)
	if err != nil {
		return read, err
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return read, fmt.Errorf("%s: %w", path, err)
	}
	if len(read.Levels) != 3 || len(read.Used) == 0 || len(read.Shapes) == 0 {
		return read, fmt.Errorf("%s: want three levels, some nodes and some shapes", path)
	}
	return read, nil
}

func (a amounts) quantities() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a))
	for name, amount := range a {
		key := corev1.ResourceName(name)
		switch key {
		case corev1.ResourceCPU:
			list[key] = *resource.NewMilliQuantity(amount, resource.DecimalSI)
		case corev1.ResourceMemory:
			list[key] = *resource.NewQuantity(amount, resource.BinarySI)
		default:
			list[key] = *resource.NewQuantity(amount, resource.DecimalSI)
		}
	}
	return list
}

func hostname(index int) string {
	return fmt.Sprintf("n%06d", index)
}
