package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// operation is one line of a history: what a caller did with an operator, or saw of it, and when.
type operation struct {
	Operator string `json:"operator"`
	Kind     string `json:"kind"`
	Session  string `json:"session"`
	// The state that a read returned.
	Shown string `json:"shown"`
	// Of a clock that never steps.
	BeganNs int64 `json:"beganNs"`
	// None if it is not known when the operation took effect at the latest.
	EndedNs *int64 `json:"endedNs"`
	// Whether it may have had no effect at all.
	IsMaybe bool `json:"isMaybe"`
}

// String is also what the picture shows.
func (o operation) String() string {
	said := o.Kind
	if o.Session != "" {
		said += " " + o.Session
	}
	if o.Shown != "" {
		said += ": " + o.Shown
	}
	if o.IsMaybe {
		said += " (may have had no effect)"
	}
	return said
}

func parse(line []byte) (operation, error) {
	var found operation
	if err := json.Unmarshal(line, &found); err != nil {
		return found, err
	}
	if !slices.Contains(kinds, found.Kind) {
		return found, fmt.Errorf("%q is not one of %s", found.Kind, strings.Join(kinds, ", "))
	}
	if found.Operator == "" {
		return found, fmt.Errorf("an operation without an operator")
	}
	if found.EndedNs != nil && *found.EndedNs < found.BeganNs {
		return found, fmt.Errorf("an operation that ended before it began")
	}
	return found, nil
}

// A change of a claim takes effect twice: in the operator's workspace and in the session, one after the other. So
// "dispatch" or "accept", and "free", change what the workspace shows; "assign", "start" and "end" what the session shows.
var kinds = []string{"dispatch", "accept", "assign", "start", "end", "free", "read session", "read operator"}

// claim is a session that an operator has.
type claim struct {
	session      string
	isDispatched bool
	// Whether the session shows the assignment.
	isAssigned bool
	isLive     bool
	// Whether the session shows that it is over for this operator.
	isOver bool
}

// isExclusive tells whether a dispatch must not take the operator because of this claim.
func (c claim) isExclusive() bool { return c.isDispatched || c.isLive }

func isLive(c claim) bool { return c.isLive }

// step applies an operation to the claims of an operator, which are sorted by session. It returns false if the
// operation is impossible in this state.
func step(claims []claim, o operation) (bool, []claim) {
	place := slices.IndexFunc(claims, func(each claim) bool { return each.session == o.Session })
	var mine claim
	if place >= 0 {
		mine = claims[place]
	}
	isHeld := mine.isAssigned && !mine.isOver
	isBusy := slices.ContainsFunc(claims, claim.isExclusive)
	switch o.Kind {
	case "dispatch", "accept":
		isDispatched := o.Kind == "dispatch"
		if place >= 0 || isDispatched && isBusy {
			return false, claims
		}
		added := append(slices.Clone(claims), claim{session: o.Session, isDispatched: isDispatched})
		slices.SortFunc(added, func(a, b claim) int { return strings.Compare(a.session, b.session) })
		return true, added
	case "assign":
		mine.isAssigned = true
		return place >= 0 && !claims[place].isAssigned, with(claims, place, mine)
	case "start":
		mine.isLive = true
		return isHeld && !slices.ContainsFunc(claims, isLive), with(claims, place, mine)
	case "end":
		mine.isOver = true
		return isHeld, with(claims, place, mine)
	case "free":
		if !mine.isOver {
			return false, claims
		}
		return true, slices.Delete(slices.Clone(claims), place, place+1)
	case "read session":
		shown := "OTHER"
		if isHeld && mine.isLive {
			shown = "LIVE"
		} else if isHeld {
			shown = "ASSIGNED"
		}
		return o.Shown == shown, claims
	default: // "read operator"
		if o.Shown == "BUSY" {
			return len(claims) > 0, claims
		}
		return !isBusy, claims
	}
}

func with(claims []claim, place int, changed claim) []claim {
	if place < 0 {
		return claims
	}
	copied := slices.Clone(claims)
	copied[place] = changed
	return copied
}

func (c claim) String() string {
	said := "assigned by accept to "
	if c.isDispatched {
		said = "assigned by dispatch to "
	}
	said += c.session
	switch {
	case c.isOver:
		return said + ", over"
	case c.isLive:
		return said + ", LIVE"
	case c.isAssigned:
		return said
	}
	return said + ", which does not show it yet"
}

func describe(claims []claim) string {
	if len(claims) == 0 {
		return "free"
	}
	said := make([]string, len(claims))
	for i, each := range claims {
		said[i] = each.String()
	}
	return strings.Join(said, "; ")
}

// model is that of one operator.
func model(initial []claim) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			claims, done := state.([]claim), input.(operation)
			isPossible, next := step(claims, done)
			if !isPossible && done.IsMaybe {
				return true, claims
			}
			return isPossible, next
		},
		Equal:             func(one, other any) bool { return slices.Equal(one.([]claim), other.([]claim)) },
		DescribeOperation: func(input, _ any) string { return input.(operation).String() },
		DescribeState:     func(state any) string { return describe(state.([]claim)) },
	}
}
