package rdm

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// schemaDate is when the schema was changed last. Whoever changes fields changes it.
const schemaDate = "Mon, 23 Nov 2026 00:00:00 GMT"

// schema answers a request for the schema of RDs, which is the same for all sets: the
// attributes that the hub knows. Sources may send others, which are text.
func (s *Server) schema(ctx context.Context, w http.ResponseWriter, r *http.Request, m *message, set string) error {
	defined, err := parseDefined(m.scope)
	if err != nil {
		return err
	}
	h := newHeader(replies[m.kind])
	if set != "" {
		if _, err := s.hub.State(ctx, set); err != nil {
			return err
		}
		h.Add("Catalog-Service-ID", s.csid(set))
	}
	w.Header().Set("Expires", date(time.Now()))
	send(w, r, http.StatusOK, write(write(nil, h), s.schemaObject(defined, &m.view)))
	return nil
}

// parseDefined reads a scope of the query language schema-basic: defined, and the name of an
// attribute that a part of the schema must have.
func parseDefined(scope string) (attribute string, err error) {
	words := strings.Fields(scope)
	if len(words) != 2 || !strings.EqualFold(words[0], "defined") {
		return "", resourcesync.Invalid("the scope is %q; the query language schema-basic knows defined ATTRIBUTE, such as defined SOIF-Attribute", resourcesync.Shorten(scope))
	}
	return words[1], nil
}

// schemaObject returns the parts of the schema that define an attribute, as a view shows them.
func (s *Server) schemaObject(defined string, v *view) *soif.Object {
	parts := make([]*soif.Object, 0, len(fields))
	inView := 0
	for i := range fields {
		f := &fields[i]
		p := new(soif.Object)
		p.Add("SOIF-Attribute", f.name)
		p.Add("Description", f.describes)
		p.Add("Data-Type", f.data)
		p.Add("Content-Type", "text/plain")
		if f.name == "URL" {
			p.Add("Enforce-Uniqueness", "1")
		}
		if f.inView {
			inView++
			p.Add("Default-View-Attribute", strconv.Itoa(inView))
		}
		if _, ok := p.Get(defined); ok {
			parts = append(parts, p)
		}
	}
	slices.SortStableFunc(parts, func(a, b *soif.Object) int {
		return compareBy(v.order, rankOf(a, v.order), rankOf(b, v.order))
	})
	if v.hits > 0 {
		parts = parts[:min(v.hits, len(parts))]
	}
	o := &soif.Object{Type: "SCHEMA", URL: string(s.base) + Path + "?type=" + schemaRequest + "&ql=schema-basic&scope=defined+SOIF-Attribute"}
	o.Add("Schema-Definition-Language-Version", version)
	o.Add("Last-Modified", schemaDate)
	o.Add("Schema-Name", documentType)
	o.Add("Number-of-Entries", strconv.Itoa(len(parts)))
	head := len(o.Attributes)
	for i, p := range parts {
		for _, a := range p.Attributes {
			o.Add(a.Name+"-"+strconv.Itoa(i+1), a.Value)
		}
	}
	all := &soif.Object{Attributes: o.Attributes[head:]}
	v.filter(all)
	o.Attributes = append(o.Attributes[:head], all.Attributes...)
	return o
}
