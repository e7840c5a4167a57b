//go:build tools

// Package helm names the program it builds, so that `go mod tidy` keeps its sums.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
