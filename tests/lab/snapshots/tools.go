//go:build tools

// Package snapshots names the programs it builds, so that `go mod tidy` keeps their sums.
package snapshots

import (
	_ "github.com/versity/versitygw/cmd/versitygw"
	_ "go.etcd.io/etcd/etcdutl/v3"
)
