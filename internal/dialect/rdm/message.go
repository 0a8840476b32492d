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

// The types of messages that a Server takes. The name of an answer ends in response.
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

// languages are the query languages of the types that have one.
var languages = map[string]string{rdRequest: gatherer, deletedRequest: gatherer, schemaRequest: schema}

// parameters are those of a GET, with the attributes of a message that they stand for.
var parameters = map[string]string{
	"type": "RDM-Type", "ql": "RDM-Query-Language", "csid": "Catalog-Service-ID",
	"scope": "Scope", "view-attributes": "View-Attributes", "view-hits": "View-Hits", "view-order": "View-Order",
}

// Parameters are those of the URL. They are for GET.
var Parameters = slices.Sorted(maps.Keys(parameters))

// A message is what a client sends, without the resource descriptions of a submission.
type message struct {
	kind    string // one of types
	catalog string // Catalog-Service-ID; empty: there is none
	scope   string
	view    view
}

// submits reports whether resource descriptions follow the header of the message.
func (m *message) submits() bool { return m.kind == submission || m.kind == deletions }

// A view says what a client wants to see of the results.
type view struct {
	attributes map[string]bool // in lower case; nil: all
	hits       int             // at most; 0: all
	order      []key
}

// A key is what results are ordered by.
type key struct {
	by   *attribute
	down bool
}

// maxOrdered is how many results are ordered at most.
const maxOrdered = 10_000

// shows reports whether an attribute is in the view.
func (v *view) shows(name string) bool {
	return v.attributes == nil || v.attributes[strings.ToLower(name)]
}

// queryMessage reads the message that the parameters of a GET are.
func queryMessage(q url.Values) (*message, error) {
	o := &Object{Attributes: []Attribute{{"RDM-Version", version}}}
	for parameter, name := range parameters {
		for _, value := range q[parameter] {
			o.Attributes = append(o.Attributes, Attribute{name, value})
		}
	}
	return parse(o)
}

// readMessage reads a message that is POSTed, but of a submission only its header.
func readMessage(in *Reader) (*message, error) {
	header, err := in.Next()
	if err == io.EOF || err == nil && !strings.EqualFold(header.Type, "RDMHEADER") {
		return nil, resourcesync.Invalidf("a message begins with @RDMHEADER { -")
	}
	if err != nil {
		return nil, problem.BodyError(err)
	}
	m, err := parse(header)
	if err != nil || m.submits() {
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
		return nil, resourcesync.Invalidf("object 2 is @%s: behind the header of a request is @RDMQUERY { -, or nothing", query.Type)
	}
	if _, err := in.Next(); err != io.EOF {
		return nil, resourcesync.Invalidf("something follows the query: a body has one request")
	}
	header.Attributes = append(header.Attributes, query.Attributes...)
	return parse(header)
}

// parse reads the attributes of the header and the query of a message.
func parse(o *Object) (*message, error) {
	said, err := o.single(append(slices.Collect(maps.Values(parameters)), "RDM-Version")...)
	if err != nil {
		return nil, err
	}
	m := &message{kind: strings.ToLower(said["RDM-Type"]), catalog: said["Catalog-Service-ID"], scope: said["Scope"]}
	language := said["RDM-Query-Language"]
	switch {
	case said["RDM-Version"] != version:
		return nil, resourcesync.Invalidf("RDM-Version is %s, not %q", version, resourcesync.Shorten(said["RDM-Version"]))
	case m.kind == "":
		return nil, resourcesync.Invalidf("RDM-Type (type) is missing: send one of %s", strings.Join(types, ", "))
	case !slices.Contains(types, m.kind):
		return nil, resourcesync.Invalidf("RDM-Type %q is not supported: send one of %s", resourcesync.Shorten(m.kind), strings.Join(types, ", "))
	case language != "" && languages[m.kind] != "" && !strings.EqualFold(language, languages[m.kind]):
		return nil, resourcesync.Invalidf("RDM-Query-Language %q is not supported: the language of %s is %s", resourcesync.Shorten(language), m.kind, languages[m.kind])
	}
	return m, m.view.parse(said["View-Attributes"], said["View-Hits"], said["View-Order"])
}

func (v *view) parse(names, hits, order string) (err error) {
	if names != "" {
		v.attributes = map[string]bool{}
		for name := range strings.SplitSeq(names, ",") {
			v.attributes[strings.ToLower(strings.TrimSpace(name))] = true
		}
	}
	if hits != "" {
		if v.hits, err = strconv.Atoi(hits); err != nil || v.hits < 1 {
			return resourcesync.Invalidf("View-Hits is a number from 1, not %q", resourcesync.Shorten(hits))
		}
	}
	if order == "" {
		return nil
	}
	if v.hits == 0 || v.hits > maxOrdered {
		return resourcesync.Invalidf("View-Order needs View-Hits, a number from 1 to %d: the hub does not order more results than that", maxOrdered)
	}
	for name := range strings.SplitSeq(order, ",") {
		name = strings.TrimSpace(name) // in a URL, a + that is not encoded is a space
		a := attributeOf(strings.TrimLeft(name, "+-"))
		if a == nil {
			return resourcesync.Invalidf("View-Order: there is no attribute %q; results have %s", resourcesync.Shorten(name), attributeNames())
		}
		if slices.ContainsFunc(v.order, func(k key) bool { return k.by == a }) {
			return resourcesync.Invalidf("View-Order: %s is there twice", a.name)
		}
		v.order = append(v.order, key{a, strings.HasPrefix(name, "-")})
	}
	return nil
}
