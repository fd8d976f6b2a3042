// Command peer times the placement function of sigs.k8s.io/kueue on the scenario that Bayplan is timed on.
//
// It prints one JSON line for each row, in the order of the table.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/features"
)

type line struct {
	Row    string  `json:"row"`
	Shape  string  `json:"shape"`
	Rounds int     `json:"rounds"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Allocs uint64  `json:"allocs"`
	Bytes  uint64  `json:"bytes"`
	Placed bool    `json:"placed"`
	Digest string  `json:"digest"`
	Varies bool    `json:"varies"` // another snapshot of the same cluster gave another answer
	Reason string  `json:"reason,omitempty"`
}

type bench struct {
	ctx    context.Context
	cache  *scheduler.Cache
	lister *nodeLister
	rounds int
	budget time.Duration // of one row
}

func main() {
	path := flag.String("scenario", "", "file written by the Python side")
	rounds := flag.Int("rounds", 5, "measurements of each row")
	budget := flag.Duration("budget", 8*time.Second, "stop a row after this time, with at least three measurements")
	flag.Parse()
	if err := run(*path, *rounds, *budget); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(path string, rounds int, budget time.Duration) error {
	s, err := readScenario(path)
	if err != nil {
		return err
	}
	ctx := log.IntoContext(context.Background(), logr.Discard())
	before := heap()
	cache, lister, err := s.build(ctx)
	if err != nil {
		return err
	}
	b := &bench{ctx: ctx, cache: cache, lister: lister, rounds: rounds, budget: budget}
	snapshot, err := b.snapshot()
	if err != nil {
		return err
	}
	emit(line{Row: "memory", Bytes: heap() - before})
	first := s.Shapes[0]
	if err := b.cycle("snapshot", first, func() {}, func() {}); err != nil {
		return err
	}
	for _, shape := range s.Shapes {
		if err := b.further(snapshot, shape); err != nil {
			return err
		}
	}
	return b.changes(s, first)
}

// snapshot is what the peer does at the start of every scheduling cycle.
func (b *bench) snapshot() (*scheduler.TASFlavorSnapshot, error) {
	whole, err := b.cache.Snapshot(b.ctx)
	if err != nil {
		return nil, err
	}
	queue := whole.ClusterQueue(queueName)
	if queue == nil || queue.TASFlavors[flavorName] == nil {
		return nil, fmt.Errorf("the snapshot lacks the flavor %q", flavorName)
	}
	return queue.TASFlavors[flavorName], nil
}

// cycle times a change, a snapshot and one placement on it; the way back is not timed.
func (b *bench) cycle(row string, ask shape, change, restore func()) error {
	requests := ask.requests()
	var failed error
	var result scheduler.TASAssignmentsResult
	measured := b.measure(func() {
		change()
		snapshot, err := b.snapshot()
		if err != nil {
			failed = err
			return
		}
		result = snapshot.FindTopologyAssignmentsForFlavor(requests)
	}, restore)
	if failed == nil {
		emit(measured.with(row, ask.Name, result))
	}
	return failed
}

// further times placements on a snapshot that has already served one.
func (b *bench) further(snapshot *scheduler.TASFlavorSnapshot, ask shape) error {
	if err := features.SetEnable(features.TASBalancedPlacement, ask.Balanced); err != nil {
		return err
	}
	requests := ask.requests()
	var result scheduler.TASAssignmentsResult
	measured := b.measure(func() { result = snapshot.FindTopologyAssignmentsForFlavor(requests) }, func() {})
	measured = measured.with("place", ask.Name, result)
	for try := 0; ask.Balanced && try < 3; try++ {
		other, err := b.snapshot()
		if err != nil {
			return err
		}
		answer := line{}.with("place", ask.Name, other.FindTopologyAssignmentsForFlavor(requests))
		measured.Varies = measured.Varies || answer.Digest != measured.Digest
	}
	emit(measured)
	return features.SetEnable(features.TASBalancedPlacement, false)
}

// changes times a cycle after one node changed, came or went.
func (b *bench) changes(s scenario, ask shape) error {
	all := b.lister.nodes
	more := append(slices.Clone(all), s.node(len(all)))
	fewer := slices.Delete(slices.Clone(all), s.Removed, s.Removed+1)
	usual, reduced := s.Allocatable.quantities(), s.Reduced.quantities()
	resize := func(to corev1.ResourceList) func() {
		return func() { all[s.Changed].Status.Allocatable = to }
	}
	serve := func(nodes []corev1.Node) func() {
		return func() { b.lister.nodes = nodes }
	}
	if err := b.cycle("node changed", ask, resize(reduced), resize(usual)); err != nil {
		return err
	}
	if err := b.cycle("node added", ask, serve(more), serve(all)); err != nil {
		return err
	}
	return b.cycle("node removed", ask, serve(fewer), serve(all))
}

// measure calls do once to warm up, then until the rounds or the time are used up; allocations are means.
func (b *bench) measure(do, restore func()) line {
	do()
	restore()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	times := make([]float64, 0, b.rounds)
	for round := 0; round < b.rounds && (round < 3 || time.Since(start) < b.budget); round++ {
		begin := time.Now()
		do()
		times = append(times, float64(time.Since(begin).Nanoseconds())/1e6)
		restore()
	}
	runtime.ReadMemStats(&after)
	count := uint64(len(times))
	slices.Sort(times)
	return line{
		Rounds: len(times), P50: quantile(times, 50), P99: quantile(times, 99),
		Allocs: (after.Mallocs - before.Mallocs) / count, Bytes: (after.TotalAlloc - before.TotalAlloc) / count,
	}
}

// quantile picks the nearest rank of sorted times.
func quantile(sorted []float64, percent int) float64 {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}

func (l line) with(row, shape string, result scheduler.TASAssignmentsResult) line {
	l.Row, l.Shape = row, shape
	if failure := result.Failure(); failure != nil {
		l.Reason = failure.Reason
		return l
	}
	var places []string
	for name, answer := range result {
		for _, domain := range answer.TopologyAssignment.Domains {
			host := domain.Values[len(domain.Values)-1]
			places = append(places, fmt.Sprintf("%s %s:%d", name, host, domain.Count))
		}
	}
	slices.Sort(places)
	sum := sha256.Sum256([]byte(strings.Join(places, "\n")))
	l.Placed, l.Digest = true, hex.EncodeToString(sum[:])
	return l
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func emit(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
