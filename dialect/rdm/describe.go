package rdm

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// schemaModified is when attributes changed last.
const schemaModified = "Thu, 26 Nov 2026 00:00:00 GMT"

// serveSchema describes the attributes in which an attribute of the schema is defined.
func (s *Server) serveSchema(w http.ResponseWriter, m *message, catalog string) error {
	word, defined, _ := strings.Cut(m.scope, " ")
	defined = strings.TrimSpace(defined)
	if !strings.EqualFold(word, "defined") || defined == "" {
		return resourcesync.Invalid("Scope %q: a scope is defined and an attribute of the schema, as in defined SOIF-Attribute", resourcesync.Shorten(m.scope))
	}
	var chosen [][]Attribute
	for i, a := range attributes {
		n := "-" + strconv.Itoa(i+1)
		all := []Attribute{{"SOIF-Attribute" + n, a.name}, {"Description" + n, a.about}, {"Data-Type" + n, a.kind}, {"Default-View-Attribute" + n, strconv.Itoa(i + 1)}}
		if i == 0 {
			all = append(all, Attribute{"Enforce-Uniqueness" + n, "1"})
		}
		if slices.ContainsFunc(all, func(a Attribute) bool { return strings.EqualFold(unnumbered(a.Name), defined) }) {
			chosen = append(chosen, all)
		}
	}
	o := &Object{Type: "SCHEMA", URL: s.url + "?type=" + schemaRequest + "&ql=" + schema + "&scope=defined+SOIF-Attribute", Attributes: []Attribute{
		{"Schema-Definition-Language-Version", "1.0"}, {"Schema-Name", "DOCUMENT"}, {"Last-Modified", schemaModified}, {"Number-of-Entries", strconv.Itoa(len(chosen))},
	}}
	o.Attributes = append(o.Attributes, slices.Concat(chosen...)...)
	o.Attributes = slices.DeleteFunc(o.Attributes, func(a Attribute) bool { return !m.view.shows(unnumbered(a.Name)) })
	return send(w, header(nil, "schema-description-response", catalog, "", 0), o)
}

// describedFor is how long a server description is good: sets come and go.
const describedFor = time.Hour

// serveServer describes the hub, or one of its sets.
func (s *Server) serveServer(ctx context.Context, w http.ResponseWriter, catalog, title string) error {
	sets, err := s.hub.Sets(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, st := range sets {
		ids = append(ids, s.catalogs+st.Set)
	}
	o, now := &Object{Type: "RDMSERVER", URL: cmp.Or(catalog, s.url)}, time.Now()
	o.add("Description", title)
	o.add("Supported-RDM-Type", strings.Join(types, ","))
	o.add("Supported-RDM-Query-Language", gatherer+","+schema)
	o.add("Supported-Catalog-Service-ID", strings.Join(ids, ","))
	o.add("SD-Last-Modified", date(now))
	o.add("SD-Expires", date(now.Add(describedFor)))
	return send(w, header(nil, "server-description-response", catalog, "", 0), o)
}

// send answers with a header and an object.
func send(w http.ResponseWriter, header []byte, o *Object) error {
	w.Header().Set("Content-Type", MediaType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(o.Append(header)) // the client may be gone
	return nil
}
