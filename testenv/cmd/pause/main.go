// Command pause holds the namespaces of a pod: it does nothing until it is told to end. Asked for its version it ends at once, as
// the image's own does: kubeadm proves with that, before an upgrade, that the cluster runs a Job.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-v" {
		fmt.Println("pause of testenv")
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
}
