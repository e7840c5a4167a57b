// Command etcdctl is etcd's own client: like etcd it can only be called as a package.
package main

import (
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
)

func main() {
	ctlv3.MustStart()
}
