package main

import (
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/resourcesync"
)

// The limits of a batch depend on the input only. So batch i of an input that does not
// change is always the same, and always has the same key.
const (
	batchChanges = 1000
	batchBytes   = 4 << 20
)

// A batch is the body of one request, and where in the input its changes are.
type batch struct {
	first int // number of the first change in the input
	body  []byte
	lines []int // of each change, its line in the input; 0 if it is not known
}

func (b *batch) reset(first int) {
	b.first, b.body, b.lines = first, b.body[:0], b.lines[:0]
}

// add adds e to the batch. It returns false if the batch is full.
func (b *batch) add(e entry) bool {
	if len(b.lines) == batchChanges {
		return false
	}
	before := len(b.body)
	b.body = append(b.body, '{')
	b.body = resourcesync.AppendJSONMembers(b.body, e.change)
	b.body = append(b.body, '}', '\n')
	if len(b.body) > batchBytes && len(b.lines) > 0 {
		b.body = b.body[:before]
		return false
	}
	b.lines = append(b.lines, e.line)
	return true
}

// locate returns an error that says which change of the input the hub refused. The hub
// counts within the batch. locate returns nil if the hub did not name a change.
func (b *batch) locate(r *client.Refused) error {
	i := r.Entry
	if i == 0 {
		i = r.Line // each line has one change
	}
	if i < 1 || i > len(b.lines) {
		return nil
	}
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: b.first + i - 1, Line: b.lines[i-1], Loc: r.Loc, Rule: refusalReason(r)}
}
