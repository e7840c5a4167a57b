//go:build tools

// Package sops names the programs it builds, so that `go mod tidy` keeps their sums.
package sops

import (
	_ "filippo.io/age/cmd/age"
	_ "filippo.io/age/cmd/age-keygen"
	_ "github.com/getsops/sops/v3/cmd/sops"
)
