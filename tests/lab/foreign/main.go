// Command foreign runs against any Kubernetes API and says what came of it, as JSON on standard output.
//
//	foreign controller KUBECONFIG   a controller's whole life, and the objects that it ends with
//	foreign definition              the CustomResourceDefinition of its kind
//	foreign watch KUBECONFIG        many parallel watches of all kinds while objects change
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long any single thing may take on a loaded machine.
const patience = 60 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 1 && arguments[0] == "definition" {
		return json.NewEncoder(os.Stdout).Encode(definition())
	}
	if len(arguments) != 2 {
		return fmt.Errorf("two arguments are needed: controller or watch, and a kubeconfig")
	}
	config, err := clientcmd.BuildConfigFromFlags("", arguments[1])
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	stories := map[string]func(context.Context, *rest.Config) (any, error){"controller": controllerStory, "watch": watchStory}
	story, known := stories[arguments[0]]
	if !known {
		return fmt.Errorf("no story %q", arguments[0])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	result, err := story(ctx, config)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// until asks again and again until the answer is yes.
func until(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for {
		var done bool
		if done, last = ask(); done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, errOr(last, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
