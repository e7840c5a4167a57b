// Command etcd is etcd itself: its root module cannot be installed by path, its server package can be called.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
