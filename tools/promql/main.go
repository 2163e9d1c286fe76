// promql reads expressions, one a line, with Prometheus' own parser, and prints for each what it
// asks of metrics as JSON: the selectors by name with their matchers, and the labels that it groups
// or joins by. An expression that Prometheus would refuse is told with its error.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

type selector struct {
	Name     string            `json:"name"`
	Matchers map[string]string `json:"matchers"` // of labels that must be equal to this
	Labels   []string          `json:"labels"`   // of all its matchers
}

type found struct {
	Expression string     `json:"expression"`
	Error      string     `json:"error"`
	Selectors  []selector `json:"selectors"`
	Grouped    []string   `json:"grouped"`
}

func read(expression string) found {
	answer := found{Expression: expression, Selectors: []selector{}, Grouped: []string{}}
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		answer.Error = err.Error()
		return answer
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch each := node.(type) {
		case *parser.VectorSelector:
			asked := selector{Name: each.Name, Matchers: map[string]string{}, Labels: []string{}}
			for _, matcher := range each.LabelMatchers {
				if matcher.Name == labels.MetricName {
					continue
				}
				asked.Labels = append(asked.Labels, matcher.Name)
				if matcher.Type == labels.MatchEqual {
					asked.Matchers[matcher.Name] = matcher.Value
				}
			}
			answer.Selectors = append(answer.Selectors, asked)
		case *parser.AggregateExpr:
			answer.Grouped = append(answer.Grouped, each.Grouping...)
		case *parser.BinaryExpr:
			if each.VectorMatching != nil {
				answer.Grouped = append(answer.Grouped, each.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	return answer
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	answers := []found{}
	for lines.Scan() {
		answers = append(answers, read(lines.Text()))
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}
