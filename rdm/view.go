package rdm

import (
	"strconv"
	"strings"

	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// A view says which part of the results a client wants.
type view struct {
	attributes map[string]bool // in lower case; nil: all
	hits       int             // 0: any number
	order      []order         // empty: by URL
}

// An order is one attribute to order by.
type order struct {
	attribute  string // in lower case
	descending bool
}

// maxOrders bounds the attributes to order by.
const maxOrders = 10

// parseView reads the attributes of a view. Each may be empty.
func parseView(attributes, hits, orders string) (v view, err error) {
	for name := range strings.SplitSeq(attributes, ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name == "" {
			continue
		}
		if v.attributes == nil {
			v.attributes = map[string]bool{}
		}
		v.attributes[name] = true
	}
	if hits = strings.TrimSpace(hits); hits != "" {
		if v.hits, err = strconv.Atoi(hits); err != nil || v.hits < 1 {
			return v, resourcesync.Invalid("View-Hits is a number from 1, not %q", resourcesync.Shorten(hits))
		}
	}
	for name := range strings.SplitSeq(orders, ",") {
		o := order{attribute: strings.ToLower(strings.TrimSpace(name))}
		if o.attribute == "" {
			continue
		}
		if o.attribute[0] == '-' || o.attribute[0] == '+' {
			o.descending, o.attribute = o.attribute[0] == '-', strings.TrimSpace(o.attribute[1:])
		}
		if v.order = append(v.order, o); len(v.order) > maxOrders {
			return v, resourcesync.Invalid("View-Order has at most %d attributes", maxOrders)
		}
	}
	if len(v.order) == 1 && v.order[0] == (order{attribute: "url"}) {
		v.order = nil // they come so
	}
	return v, nil
}

// filter removes the attributes of an object that the view leaves out. The name title
// stands for title-1, title-2 and so on as well.
func (v *view) filter(o *soif.Object) {
	if v.attributes == nil {
		return
	}
	kept := o.Attributes[:0]
	for _, a := range o.Attributes {
		name := strings.ToLower(a.Name)
		if base, _ := soif.Split(name); v.attributes[name] || v.attributes[base] {
			kept = append(kept, a)
		}
	}
	o.Attributes = kept
}
