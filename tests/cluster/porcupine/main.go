// Command judge-claims checks with Porcupine that recorded claims of operators are linearizable.
//
//	judge-claims HISTORY.jsonl
//
// It writes one line of JSON for each operator to stdout. For an operator whose history is not linearizable it writes
// HISTORY-OPERATOR.html beside the history, which shows the operations around the first one that fits in no order.
// Exit codes: 0 if every history is linearizable, 1 if not, 2 if the file cannot be read.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	timeout = 2 * time.Minute
	// Operations of the longest order found that the picture shows.
	pictured = 40
)

// verdict is the line that is written for one operator.
type verdict struct {
	Operator   string  `json:"operator"`
	Operations int     `json:"operations"`
	Result     string  `json:"result"`
	Seconds    float64 `json:"seconds"`
	Reason     string  `json:"reason,omitempty"`
	Picture    string  `json:"picture,omitempty"`
}

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: judge-claims HISTORY.jsonl"))
	}
	histories, err := read(os.Args[1])
	if err != nil {
		fail(err)
	}
	code := 0
	for _, operator := range histories.operators {
		said, err := judge(operator, histories.of[operator], strings.TrimSuffix(os.Args[1], ".jsonl"))
		if err != nil {
			fail(err)
		}
		if said.Result != string(porcupine.Ok) {
			code = 1
		}
		if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
			fail(err)
		}
	}
	os.Exit(code)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// histories holds the operations of each operator. Operators are in the order in which the file names them.
type histories struct {
	operators []string
	of        map[string][]porcupine.Operation
}

func read(path string) (histories, error) {
	found := histories{of: map[string][]porcupine.Operation{}}
	file, err := os.Open(path)
	if err != nil {
		return found, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		recorded, err := parse(lines.Bytes())
		if err != nil {
			return found, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		operator := recorded.Operator
		if _, known := found.of[operator]; !known {
			found.operators = append(found.operators, operator)
		}
		ended := int64(math.MaxInt64)
		if recorded.EndedNs != nil {
			ended = *recorded.EndedNs
		}
		operation := porcupine.Operation{Input: recorded, Call: recorded.BeganNs, Return: ended}
		found.of[operator] = append(found.of[operator], operation)
	}
	return found, lines.Err()
}

// judge checks the history of one operator.
func judge(operator string, history []porcupine.Operation, name string) (verdict, error) {
	started := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model(nil), history, timeout)
	said := verdict{Operator: operator, Operations: len(history), Result: string(result)}
	said.Seconds = time.Since(started).Seconds()
	switch result {
	case porcupine.Unknown:
		said.Reason = fmt.Sprintf("no verdict within %s", timeout)
	case porcupine.Illegal:
		order := longest(info.PartialLinearizations()[0])
		first := firstWithout(history, order)
		said.Reason = fmt.Sprintf("%s fits in no order: the longest order found leaves the operator %s",
			first.Input.(operation), describe(after(history, order)))
		said.Picture = fmt.Sprintf("%s-%s.html", name, operator)
		return said, picture(history, order, first.Return, said.Picture)
	}
	return said, nil
}

func longest(orders [][]int) []int {
	var found []int
	for _, order := range orders {
		if len(order) > len(found) {
			found = order
		}
	}
	return found
}

// after returns the claims of the operator after these operations.
func after(history []porcupine.Operation, order []int) []claim {
	of := model(nil)
	state := of.Init()
	for _, id := range order {
		_, state = of.Step(state, history[id].Input, nil)
	}
	return state.([]claim)
}

// firstWithout returns the operation that ended first of those that the order does not contain.
func firstWithout(history []porcupine.Operation, order []int) porcupine.Operation {
	var rest []porcupine.Operation
	for id, each := range history {
		if !slices.Contains(order, id) {
			rest = append(rest, each)
		}
	}
	return slices.MinFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
}

// picture draws the end of the longest order found, and what could follow it until some time. The state before is that
// of this one order; another order of the operations before may give another.
func picture(history []porcupine.Operation, order []int, until int64, path string) error {
	before := order[:max(0, len(order)-pictured)]
	var shown []porcupine.Operation
	for id, each := range history {
		if each.Call <= until && !slices.Contains(before, id) {
			shown = append(shown, each)
		}
	}
	inRows(shown)
	start := model(after(history, before))
	_, info := porcupine.CheckOperationsVerbose(start, shown, timeout)
	return porcupine.VisualizePath(start, info, path)
}

// inRows gives operations that overlap different clients, which the picture shows in rows of their own.
func inRows(operations []porcupine.Operation) {
	slices.SortStableFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var ends []int64
	for i := range operations {
		row := slices.IndexFunc(ends, func(end int64) bool { return end < operations[i].Call })
		if row < 0 {
			row, ends = len(ends), append(ends, 0)
		}
		operations[i].ClientId, ends[row] = row, operations[i].Return
	}
}
