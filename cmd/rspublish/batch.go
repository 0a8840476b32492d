package main

import (
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/resourcesync"
)

// Limits of a batch. Batches depend only on the input, so batch i of an unchanged input is always
// the same, and always has the same key.
const (
	batchChanges = 1000
	batchBytes   = 4 << 20
)

// A batch is the body of one request, with the positions of its changes in the input.
type batch struct {
	first int // number of the first change in the input
	body  []byte
	lines []int // line of each change in the input; zero if unknown
}

func (b *batch) reset(first int) {
	b.first, b.body, b.lines = first, b.body[:0], b.lines[:0]
}

// add adds e to the batch. If the batch is full, it returns false and does not add e.
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

// locate returns an error that names the change of the input that the hub refused, because the
// hub counts within the batch. It returns nil if the hub did not name a change.
func (b *batch) locate(r *client.RefusedError) error {
	i := r.Entry
	if i == 0 {
		i = r.Line // each line has one change
	}
	if i < 1 || i > len(b.lines) {
		return nil
	}
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: b.first + i - 1, Line: b.lines[i-1], Loc: r.Loc, Msg: refusalReason(r)}
}
