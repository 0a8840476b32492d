package rdm

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// orderRoom bounds the RDs that are held to order them, in bytes.
const orderRoom = 8 << 20

// heldBytes is what an RD takes that is held, besides its text and its keys.
const heldBytes = 200

// A ranked is an RD that is held to order it.
type ranked struct {
	keys []key // one for each order
	url  string
	text []byte
}

func (r *ranked) size() int {
	n := heldBytes + len(r.url) + len(r.text)
	for i := range r.keys {
		n += 40 + len(r.keys[i].text)
	}
	return n
}

// A key is what an RD is ordered by: a number, or else a text.
type key struct {
	absent bool
	number int64
	text   string
}

// keyOf returns the key of an RD for an attribute. Dates are ordered by time, and lengths by
// size. Of several values the first counts.
func keyOf(o *soif.Object, attribute string) key {
	if attribute == "url" {
		return key{text: o.URL}
	}
	value, ok := o.Get(attribute)
	if !ok {
		value, ok = o.Get(attribute + "-1")
	}
	if !ok {
		return key{absent: true}
	}
	switch f := fieldOf(attribute); {
	case f == nil:
	case f.data == "date":
		at, err := parseDate(value)
		return key{number: at.Unix(), absent: err != nil}
	case f.data == "int":
		n, err := strconv.ParseInt(value, 10, 64)
		return key{number: n, absent: err != nil}
	}
	return key{text: value}
}

// rankOf returns what orders compare of an RD.
func rankOf(o *soif.Object, orders []order) *ranked {
	r := &ranked{url: o.URL, keys: make([]key, len(orders))}
	for i := range orders {
		r.keys[i] = keyOf(o, orders[i].attribute)
	}
	return r
}

// compareBy compares two RDs. What has no value comes last, and equal ones are ordered by URL.
func compareBy(orders []order, a, b *ranked) int {
	for i := range orders {
		x, y := &a.keys[i], &b.keys[i]
		switch {
		case x.absent && y.absent:
			continue
		case x.absent:
			return 1
		case y.absent:
			return -1
		}
		c := cmp.Or(cmp.Compare(x.number, y.number), strings.Compare(x.text, y.text))
		if orders[i].descending {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return strings.Compare(a.url, b.url)
}

// A ranking is RDs as a heap: the last one is on top, which goes when there are too many.
type ranking struct {
	orders []order
	all    []*ranked
	bytes  int
}

func (r *ranking) Len() int           { return len(r.all) }
func (r *ranking) Less(i, j int) bool { return compareBy(r.orders, r.all[i], r.all[j]) > 0 }
func (r *ranking) Swap(i, j int)      { r.all[i], r.all[j] = r.all[j], r.all[i] }
func (r *ranking) Push(x any)         { r.all = append(r.all, x.(*ranked)) }
func (r *ranking) Pop() any {
	last := r.all[len(r.all)-1]
	r.all = r.all[:len(r.all)-1]
	return last
}

// add adds an RD, and removes the last one if there are more than hits.
func (r *ranking) add(one *ranked, hits int) error {
	if hits > 0 && len(r.all) == hits && compareBy(r.orders, one, r.all[0]) >= 0 {
		return nil
	}
	heap.Push(r, one)
	r.bytes += one.size()
	if hits > 0 && len(r.all) > hits {
		r.bytes -= heap.Pop(r).(*ranked).size()
	}
	if r.bytes > orderRoom {
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: "there is too much to order by View-Order: ask for fewer descriptions with View-Hits, for less of each with View-Attributes, or order by URL"}
	}
	return nil
}

// ordered writes the RDs that a view shows in its order. It holds no more of them than fit
// into orderRoom, and fails before anything is sent if that is not enough.
func (a *answer) ordered(ctx context.Context, all entries, v *view) error {
	r := &ranking{orders: v.order}
	for e, err := range all {
		if err != nil {
			return err
		}
		o := describe(e)
		one := rankOf(o, v.order)
		v.filter(o)
		if one.text, err = o.Append(nil); err != nil {
			return err
		}
		if err := r.add(one, v.hits); err != nil {
			return err
		}
	}
	slices.SortFunc(r.all, func(x, y *ranked) int { return compareBy(v.order, x, y) })
	a.count = len(r.all)
	for _, one := range r.all {
		if a.text = append(a.text, one.text...); len(a.text) >= writeAt {
			if err := a.flush(ctx); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
