//go:build tools

// Package oldest names the programs it builds, so that `go mod tidy` keeps their sums.
package oldest

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
