package resourcesync

import (
	"io"
	"strconv"
)

// A BaselinePage is what a hub says of a page of a baseline: of some of the resources
// that a set holds.
type BaselinePage struct {
	Set      string
	Baseline bool   // the page is a part of the baseline; else the baseline is at its end
	After    string // of a part, the place before its first resource
	Cursor   string // of a part, the place to go on from; at the end, the cursor to follow from
	Complete bool   // the hub knows all resources of the set
	Count    uint64 // how many resources the whole baseline names
	Counted  bool   // the page says Count
	Restart  bool   // the baseline begins anew with this page
	Position string // at the end, the digest of the resources by position
	Content  string // at the end, the digest of the resources by content
	Next     string // URL of the next page; empty when there is none
}

// ReadBaselinePage reads a page of a baseline as a hub writes it, and calls each with
// every resource in turn. They stand in the member "resources" of a part. The end of a
// baseline has the member "changes" instead, which is empty. In everything else
// ReadBaselinePage is like ReadPage.
func ReadBaselinePage(r io.Reader, l Limits, each func(PageEntry) error) (BaselinePage, error) {
	var p BaselinePage
	err := readPage(r, l, each, func(j *jsonInput, l Limits, each func(*Change) error) error { return j.baseline(&p, l, each) })
	if err != nil {
		return BaselinePage{}, err
	}
	return p, nil
}

func (j *jsonInput) baseline(p *BaselinePage, l Limits, each func(*Change) error) error {
	var baseline, resources, changes bool // which of them are there
	err := j.object("the page", func(name []byte) (err error) {
		switch string(name) {
		case "set":
			return j.string("set", &p.Set)
		case "baseline":
			baseline = !j.null()
			p.Baseline, err = j.bool("baseline")
			return err
		case "after":
			return j.string("after", &p.After)
		case "cursor":
			return j.string("cursor", &p.Cursor)
		case "complete":
			p.Complete, err = j.bool("complete")
			return err
		case "count":
			p.Counted = !j.null()
			p.Count, err = j.count()
			return err
		case "restart":
			p.Restart, err = j.bool("restart")
			return err
		case "position":
			return j.string("position", &p.Position)
		case "content":
			return j.string("content", &p.Content)
		case "next":
			return j.string("next", &p.Next)
		case "resources":
			resources = true
			return j.changes(`"resources"`, l, nil, each)
		case "changes":
			changes = true
			return j.changes(`"changes"`, l, nil, func(*Change) error { return j.fail("the end of a baseline has no changes yet") })
		}
		return j.pass()
	})
	if err != nil {
		return err
	}
	if err := j.require(member{"set", p.Set != ""}, member{"baseline", baseline}, member{"cursor", p.Cursor != ""}, member{"resources", resources || !p.Baseline}, member{"changes", changes || p.Baseline}); err != nil {
		return err
	}
	if resources && changes {
		return j.fail("resources of a baseline and changes do not stand in one page")
	}
	return nil
}

func (j *jsonInput) count() (uint64, error) {
	v, err := j.value('0', "count", "a number")
	if err != nil || v == nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		return 0, j.fail("count is a whole number, not " + Shorten(string(v)))
	}
	return n, nil
}
