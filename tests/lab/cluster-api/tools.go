//go:build tools

// Package clusterapi names the programs it builds, so that `go mod tidy` keeps their sums.
package clusterapi

import (
	_ "sigs.k8s.io/cluster-api/cmd/clusterctl"
	_ "sigs.k8s.io/kustomize/kustomize/v5"
)
