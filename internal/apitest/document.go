// Package apitest holds the answers of a hub against the description of its HTTP API.
package apitest

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed testdata/openapi-3.1.json
var openAPI []byte

// The addresses of a hub.
const (
	Public     = "public"
	Operations = "operations"
)

// A Document is a description in OpenAPI 3.1. Several tests may use it at the same time.
type Document struct {
	root     map[string]any
	paths    []*path
	compiler *jsonschema.Compiler
	mu       sync.Mutex // guards compiler and schemas
	schemas  map[string]*jsonschema.Schema
}

// A path is an item of paths.
type path struct {
	name    string // such as /sets/{set}
	group   string // the first path of those that share one item
	address string
	matches *regexp.Regexp
	fixed   int    // bytes of name outside of parameters
	pointer string // to the item
	item    map[string]any
}

// An Operation is one method of one path.
type Operation struct {
	Address, Method, Path string
	Query                 []string // its parameters in the query
	Statuses              []string
}

const location = "openapi.json"

// Parse reads a description, and fails the test if it is not what OpenAPI 3.1 or JSON
// Schema allow.
func Parse(t testing.TB, text []byte) *Document {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("rules.json", rules); err != nil {
		t.Fatal(err)
	}
	if err := c.MustCompile("rules.json").Validate(parsed); err != nil {
		t.Fatalf("the description is not OpenAPI 3.1: %v", err)
	}
	d := &Document{root: parsed.(map[string]any), compiler: c, schemas: map[string]*jsonschema.Schema{}}
	d.close()
	if err := c.AddResource(location, d.root); err != nil {
		t.Fatal(err)
	}
	for name := range object(d.at("/components/schemas")) {
		if _, err := d.schema("/components/schemas/" + name); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	d.findPaths(t)
	return d
}

// close makes the schemas refuse members that they do not name. To clients the description
// promises less, because a later hub may have more members.
func (d *Document) close() {
	for _, s := range object(d.at("/components/schemas")) {
		if s := object(s); s["properties"] != nil && s["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
	}
}

func (d *Document) findPaths(t testing.TB) {
	paths, groups := object(d.root["paths"]), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		p := &path{name: name, address: Public}
		p.pointer, p.item = d.resolve("/paths/" + escape(name))
		if groups[p.pointer] == "" {
			groups[p.pointer] = name
		}
		p.group = groups[p.pointer]
		if p.item["servers"] != nil {
			p.address = Operations
		}
		literal := parameter.Split(name, -1)
		for i := range literal {
			p.fixed += len(literal[i])
			literal[i] = regexp.QuoteMeta(literal[i])
		}
		p.matches = regexp.MustCompile("^" + strings.Join(literal, "([^/]+)") + "$")
		d.paths = append(d.paths, p)
		for method, op := range object(p.item) {
			if slices.Contains(methods, method) {
				d.checkParameters(t, p, object(op))
			}
		}
	}
	slices.SortStableFunc(d.paths, func(a, b *path) int { return b.fixed - a.fixed })
}

// checkParameters checks that an operation describes the parameters in its path, and no
// others of this kind.
func (d *Document) checkParameters(t testing.TB, p *path, op map[string]any) {
	var inPath, described []string
	for _, m := range parameter.FindAllString(p.name, -1) {
		inPath = append(inPath, strings.Trim(m, "{}"))
	}
	for _, param := range d.parameters(p, op) {
		if param["in"] == "path" {
			described = append(described, param["name"].(string))
		}
	}
	slices.Sort(inPath)
	slices.Sort(described)
	if !slices.Equal(inPath, described) {
		t.Errorf("%s describes the parameters %q", p.name, described)
	}
}

var (
	parameter = regexp.MustCompile(`\{[^}]+\}`)
	methods   = []string{"get", "put", "post", "delete", "options", "patch"}
)

// parameters returns the parameters of an operation, and of its path.
func (d *Document) parameters(p *path, op map[string]any) (all []map[string]any) {
	for _, of := range []map[string]any{p.item, op} {
		list, _ := of["parameters"].([]any)
		for _, one := range list {
			if to, ok := object(one)["$ref"].(string); ok {
				_, one = d.resolve(strings.TrimPrefix(to, "#"))
			}
			all = append(all, object(one))
		}
	}
	return all
}

// Operations returns all operations, in the order of their paths. Paths that share one item
// have each its own.
func (d *Document) Operations() (all []Operation) {
	for _, p := range d.paths {
		for _, method := range methods {
			op, ok := p.item[method].(map[string]any)
			if !ok {
				continue
			}
			o := Operation{Address: p.address, Method: strings.ToUpper(method), Path: p.name}
			o.Statuses = slices.Sorted(maps.Keys(object(op["responses"])))
			for _, param := range d.parameters(p, op) {
				if param["in"] == "query" {
					o.Query = append(o.Query, param["name"].(string))
				}
			}
			slices.Sort(o.Query)
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b Operation) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	return all
}

// Answers returns every answer that is described, as an Answer writes it.
func (d *Document) Answers() (all []string) {
	add := func(address, method, path, pointer string) {
		for status := range object(d.at(pointer)) {
			_, r := d.resolve(pointer + "/" + status)
			media := slices.Sorted(maps.Keys(object(r["content"])))
			if len(media) == 0 {
				media = []string{""}
			}
			for _, m := range media {
				all = append(all, Answer{address, method, path, status, m}.String())
			}
		}
	}
	for _, p := range d.paths {
		for _, method := range methods {
			if p.item[method] != nil && p.group == p.name {
				add(p.address, strings.ToUpper(method), p.name, p.pointer+"/"+method+"/responses")
			}
		}
	}
	for _, address := range []string{Public, Operations} {
		add(address, "", otherwise, "/x-otherwise/"+address+"/responses")
	}
	slices.Sort(all)
	return all
}

// otherwise stands for the path of a request that no operation is for.
const otherwise = "otherwise"

// An Answer is what a request is answered with, as far as the description tells answers apart.
type Answer struct{ Address, Method, Path, Status, Media string }

func (a Answer) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s: %s %s", a.Address, a.Method, a.Path, a.Status, a.Media)), " ")
}

// find returns the pointer to the responses that are described for a request.
func (d *Document) find(address, method, url string) (answer Answer, pointer string) {
	if method == "HEAD" {
		method = "GET"
	}
	for _, p := range d.paths {
		if p.address == address && p.matches.MatchString(url) {
			if p.item[strings.ToLower(method)] == nil {
				break
			}
			return Answer{Address: address, Method: method, Path: p.group}, p.pointer + "/" + strings.ToLower(method) + "/responses"
		}
	}
	return Answer{Address: address, Path: otherwise}, "/x-otherwise/" + address + "/responses"
}

// at returns what a pointer of JSON leads to; nil: nothing.
func (d *Document) at(pointer string) any {
	var v any = d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		v = object(v)[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return v
}

// resolve returns the object at a pointer, or where the reference there leads.
func (d *Document) resolve(pointer string) (string, map[string]any) {
	o := object(d.at(pointer))
	if to, ok := o["$ref"].(string); ok {
		return d.resolve(strings.TrimPrefix(to, "#"))
	}
	return pointer, o
}

// schema returns the schema at a pointer.
func (d *Document) schema(pointer string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.schemas[pointer]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile(location + "#" + strings.NewReplacer("{", "%7B", "}", "%7D", " ", "%20", ";", "%3B").Replace(pointer))
	d.schemas[pointer] = s
	return s, err
}

func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}
