//go:build tools

// Package tools names the programs that this module pins.
package tools

import (
	_ "github.com/NVIDIA/KAI-scheduler/cmd/binder"
	_ "github.com/NVIDIA/KAI-scheduler/cmd/scheduler"
)
