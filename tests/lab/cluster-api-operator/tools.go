//go:build tools

// Package operator names the program it builds, so that `go mod tidy` keeps its sums.
package operator

import _ "sigs.k8s.io/cluster-api-operator/cmd"
