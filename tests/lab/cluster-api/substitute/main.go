// substitute fills in templates as clusterctl does: a JSON list of templates and values on standard input, a list of results
// on standard output. One process does thousands, which clusterctl itself would need thousands of processes for.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

type input struct {
	Template string            `json:"template"`
	Values   map[string]string `json:"values"`
}

// output has one of its fields set, and the variables where the template could be read.
type output struct {
	Text      *string            `json:"text,omitempty"`
	Error     string             `json:"error,omitempty"`
	Panic     string             `json:"panic,omitempty"`
	NoText    bool               `json:"noText,omitempty"`
	Variables map[string]*string `json:"variables,omitempty"`
}

func substitute(in input) (out output) {
	defer func() {
		if r := recover(); r != nil {
			out.Panic = fmt.Sprint(r)
		}
	}()
	processor := yamlprocessor.NewSimpleProcessor()
	variables, err := processor.GetVariableMap([]byte(in.Template))
	if err != nil {
		return output{Error: err.Error()}
	}
	out.Variables = variables
	text, err := processor.Process([]byte(in.Template), func(name string) (string, error) {
		value, ok := in.Values[name]
		if !ok {
			return "", errors.New("unset")
		}
		return value, nil
	})
	switch {
	case err != nil:
		out.Error = err.Error()
	case !utf8.Valid(text):
		out.NoText = true
	default:
		whole := string(text)
		out.Text = &whole
	}
	return out
}

func main() {
	var inputs []input
	if err := json.NewDecoder(os.Stdin).Decode(&inputs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	outputs := make([]output, 0, len(inputs))
	for _, in := range inputs {
		outputs = append(outputs, substitute(in))
	}
	if err := json.NewEncoder(os.Stdout).Encode(outputs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
