package rdm

import (
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Types of messages that a Server accepts. The types of responses end in "response".
const (
	rdRequest        = "rd-request"
	deletedRequest   = "rd-request-deleted"
	submission       = "rd-response"
	deletions        = "rd-response-deleted"
	schemaRequest    = "schema-description-request"
	serverRequest    = "server-description-request"
	statusRequest    = "status-request"
	version          = "1.0"
	gatherer, schema = "gatherer", "schema-basic" // query languages
)

var types = []string{rdRequest, deletedRequest, submission, deletions, schemaRequest, serverRequest, statusRequest}

// languages maps types of messages to their query languages, if any.
var languages = map[string]string{rdRequest: gatherer, deletedRequest: gatherer, schemaRequest: schema}

// parameters maps the parameters of a GET to the attributes of a message.
var parameters = map[string]string{
	"type": "RDM-Type", "ql": "RDM-Query-Language", "csid": "Catalog-Service-ID",
	"scope": "Scope", "view-attributes": "View-Attributes", "view-hits": "View-Hits", "view-order": "View-Order",
}

// Parameters are the names of the parameters of a GET.
var Parameters = slices.Sorted(maps.Keys(parameters))

// A message is a message from a client, without the resource descriptions of a submission.
type message struct {
	kind    string // one of types
	catalog string // Catalog-Service-ID, or empty
	scope   string
	view    view
}

// isSubmission reports whether resource descriptions follow the header of the message.
func (m *message) isSubmission() bool { return m.kind == submission || m.kind == deletions }

// A view selects and sorts the results of a request.
type view struct {
	attributes map[string]bool // in lower case; nil for all
	hits       int             // maximum number of results; 0 for no limit
	order      []sortKey
}

// A sortKey is an attribute by which results are sorted.
type sortKey struct {
	attribute  *attribute
	descending bool
}

// maxSorted is the maximum number of sorted results.
const maxSorted = 10_000

// includes reports whether an attribute is in the view.
func (v *view) includes(name string) bool {
	return v.attributes == nil || v.attributes[strings.ToLower(name)]
}

// queryMessage returns the message in the parameters of a GET.
func queryMessage(q url.Values) (*message, error) {
	o := &Object{Attributes: []Attribute{{"RDM-Version", version}}}
	for parameter, name := range parameters {
		for _, value := range q[parameter] {
			o.Attributes = append(o.Attributes, Attribute{name, value})
		}
	}
	return parse(o)
}

// readMessage reads the message in a POST, but only the header of a submission.
func readMessage(in *Reader) (*message, error) {
	header, err := in.Next()
	if err == io.EOF || err == nil && !strings.EqualFold(header.Type, "RDMHEADER") {
		return nil, resourcesync.Invalidf("message does not start with @RDMHEADER { -")
	}
	if err != nil {
		return nil, problem.BodyError(err)
	}
	m, err := parse(header)
	if err != nil || m.isSubmission() {
		return m, err
	}
	query, err := in.Next()
	if err == io.EOF {
		return m, nil
	}
	if err != nil {
		return nil, problem.BodyError(err)
	}
	if !strings.EqualFold(query.Type, "RDMQUERY") {
		return nil, resourcesync.Invalidf("object 2: got @%s, want @RDMQUERY { - or the end after the header of a request", query.Type)
	}
	if _, err := in.Next(); err != io.EOF {
		return nil, resourcesync.Invalidf("unexpected data after the query; send one request per body")
	}
	header.Attributes = append(header.Attributes, query.Attributes...)
	return parse(header)
}

// parse parses the attributes of the header and the query of a message.
func parse(o *Object) (*message, error) {
	values, err := o.singleValues(append(slices.Collect(maps.Values(parameters)), "RDM-Version")...)
	if err != nil {
		return nil, err
	}
	m := &message{kind: strings.ToLower(values["RDM-Type"]), catalog: values["Catalog-Service-ID"], scope: values["Scope"]}
	language := values["RDM-Query-Language"]
	switch {
	case values["RDM-Version"] != version:
		return nil, resourcesync.Invalidf("unsupported RDM-Version; want %s, got %q", version, resourcesync.Shorten(values["RDM-Version"]))
	case m.kind == "":
		return nil, resourcesync.Invalidf("RDM-Type (type) is missing; send one of %s", strings.Join(types, ", "))
	case !slices.Contains(types, m.kind):
		return nil, resourcesync.Invalidf("RDM-Type %q is not supported; send one of %s", resourcesync.Shorten(m.kind), strings.Join(types, ", "))
	case language != "" && languages[m.kind] != "" && !strings.EqualFold(language, languages[m.kind]):
		return nil, resourcesync.Invalidf("RDM-Query-Language %q is not supported; the language of %s is %s", resourcesync.Shorten(language), m.kind, languages[m.kind])
	}
	return m, m.view.parse(values["View-Attributes"], values["View-Hits"], values["View-Order"])
}

// parse parses the three attributes of a view, which may be empty.
func (v *view) parse(names, hits, order string) (err error) {
	if names != "" {
		v.attributes = map[string]bool{}
		for name := range strings.SplitSeq(names, ",") {
			v.attributes[strings.ToLower(strings.TrimSpace(name))] = true
		}
	}
	if hits != "" {
		if v.hits, err = strconv.Atoi(hits); err != nil || v.hits < 1 {
			return resourcesync.Invalidf("View-Hits: got %q, want a number of at least 1", resourcesync.Shorten(hits))
		}
	}
	if order == "" {
		return nil
	}
	if v.hits == 0 || v.hits > maxSorted {
		return resourcesync.Invalidf("View-Order requires View-Hits from 1 to %d; the hub does not sort more results", maxSorted)
	}
	for name := range strings.SplitSeq(order, ",") {
		name = strings.TrimSpace(name) // an unencoded + in a URL is a space
		a := attributeOf(strings.TrimLeft(name, "+-"))
		if a == nil {
			return resourcesync.Invalidf("View-Order: unknown attribute %q; want one of %s", resourcesync.Shorten(name), attributeNames())
		}
		if slices.ContainsFunc(v.order, func(k sortKey) bool { return k.attribute == a }) {
			return resourcesync.Invalidf("View-Order: duplicate attribute %s", a.name)
		}
		v.order = append(v.order, sortKey{a, strings.HasPrefix(name, "-")})
	}
	return nil
}
